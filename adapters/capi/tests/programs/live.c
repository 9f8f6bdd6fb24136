/* Memory of a known size for live counters: 64 blocks of 1 MiB at once. `fork`: a child with 16 MiB more, which lives as long. Without
 * an argument frees a half and ends; else waits until the end of its standard input. */
#include "check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static char *volatile blocks[80];

static void wait_for_end(void) {
    char byte;
    while (read(0, &byte, 1) > 0) {}
}

int main(int count, char **words) {
    begin();
    for (int i = 0; i < 64; i++) blocks[i] = malloc(MIB);
    if (count < 2) {
        for (int i = 0; i < 32; i++) free(blocks[i]);
        return finish();
    }
    pid_t child = strcmp(words[1], "fork") == 0 ? fork() : -1;
    if (child == 0) {
        for (int i = 64; i < 80; i++) blocks[i] = malloc(MIB);
        wait_for_end();
        return 0;
    }
    wait_for_end();
    if (child > 0) waitpid(child, NULL, 0);
    return finish();
}
