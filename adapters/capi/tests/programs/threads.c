/* Short-lived threads, blocks that another thread frees, frees while a thread ends.
 * Arguments: short threads in all. */
#include "shadow.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct parcel {
    void *at;
    size_t size;
    uint64_t seed;
};

static void *take(size_t size, uint64_t seed) {
    void *at = malloc(size);
    if (!at) die("no memory");
    fill(at, size, seed);
    return at;
}

static void give(struct parcel parcel, const char *words) {
    if (parcel.at && !holds(parcel.at, parcel.size, parcel.size, parcel.seed)) die(words);
    free(parcel.at);
}

/* A mailbox for each pair of threads. The thread that filled it may have ended. */
static pthread_mutex_t mailbox_lock = PTHREAD_MUTEX_INITIALIZER;
static struct parcel mailbox[256];

static struct parcel swap(unsigned slot, struct parcel mine) {
    pthread_mutex_lock(&mailbox_lock);
    struct parcel other = mailbox[slot];
    mailbox[slot] = mine;
    pthread_mutex_unlock(&mailbox_lock);
    return other;
}

static void *short_life(void *argument) {
    uint64_t name = (uintptr_t)argument, random = name * 77 + 1;
    struct parcel mine[24];
    for (unsigned i = 0; i < 24; i++) {
        uint64_t seed = name << 20 | i;
        size_t size = 1 + next_random(&random) % (i % 12 ? 300 : 20000);
        mine[i] = (struct parcel){take(size, seed), size, seed};
    }
    for (unsigned i = 0; i < 24; i++) {
        if (i % 3 == 0) give(swap((unsigned)(next_random(&random) % 256), mine[i]), "a parcel of another thread was overwritten");
        else give(mine[i], "a thread's own block was overwritten");
    }
    return NULL;
}

static void churn(unsigned long threads) {
    enum { together = 8 };
    pthread_t running[together];
    for (unsigned long name = 0; name < threads; name++) {
        if (name >= together) pthread_join(running[name % together], NULL);
        if (pthread_create(&running[name % together], NULL, short_life, (void *)(name + 1))) die("a thread cannot start");
    }
    for (int i = 0; i < together; i++) pthread_join(running[i], NULL);
    for (unsigned slot = 0; slot < 256; slot++) give(swap(slot, (struct parcel){0}), "a parcel left over was overwritten");
    reached("short threads, a third of their blocks freed by others");
}

/* Rings of one producer and one consumer each: thread i sends blocks to thread i + 1, which frees them. */
enum { ring_threads = 4, ring_length = 1024, ring_parcels = 150000 };
static struct ring {
    struct parcel parcels[ring_length];
    _Alignas(64) atomic_uint written;
    _Alignas(64) atomic_uint read;
} rings[ring_threads];

static bool send(struct ring *ring, uint64_t *random, uint64_t seed) {
    unsigned written = atomic_load_explicit(&ring->written, memory_order_relaxed);
    if (written - atomic_load_explicit(&ring->read, memory_order_acquire) == ring_length) return false;
    size_t size = 1 + next_random(random) % (seed % 64 ? 500 : 100000);
    ring->parcels[written % ring_length] = (struct parcel){take(size, seed), size, seed};
    atomic_store_explicit(&ring->written, written + 1, memory_order_release);
    return true;
}

static bool receive(struct ring *ring) {
    unsigned read = atomic_load_explicit(&ring->read, memory_order_relaxed);
    if (read == atomic_load_explicit(&ring->written, memory_order_acquire)) return false;
    struct parcel parcel = ring->parcels[read % ring_length];
    atomic_store_explicit(&ring->read, read + 1, memory_order_release);
    if (parcel.seed % 5 == 0) { /* resized by another thread than allocated it */
        parcel.at = realloc(parcel.at, parcel.size + 40);
        if (!parcel.at) die("no memory");
    }
    give(parcel, "a parcel in a ring was overwritten");
    return true;
}

