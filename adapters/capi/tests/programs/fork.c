/* fork while threads allocate. The child allocates and frees blocks of every class, checks the blocks it inherited, starts
 * threads and may fork again; it must end with status 0. Handlers of pthread_atfork call malloc meanwhile.
 * Arguments: forks in all. */
#include "shadow.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>

/* The time after which a child counts as hanging; it needs a few milliseconds. */
#define CHILD_SECONDS 20
enum { thread_count = 4 };

static atomic_bool stop;
static struct shadow own;
static void *early_block, *late_block;

static void churn_in_handler(void **block, uint64_t seed) {
    void *many[12];
    for (int i = 0; i < 12; i++) many[i] = malloc((size_t)20 << i);
    for (int i = 0; i < 12; i++) free(many[i]);
    if (*block && !holds(*block, 400, 400, seed)) die("a block of an atfork handler was overwritten");
    free(*block);
    *block = malloc(400);
    fill(*block, 400, seed);
}
static void early(void) { churn_in_handler(&early_block, 11); }
static void late(void) { churn_in_handler(&late_block, 12); }

/* Registered before main: next to the allocator's own handlers. */
__attribute__((constructor)) static void register_early(void) { pthread_atfork(early, early, early); }

static void *load(void *argument) {
    struct shadow *shadow = calloc(1, sizeof *shadow);
    shadow_start(shadow, (uintptr_t)argument, (size_t)128 << 10);
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) shadow_step(shadow);
    shadow_drain(shadow);
    free(shadow);
    return NULL;
}

/* Passes blocks to the next thread, which frees them: so a fork meets remote frees under way. */
static _Atomic(void *) handover[64];
static void *cross(void *argument) {
    uint64_t random = (uintptr_t)argument;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        size_t size = 8 + next_random(&random) % 1000;
        free(atomic_exchange(&handover[random % 64], malloc(size)));
    }
    return NULL;
}

static void *in_child(void *argument) {
    struct shadow *shadow = calloc(1, sizeof *shadow);
    shadow_start(shadow, (uintptr_t)argument + 50, (size_t)128 << 10);
    for (int call = 0; call < 1500; call++) shadow_step(shadow);
    shadow_drain(shadow);
    free(shadow);
    return NULL;
}

static int every_class(void) {
    for (size_t size = 1; size < 400000; size += 1 + size / 8) { /* two blocks of every class */
        void *a = malloc(size), *b = calloc(1, size);
        if (!a || !b || !is_zero(b, size)) return 4;
        fill(a, size, size), fill(b, size, size + 1);
        if (!holds(a, size, size, size)) return 5;
        free(a), free(b);
    }
    free(memset(malloc(4 << 20), 1, 4 << 20));
    return 0;
}

static int child(int number) {
    alarm(CHILD_SECONDS);
    int answer = every_class();
    if (answer) return answer;
    for (int slot = 0; slot < 64; slot++) free(atomic_exchange(&handover[slot], NULL));
    for (int call = 0; call < 500; call++) shadow_step(&own); /* continues the parent's sequence from the fork on */
    shadow_drain(&own);
    malloc_trim(0);
    pthread_t threads[2];
    int started = number % 4 == 0 ? 2 : 0;
    for (int i = 0; i < started; i++)
        if (pthread_create(&threads[i], NULL, in_child, (void *)(uintptr_t)i)) return 6;
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    if (number % 10 == 0) {
        int status = 0;
        pid_t grandchild = fork();
        if (grandchild == 0) {
            free(malloc(1000));
            _exit(0);
        }
        if (waitpid(grandchild, &status, 0) != grandchild || status != 0) return 7;
    }
    return 0;
}

int main(int count, char **arguments) {
    begin();
    int forks = count > 1 ? atoi(arguments[1]) : 300, stuck = 0, bad = 0;
    pthread_atfork(late, late, late);
    shadow_start(&own, 9, (size_t)128 << 10);
    pthread_t threads[thread_count];
    for (uintptr_t i = 0; i < thread_count; i++) pthread_create(&threads[i], NULL, i % 2 ? cross : load, (void *)(i + 1));
    for (int number = 0; number < forks; number++) {
        for (int call = 0; call < 50; call++) shadow_step(&own);
        pid_t pid = fork();
        if (pid == 0) {
            int answer = child(number);
            if (number % 2) exit(answer); /* with the handlers of exit, or without */
            _exit(answer);
        }
        int status = 0;
        if (pid < 0 || waitpid(pid, &status, 0) != pid) die("fork or waitpid failed");
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) stuck++;
        else if (status != 0) bad++, printf("child %d: wait status %#x\n", number, (unsigned)status);
        if (stuck + bad > 5) break;
    }
    atomic_store(&stop, true);
    for (int i = 0; i < thread_count; i++) pthread_join(threads[i], NULL);
    for (int slot = 0; slot < 64; slot++) free(handover[slot]);
    shadow_drain(&own);
    if (stuck) printf("stuck children: %d\n", stuck);
    CHECK(stuck == 0, "no child was stuck");
    CHECK(bad == 0, "every child ended with status 0");
    return finish();
}
