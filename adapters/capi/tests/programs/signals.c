/* A storm of signals whose handlers allocate and free, while three threads run random sequences of calls.
 * Arguments: handlers to run; "outside": a handler that interrupted the allocator does not call it, as POSIX requires. */
#include "shadow.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <sys/time.h>

/* The storm ends after this time, also on a slow machine. */
#define MOST_SECONDS 40.0

static bool only_outside;
static __thread volatile sig_atomic_t inside; /* whether this thread is in a call of the allocator, or about to call it */
static atomic_ulong handled, hits, next_seed = 1;
static atomic_bool stop;

/* A block that one handler allocates and a later one frees, perhaps on another thread. */
struct kept {
    size_t size;
    uint64_t seed;
    char bytes[];
};
static _Atomic(struct kept *) shelf[64];

static struct kept *take(size_t size, unsigned kind) {
    struct kept *block = NULL;
    if (kind == 0) block = malloc(sizeof *block + size);
    else if (kind == 1) block = calloc(1, sizeof *block + size);
    else if (kind == 2) block = realloc(malloc(16), sizeof *block + size);
    else if (posix_memalign((void **)&block, 64, sizeof *block + size)) block = NULL;
    if (!block) die("no memory in a handler");
    *block = (struct kept){size, atomic_fetch_add(&next_seed, 1) << 8 | 1};
    fill(block->bytes, size, block->seed);
    return block;
}

static void give(struct kept *block) {
    if (!block) return;
    if (!holds(block->bytes, block->size, block->size, block->seed)) die("a handler's block was overwritten");
    free(block);
}

static void handler(int signal) {
    int saved = errno;
    atomic_fetch_add_explicit(&handled, 1, memory_order_relaxed);
    if (inside) atomic_fetch_add_explicit(&hits, 1, memory_order_relaxed);
    if (!only_outside || !inside) {
        uint64_t random = (atomic_fetch_add(&next_seed, 1) + (uint64_t)signal) * 0x9E3779B97F4A7C15ull | 1;
        struct kept *blocks[5];
        unsigned count = 1 + (unsigned)(next_random(&random) % 5);
        sig_atomic_t before = inside;
        inside = 1; /* the same signal, or another one, may interrupt this handler */
        for (unsigned i = 0; i < count; i++)
            blocks[i] = take(next_random(&random) % (i == 4 ? 60000 : 400), (unsigned)(next_random(&random) % 4));
        for (unsigned i = count; i-- > 1;) give(blocks[i]); /* all but one, last allocated first */
        give(atomic_exchange(&shelf[next_random(&random) % 64], blocks[0]));
        inside = before;
    }
    errno = saved;
}

static timer_t timer_of_this_thread(void) {
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    struct itimerspec every = {{0, 170000}, {0, 170000}};
    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &every, NULL)) die("no timer");
    return timer;
}

static void *worker(void *argument) {
    static struct shadow shadows[3];
    struct shadow *shadow = &shadows[(uintptr_t)argument];
    shadow_start(shadow, (uintptr_t)argument + 1, (size_t)128 << 10);
    timer_t timer = timer_of_this_thread();
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        inside = 1;
        shadow_step(shadow);
        inside = 0;
    }
    timer_delete(timer);
    inside = 1;
    shadow_drain(shadow);
    return NULL;
}

static void *watch(void *wanted) {
    double start = now();
    while (atomic_load(&handled) < (uintptr_t)wanted && now() - start < MOST_SECONDS) usleep(5000);
    atomic_store(&stop, true);
    return NULL;
}

int main(int count, char **arguments) {
    begin();
    uintptr_t wanted = count > 1 ? strtoul(arguments[1], NULL, 10) : 30000;
    only_outside = count > 2 && strcmp(arguments[2], "outside") == 0;
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, nested = {.sa_handler = handler, .sa_flags = SA_RESTART | SA_NODEFER};
    sigaction(SIGALRM, &action, NULL), sigaction(SIGUSR1, &nested, NULL), signal(SIGPROF, handler);
    pthread_t threads[3];
    inside = 1;
    pthread_create(&threads[2], NULL, watch, (void *)wanted);
    for (uintptr_t i = 0; i < 2; i++) pthread_create(&threads[i], NULL, worker, (void *)(i + 1));
    struct itimerval real = {{0, 110}, {0, 110}}, profile = {{0, 4000}, {0, 4000}}, none = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &real, NULL), setitimer(ITIMER_PROF, &profile, NULL);
    worker((void *)0);
    setitimer(ITIMER_REAL, &none, NULL), setitimer(ITIMER_PROF, &none, NULL);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 64; i++) give(atomic_exchange(&shelf[i], NULL));
    CHECK(handled > 1000, "handlers ran");
    CHECK(hits > 0, "also where they interrupted a call");
    return finish();
}
