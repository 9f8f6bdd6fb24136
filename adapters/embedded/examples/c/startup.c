/* Vectors and start-up code of a Cortex-M4F, as little as it needs; output through semihosting. */
#include "board.h"

extern uint32_t data_start[], data_end[], data_load[], bss_start[], bss_end[], stack_top[];
int main(void);

static int semihosting(int operation, const void *argument) {
    register int r0 __asm("r0") = operation;
    register const void *r1 __asm("r1") = argument;
    __asm volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

void print(const char *text) {
    semihosting(0x04, text); /* SYS_WRITE0 */
}

void print_number(unsigned number) {
    char text[11], *at = text + 10;
    *at = 0;
    do *--at = (char)('0' + number % 10);
    while (number /= 10);
    print(at);
}

_Noreturn void leave(int code) {
    /* SYS_EXIT_EXTENDED, ADP_Stopped_ApplicationExit */
    const uint32_t arguments[2] = {0x20026, (uint32_t)code};
    for (;;) semihosting(0x20, arguments);
}

void fault(void) {
    print("fault\n");
    leave(2);
}

_Noreturn void reset(void) {
    *(volatile uint32_t *)0xE000ED88 |= 0xF << 20; /* CPACR: enables the floating point unit */
    for (uint32_t *to = data_start, *from = data_load; to < data_end;) *to++ = *from++;
    for (uint32_t *to = bss_start; to < bss_end;) *to++ = 0;
    leave(main());
}

void systick(void);

__attribute__((section(".vectors"), used)) static const void *vectors[16] = {
    stack_top, (void *)reset, (void *)fault, (void *)fault, (void *)fault, (void *)fault, (void *)fault,
    0, 0, 0, 0, (void *)fault, (void *)fault, 0, (void *)fault, (void *)systick,
};
