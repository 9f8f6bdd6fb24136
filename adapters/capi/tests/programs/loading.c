/* Loads and unloads a plugin again and again. Some threads call it in between, others never do. Arguments: the plugin,
 * rounds. */
#include "shadow.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef void *work_function(int);
typedef void end_function(void);

static atomic_bool stop;
static work_function *work;
static end_function *end;

static void *load_beside(void *argument) {
    static struct shadow shadow;
    shadow_start(&shadow, 3, (size_t)64 << 10);
    while (!atomic_load(&stop)) shadow_step(&shadow);
    shadow_drain(&shadow);
    return argument;
}

static void *caller(void *round) {
    void *kept = NULL;
    for (int i = 0; i < 5; i++) {
        free(kept);
        kept = work((int)(intptr_t)round + i);
    }
    end();
    return kept;
}

static bool filled(const char *block, int value) {
    for (int i = 0; i < 600; i++)
        if (block[i] != (char)value) return false;
    return true;
}

int main(int count, char **arguments) {
    begin();
    if (count < 3) die("arguments: the plugin, rounds");
    pthread_t beside, threads[2];
    pthread_create(&beside, NULL, load_beside, NULL);
    bool loaded = true, kept = true;
    int rounds = atoi(arguments[2]);
    for (int round = 0; round < rounds && loaded; round++) {
        void *handle = dlopen(arguments[1], round % 2 ? RTLD_NOW : RTLD_LAZY | RTLD_GLOBAL), *blocks[3];
        loaded = handle && (*(void **)&work = dlsym(handle, "plugin_work")) && (*(void **)&end = dlsym(handle, "plugin_end_of_thread"));
        if (!loaded) break;
        for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, caller, (void *)(intptr_t)round);
        blocks[2] = caller((void *)(intptr_t)round);
        for (int i = 0; i < 2; i++) pthread_join(threads[i], &blocks[i]);
        loaded = dlclose(handle) == 0;
        for (int i = 0; i < 3; i++) {
            kept &= filled(blocks[i], round + 4);
            free(blocks[i]);
        }
    }
    atomic_store(&stop, true);
    pthread_join(beside, NULL);
    CHECK(loaded, "the plugin was loaded, called and unloaded in every round");
    CHECK(kept, "blocks of the plugin outlive it");
    return finish();
}
