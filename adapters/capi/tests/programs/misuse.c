/* Makes one wrong call, which the argument names, between two lines of output. */
#include "check.h"

#include <pthread.h>
#include <sys/mman.h>

static char in_the_program[64] __attribute__((aligned(64)));

/* Allocates and frees blocks of the same size until a block freed twice has returned to its span. */
static void churn(size_t size) {
    static void *blocks[20000];
    for (int i = 0; i < 20000; i++) blocks[i] = malloc(size);
    for (int i = 0; i < 20000; i++) free(blocks[i]);
    malloc_trim(0);
}

static void *frees(void *block) {
    free(block);
    return NULL;
}

static void twice(size_t size) {
    void *block = malloc(size), *neighbour = malloc(size);
    free(block);
    free(block);
    churn(size);
    free(neighbour);
}

int main(int count, char **arguments) {
    begin();
    const char *kind = count > 1 ? arguments[1] : "";
    char on_stack[256] __attribute__((aligned(64))) = {0}, *block = malloc(1000), *large = malloc(3 << 20);
    char *mapped = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_t thread;
    puts("before");
    if (strcmp(kind, "stack") == 0) free(on_stack + 64);
    else if (strcmp(kind, "static") == 0) free(in_the_program);
    else if (strcmp(kind, "mapped") == 0) free(mapped + 4096);
    else if (strcmp(kind, "wild") == 0) free((void *)0x7123456789a0);
    else if (strcmp(kind, "realloc-stack") == 0) free(realloc(on_stack + 64, 100));
    else if (strcmp(kind, "unaligned") == 0) free(block + 1), churn(1000);
    else if (strcmp(kind, "inside") == 0) free(block + 16), churn(1000);
    else if (strcmp(kind, "inside-large") == 0) free(large + 8192);
    else if (strcmp(kind, "twice") == 0) twice(1000);
    else if (strcmp(kind, "twice-small") == 0) twice(24);
    else if (strcmp(kind, "twice-large") == 0) twice(3 << 20);
    else if (strcmp(kind, "twice-elsewhere") == 0) {
        pthread_create(&thread, NULL, frees, block);
        pthread_join(thread, NULL);
        free(block);
        churn(1000);
    } else if (strcmp(kind, "none") != 0) die("no such mistake");
    puts("after");
    free(large);
    return 0;
}