static void *member(void *argument) {
    unsigned name = (unsigned)(uintptr_t)argument, sent = 0, received = 0;
    uint64_t random = name + 99;
    while (sent < ring_parcels || received < ring_parcels) {
        bool moved = false;
        if (sent < ring_parcels && send(&rings[name], &random, (uint64_t)(name + 1) << 32 | sent)) sent++, moved = true;
        if (received < ring_parcels && receive(&rings[(name + 1) % ring_threads])) received++, moved = true;
        if (!moved) sched_yield();
    }
    return NULL;
}

static void producers_and_consumers(void) {
    pthread_t threads[ring_threads];
    for (uintptr_t i = 0; i < ring_threads; i++) pthread_create(&threads[i], NULL, member, (void *)i);
    for (int i = 0; i < ring_threads; i++) pthread_join(threads[i], NULL);
    reached("producers and consumers in a ring");
}

/* Destructors of keys run in rounds as long as they set their key again: in the last round the allocator's own destructor has
 * run, whichever key was created first. */
#define ROUNDS 4 /* PTHREAD_DESTRUCTOR_ITERATIONS of this system */
static pthread_key_t keys[3];
static atomic_int rounds[3], late;

static void last_words(unsigned which, void *value) {
    int round = atomic_fetch_add(&rounds[which], 1) % ROUNDS;
    struct parcel fresh = {take(700, which + 1), 700, which + 1}, kept = {value, 100, 42};
    give(kept, "a block freed by a key's destructor was overwritten");
    give(fresh, "a block of a key's destructor was overwritten");
    free(calloc(1, 300000));
    if (round == ROUNDS - 1) atomic_fetch_add(&late, 1);
    pthread_setspecific(keys[which], round < ROUNDS - 1 ? take(100, 42) : NULL);
}
static void first_key(void *value) { last_words(0, value); }
static void second_key(void *value) { last_words(1, value); }
static void third_key(void *value) { last_words(2, value); }

struct first_values {
    bool early_call; /* otherwise the thread's first call comes from a destructor */
    void *values[3]; /* allocated by main */
};

static void *with_keys(void *argument) {
    struct first_values *first = argument;
    if (first->early_call) free(take(50, 1));
    for (int i = 0; i < 3; i++) pthread_setspecific(keys[i], first->values[i]);
    return NULL;
}

static void keys_of_threads(void) {
    void (*const destructors[])(void *) = {first_key, second_key, third_key};
    for (int i = 0; i < 3; i++) pthread_key_create(&keys[i], destructors[i]);
    for (int i = 0; i < 300; i++) {
        pthread_t thread;
        struct first_values first = {i % 2, {take(100, 42), take(100, 42), take(100, 42)}};
        if (pthread_create(&thread, NULL, with_keys, &first)) die("a thread cannot start");
        pthread_join(thread, NULL);
    }
    CHECK(rounds[0] == 300 * ROUNDS && rounds[2] == rounds[0], "every destructor ran in every round");
    CHECK(late == 900, "calls in the last round of destructors");
}

static void *one_shadow(void *argument) {
    static struct shadow shadows[4];
    struct shadow *shadow = &shadows[(uintptr_t)argument];
    shadow_start(shadow, (uintptr_t)argument + 1, (size_t)256 << 10);
    for (int call = 0; call < 200000; call++) shadow_step(shadow);
    if ((uintptr_t)argument % 2) shadow_drain(shadow); /* the others leave their blocks to main */
    return shadow;
}

static void shadows(void) {
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) pthread_create(&threads[i], NULL, one_shadow, (void *)i);
    for (int i = 0; i < 4; i++) {
        void *shadow;
        pthread_join(threads[i], &shadow);
        shadow_drain(shadow);
    }
    reached("random sequences in four threads, drained by main");
}

int main(int count, char **arguments) {
    begin();
#ifndef __SANITIZE_THREAD__ /* which destroys its own records in the last round */
    keys_of_threads();
#endif
    churn(count > 1 ? strtoul(arguments[1], NULL, 10) : 10000);
    producers_and_consumers();
    shadows();
    return finish();
}
