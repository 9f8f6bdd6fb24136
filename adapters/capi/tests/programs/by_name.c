/* A program that keeps its own malloc and loads the library with RTLD_LOCAL, after a plugin that took most of the reserve for
 * thread-local variables. Threads that called the library end after it was closed.
 * Arguments: the library, the greedy plugin. */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

static void *(*their_malloc)(size_t), *(*their_calloc)(size_t, size_t), *(*their_realloc)(void *, size_t);
static void (*their_free)(void *);
static atomic_int at_work;
static atomic_bool closed;

static bool use(uint64_t seed) {
    bool good = true;
    for (size_t size = 1; size < 2000000; size = size * 3 / 2 + 1) {
        void *ours = malloc(size), *theirs = their_malloc(size), *zero = their_calloc(1, size);
        good &= ours && theirs && zero && (size < 16 || (uintptr_t)theirs % 16 == 0) && is_zero(zero, size);
        fill(ours, size, seed), fill(theirs, size, seed + 1), fill(zero, size, seed + 2);
        theirs = their_realloc(theirs, size * 2);
        good &= holds(ours, size, size, seed) && holds(theirs, size, size, seed + 1) && holds(zero, size, size, seed + 2);
        free(ours), their_free(theirs), their_free(zero);
    }
    return good;
}

static void *user(void *argument) {
    bool good = use((uintptr_t)argument * 1000);
    atomic_fetch_add(&at_work, 1);
    while (!atomic_load(&closed)) usleep(1000);
    return (void *)(uintptr_t)good;
}

int main(int count, char **arguments) {
    begin();
    if (count < 3) die("arguments: the library, the greedy plugin");
    void *greedy = dlopen(arguments[2], RTLD_NOW | RTLD_LOCAL);
    if (!greedy) puts("# the greedy plugin does not fit here");
    void *library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (!CHECK(library != NULL, "the library is loaded by dlopen")) {
        puts(dlerror());
        return finish();
    }
    *(void **)&their_malloc = dlsym(library, "malloc"), *(void **)&their_calloc = dlsym(library, "calloc");
    *(void **)&their_realloc = dlsym(library, "realloc"), *(void **)&their_free = dlsym(library, "free");
    if (!CHECK(their_malloc && their_calloc && their_realloc && their_free, "dlsym finds its functions")) return finish();
    CHECK((void *)their_malloc != dlsym(RTLD_DEFAULT, "malloc"), "the program's own malloc is another one");
    CHECK(use(1), "both allocators work beside each other");
    pthread_t threads[4];
    bool good = true;
    for (uintptr_t i = 0; i < 4; i++) pthread_create(&threads[i], NULL, user, (void *)(i + 1));
    while (atomic_load(&at_work) < 4) usleep(1000);
    CHECK(dlclose(library) == 0, "dlclose");
    atomic_store(&closed, true);
    for (int i = 0; i < 4; i++) {
        void *answer;
        pthread_join(threads[i], &answer);
        good &= answer != NULL;
    }
    CHECK(good, "threads that used it end after it was closed");
    library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    *(void **)&their_malloc = library ? dlsym(library, "malloc") : NULL;
    CHECK(their_malloc != NULL, "the library is loaded again");
    free(malloc(10));
    return finish();
}
