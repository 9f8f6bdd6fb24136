/* Shared by every program here: one line per check, a random generator, patterns that show two owners of one block.
 *
 * Upward: `begin` first, CHECK as often as wanted, `return finish();` last: 0 when every check held. Output has no
 * addresses and no times, so that two runs under two allocators can be compared.
 * From below: EXPECT_MALLOC, if set, must be part of the name of the file that `malloc` is from: so a failed preload is not
 * silent. STRICT=1 also checks what this library promises and glibc does not. */
#ifndef CHECK_H
#define CHECK_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int failed;
static int strict;

/* Hides a size from the compiler, which would warn about absurd ones and remove pairs of malloc and free. */
static inline size_t hide(size_t value) {
    volatile size_t hidden = value;
    return hidden;
}

static inline int check(int held, const char *file, int line, const char *words) {
    if (held) {
        printf("ok: %s\n", words);
    } else {
        __atomic_add_fetch(&failed, 1, __ATOMIC_RELAXED);
        printf("FAILED %s:%d: %s (errno %d)\n", strrchr(file, '/') ? strrchr(file, '/') + 1 : file, line, words, errno);
    }
    return held;
}

/* One line for each check. In a loop, gather the outcome first and check once. */
#define CHECK(held, words) check((held) ? 1 : 0, __FILE__, __LINE__, words)
/* A check of what the library promises beyond glibc: its line is marked, so that the test can compare the others. */
#define CHECK_STRICT(held, words) ((void)(strict && CHECK(held, "strict: " words)))

/* Reports a part whose checks call `die` when they fail. */
static inline void reached(const char *words) {
    printf("ok: %s\n", words);
}

/* Ends the program from anywhere, signal handlers too: no allocation, no locks. */
static inline void die(const char *words) {
    static const char start[] = "FAILED: ";
    ssize_t ignored = write(1, start, sizeof start - 1) + write(1, words, strlen(words)) + write(1, "\n", 1);
    (void)ignored;
    _exit(3);
}

static inline void begin(void) {
    static char buffer[1 << 16]; /* so that printing needs no memory */
    setvbuf(stdout, buffer, _IOLBF, sizeof buffer);
    const char *is_strict = getenv("STRICT");
    strict = is_strict && *is_strict == '1';
#ifndef STATIC_PROGRAM
    const char *wanted = getenv("EXPECT_MALLOC");
    Dl_info info;
    void *address = dlsym(RTLD_DEFAULT, "malloc");
    if (wanted && !(dladdr(address, &info) && strstr(info.dli_fname, wanted)))
        die("malloc comes from another library than expected");
#endif
}

static inline int finish(void) {
    printf("%s: %d failed\n", failed ? "bad" : "good", failed);
    return failed != 0;
}

/* A random generator (xorshift64*): the same numbers for the same state, which must not be 0. */
static inline uint64_t next_random(uint64_t *state) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545F4914F6CDD1Dull;
}

/* A monotonic clock in seconds, to limit loops; no check depends on it. */
static inline double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static inline long number_from(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtol(text, NULL, 10) : otherwise;
}

static inline int is_zero(const void *block, size_t size) {
    const char *bytes = (const char *)block;
    return size == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0);
}

typedef uint64_t __attribute__((may_alias, aligned(1))) word;

/* Larger blocks are filled at both ends and once per page: that touches every page in little time. */
#define SPARSE_FROM 65536
#define SPARSE_EDGE 4096

static inline size_t place_after(size_t place, size_t size) {
    place += sizeof(word);
    int between = size > SPARSE_FROM && place >= SPARSE_EDGE && place + 2 * SPARSE_EDGE <= size;
    return between ? place + 4096 - sizeof(word) : place;
}

static inline word pattern_at(size_t place, uint64_t seed) {
    return (seed ^ place) * 0x9E3779B97F4A7C15ull;
}

/* Fills a block with a pattern that differs from that of every other seed in every word. */
static inline void fill(void *block, size_t size, uint64_t seed) {
    char *bytes = (char *)block;
    size_t place = 0;
    for (; place + sizeof(word) <= size; place = place_after(place, size)) *(word *)(bytes + place) = pattern_at(place, seed);
    for (; place < size; place++) bytes[place] = (char)pattern_at(place, seed);
}

/* Whether the first `part` bytes are those that `fill` wrote into a block of `size`. */
static inline int holds(const void *block, size_t size, size_t part, uint64_t seed) {
    const char *bytes = (const char *)block;
    size_t place = 0;
    for (; place + sizeof(word) <= size; place = place_after(place, size)) {
        if (place + sizeof(word) > part) return 1;
        if (*(const word *)(bytes + place) != pattern_at(place, seed)) return 0;
    }
    for (; place < part; place++)
        if (bytes[place] != (char)pattern_at(place, seed)) return 0;
    return 1;
}
#endif
