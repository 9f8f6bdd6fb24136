/* Blocks that are never freed, from two functions and two threads, among many that are: the list at the end must name each group. */
#include "check.h"

#include <pthread.h>
#include <stdlib.h>

static void *volatile kept;

__attribute__((noinline)) void loses_small(void) {
    kept = malloc(100);
}

__attribute__((noinline)) void loses_large(void) {
    kept = calloc(1, 3 << 20);
}

static __attribute__((noinline)) void *other(void *unused) {
    for (int i = 0; i < 20000; i++) {
        void *block = malloc(i % 5000);
        if (i % 100 == 0) loses_small();
        block = realloc(block, i % 9000 + 1);
        free(block);
    }
    return unused;
}

int main(void) {
    begin();
    pthread_t thread;
    CHECK(pthread_create(&thread, 0, other, 0) == 0, "a thread starts");
    other(0);
    loses_large();
    CHECK(pthread_join(thread, 0) == 0, "the thread ends");
    return finish();
}
