/* Out of memory: allocates blocks of one size until a request fails; then every kind of call must fail as documented and
 * change nothing; then frees all, and the next size must find the memory. Argument: megabytes, if no `ulimit -v` is set. */
#include "limits.h"
#include "shadow.h"

#include <pthread.h>
#include <stdbool.h>

/* Lists that link the blocks themselves, since there is no other memory. */
struct link {
    struct link *next;
    uint64_t seed;
};

static struct link *push(struct link *list, size_t size) {
    struct link *link = malloc(size);
    if (!link) return NULL;
    link->next = list;
    link->seed = (uintptr_t)link ^ size;
    char *rest = (char *)(link + 1);
    fill(rest, size - sizeof *link, link->seed);
    return link;
}

/* Checks and frees every `step`-th block; returns the list of the others. */
static struct link *thin_out(struct link *list, size_t size, unsigned long step, bool *whole) {
    struct link *kept = NULL, *next;
    unsigned long count = 0;
    for (; list; list = next) {
        next = list->next;
        *whole &= list->seed == ((uintptr_t)list ^ size) && holds(list + 1, size - sizeof *list, size - sizeof *list, list->seed);
        if (++count % step == 0) free(list);
        else list->next = kept, kept = list;
    }
    return kept;
}

static bool failing_calls(void) {
    bool good = true;
    char *old = malloc(24);
    if (old) memcpy(old, "what was there before...", 24);
    size_t size = hide((size_t)allowance);
    void *posix = NULL;
    good &= !malloc(size) && errno == ENOMEM;
    errno = 0;
    good &= !calloc(1, size) && errno == ENOMEM;
    errno = 0;
    good &= !memalign(4096, size) && errno == ENOMEM;
    good &= posix_memalign(&posix, 64, size) == ENOMEM && !posix;
    errno = 0;
    if (old) good &= !realloc(old, size) && errno == ENOMEM && memcmp(old, "what was there before...", 24) == 0;
    free(old);
    return good;
}

static void until_no_more(size_t size, const char *words) {
    struct link *list = NULL, *link;
    size_t bytes = 0, count = 0;
    bool whole = true;
    errno = 0;
    while ((link = push(list, size)) != NULL) list = link, bytes += size, count++;
    int error = errno;
    bool failing = failing_calls();
    printf("%s\n", words);
    if (!CHECK(bytes >= allowance / 10 * 8, "  at least 80 % of the allowance was given"))
        printf("# %zu of %zu bytes\n", bytes, allowance);
    CHECK(error == ENOMEM, "  the last call set ENOMEM");
    CHECK(failing, "  calloc, memalign and realloc fail too, and the old block stays");
    list = thin_out(list, size, 2, &whole);
    size_t again = 0; /* half is free, so a quarter must succeed */
    while (again < count / 4 && (link = push(list, size)) != NULL) list = link, again++;
    CHECK(again == count / 4, "  half of it freed: blocks are given again");
    while (list) list = thin_out(list, size, 1, &whole);
    CHECK(whole, "  every block held what was written");
}

/* Threads that allocate until a request fails, in rounds; started while there is memory for their stacks. */
enum { thread_count = 3, rounds = 3 };
static pthread_barrier_t barrier;

static void *thread(void *argument) {
    for (int round = 0; round < rounds; round++) {
        struct link *list = NULL, *link;
        bool whole = true;
        pthread_barrier_wait(&barrier);
        while ((link = push(list, 3000)) != NULL) list = link;
        while (list) list = thin_out(list, 3000, 1, &whole);
        if (!whole) die("a block of a thread that ran out of memory was overwritten");
    }
    return argument;
}

static void start_threads(pthread_t *threads) {
    pthread_attr_t small; /* stacks of 8 MiB would count against the limit */
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 << 10);
    pthread_barrier_init(&barrier, NULL, thread_count + 1);
    for (int i = 0; i < thread_count; i++)
        if (pthread_create(&threads[i], &small, thread, NULL)) die("a thread cannot start");
}

static void in_threads(pthread_t *threads) {
    for (int round = 0; round < rounds; round++) pthread_barrier_wait(&barrier);
    for (int i = 0; i < thread_count; i++) pthread_join(threads[i], NULL);
    reached("threads that run out of memory together");
}

static void as_before(void) {
    static struct shadow shadow;
    shadow_start(&shadow, 1, (size_t)256 << 10);
    for (int call = 0; call < 50000; call++) shadow_step(&shadow);
    shadow_drain(&shadow);
    CHECK(shadow.done > 15000, "afterwards everything works again");
    malloc_trim(0);
    void *large[7];
    size_t given = 0;
    while (given < 7 && (large[given] = malloc(allowance / 10)) != NULL) given++;
    CHECK(given == 7, "seven large blocks, 70 % of the allowance together, fit again");
    while (given > 0) free(large[--given]);
}

int main(int count, char **arguments) {
    begin();
    pthread_t threads[thread_count];
    start_threads(threads);
    limit_to(count > 1 ? strtoul(arguments[1], NULL, 10) : 200);
    until_no_more(100, "blocks of 100 B");
    until_no_more(10 << 10, "blocks of 10 KiB");
    until_no_more(1 << 20, "blocks of 1 MiB");
    until_no_more(100, "blocks of 100 B again");
    in_threads(threads);
    as_before();
    return finish();
}
