/* A limit on the address space (RLIMIT_AS), above what the process has mapped, and how much of it a program must be able to
 * allocate. Upward: `limit_to` once; `allowance` from then on. */
#ifndef LIMITS_H
#define LIMITS_H
#include "check.h"

#include <sys/resource.h>

/* The program, its libraries and stacks, if the limit was set before the start (2 to 4 MiB were seen). */
#define PROGRAM_BYTES ((size_t)8 << 20)

static size_t allowance;

static inline size_t mapped_bytes(void) {
    char text[128] = {0};
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || !fgets(text, sizeof text, file)) die("/proc/self/statm cannot be read");
    fclose(file);
    return strtoul(text, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

/* Reads a limit that is set already (`ulimit -v`), or sets one `megabytes` above what is mapped now. */
static inline void limit_to(size_t megabytes) {
    struct rlimit limit;
    getrlimit(RLIMIT_AS, &limit);
    if (limit.rlim_cur != RLIM_INFINITY) {
        allowance = limit.rlim_cur - PROGRAM_BYTES;
        return;
    }
    allowance = megabytes << 20;
    limit.rlim_cur = mapped_bytes() + allowance;
    if (setrlimit(RLIMIT_AS, &limit)) die("setrlimit failed");
}
#endif
