/* A plugin that allocates and frees blocks when it is loaded, called and unloaded, and keeps some in a thread-local variable.
 * EATER: the bytes of thread-local variables that it has besides. */
#include <stdlib.h>
#include <string.h>

#ifdef EATER
__attribute__((tls_model("initial-exec"))) _Thread_local char eaten[EATER];
void *plugin_work(int round) {
    eaten[round % EATER] = 1;
    return malloc(100 + (size_t)eaten[0]);
}
#else
static char *from_constructor;
static _Thread_local char *of_thread;

__attribute__((constructor)) static void loaded(void) {
    from_constructor = malloc(5000);
    memset(from_constructor, 7, 5000);
}

__attribute__((destructor)) static void unloaded(void) {
    if (from_constructor[4999] != 7) abort();
    free(from_constructor);
    free(malloc(70000));
}

/* Returns a block of 600 bytes, which the caller frees, perhaps after the plugin was unloaded. */
void *plugin_work(int round) {
    of_thread = realloc(of_thread, 100 + (size_t)round % 50 * 40);
    memset(of_thread, round, 100);
    for (size_t size = 8; size < 100000; size *= 2) {
        char *block = calloc(1, size);
        if (block[size - 1] != 0) abort();
        block[size - 1] = 1;
        free(block);
    }
    return memset(malloc(600), round, 600);
}

void plugin_end_of_thread(void) {
    free(of_thread);
    of_thread = NULL;
}
#endif
