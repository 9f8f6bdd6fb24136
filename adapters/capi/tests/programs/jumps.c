/* A handler that allocates, frees and leaves by siglongjmp, thousands of times. Only the block of the interrupted call may
 * leak. Arguments: jumps; "outside": the handler returns at once if it interrupted the allocator, as POSIX requires. */
#include "check.h"

#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/time.h>

#define MOST_SECONDS 40.0
enum { slot_count = 200 };

/* At any moment a slot is empty or names a complete block. */
static struct slot {
    char *volatile at;
    volatile size_t size;
    volatile uint64_t seed;
} slots[slot_count];

static sigjmp_buf back;
static volatile sig_atomic_t inside, jumps, ready;
static bool only_outside;
static uint64_t seeds;

static void handler(int signal) {
    if (!ready || (only_outside && inside)) return;
    char *a = malloc(60 + (size_t)signal), *b = calloc(1, 3000), *c = malloc(40000);
    if (!a || !b || !c || !is_zero(b, 3000)) die("no memory in a handler, or not zero");
    fill(a, 60, 1), fill(b, 3000, 2), fill(c, 40000, 3);
    if (!holds(a, 60, 60, 1) || !holds(b, 3000, 3000, 2) || !holds(c, 40000, 40000, 3)) die("a handler's block was overwritten");
    free(a), free(c), free(b);
    ready = 0;
    jumps++;
    siglongjmp(back, 1);
}

static void step(uint64_t *random) {
    uint64_t draw = next_random(random);
    struct slot *slot = &slots[draw % slot_count];
    char *at = slot->at;
    if (at) {
        if (!holds(at, slot->size, slot->size, slot->seed)) die("a block was overwritten while it was live");
        slot->at = NULL; /* first: the handler may jump out of free */
    }
    size_t size = 1 + (draw >> 20) % (draw % 50 ? 600 : 100000);
    inside = 1;
    if (at && draw % 3 == 0) at = realloc(at, size);
    else free(at), at = draw % 2 ? malloc(size) : calloc(1, size);
    inside = 0;
    if (!at) return; /* out of memory: not tested here */
    uint64_t seed = ++seeds;
    fill(at, size, seed);
    slot->size = size;
    slot->seed = seed;
    slot->at = at;
}

int main(int count, char **arguments) {
    begin();
    int wanted = count > 1 ? atoi(arguments[1]) : 5000;
    only_outside = count > 2 && strcmp(arguments[2], "outside") == 0;
    static uint64_t random = 5;
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval every = {{0, 120}, {0, 120}}, none = {{0, 0}, {0, 0}};
    static double start;
    start = now();
    sigsetjmp(back, 1);
    inside = 0;
    ready = 1;
    setitimer(ITIMER_REAL, &every, NULL);
    while (jumps < wanted && now() - start < MOST_SECONDS)
        for (int i = 0; i < 100; i++) step(&random);
    ready = 0;
    setitimer(ITIMER_REAL, &none, NULL);
    for (int i = 0; i < slot_count; i++) free(slots[i].at);
    CHECK(jumps > 500, "handlers left by siglongjmp");
    CHECK(seeds > 10000, "and the program went on");
    return finish();
}
