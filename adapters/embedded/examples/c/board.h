/* Functions of startup.c. */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

void print(const char *text);
void print_number(unsigned number);
_Noreturn void leave(int code);

#endif
