/* Every function of terrace.h, from C, on a computer. Prints each check that fails; the exit code is their number. */
#include "terrace.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static int failed;
#define CHECK(what) ((what) ? (void)0 : (void)(failed++, printf("FAILED line %d: %s\n", __LINE__, #what)))

static _Alignas(16) unsigned char arena[64 * 1024], more[32 * 1024], third[4096], fourth[4096], fifth[4096];
static int calls, refusals;
static void *cached, *last_refused;

#ifdef OWN_LOCK
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned long locks;
uintptr_t terrace_lock(void) {
    pthread_mutex_lock(&mutex);
    locks++;
    return 0x1234;
}
void terrace_unlock(uintptr_t state) {
    CHECK(state == 0x1234);
    pthread_mutex_unlock(&mutex);
}

static void *churn(void *seed) {
    unsigned char fill = (unsigned char)(uintptr_t)seed, *live[20] = {0};
    size_t sizes[20] = {0};
    unsigned random = fill + 1;
    for (int i = 0; i < 20000; i++) {
        random = random * 1664525u + 1013904223u;
        size_t size = 1 + (random >> 8) % 300, at = (random >> 20) % 20, same = sizes[at] < size ? sizes[at] : size;
        unsigned char *block = terrace_realloc(live[at], size);
        if (!block) return "no room";
        for (size_t byte = 0; byte < same; byte++)
            if (block[byte] != fill) return "another thread's byte";
        memset(block, fill, size);
        live[at] = block;
        sizes[at] = size;
    }
    for (int at = 0; at < 20; at++) terrace_free_sized(live[at], sizes[at]);
    return NULL;
}

static void threads(void) {
    pthread_t thread[3];
    for (uintptr_t i = 0; i < 3; i++) pthread_create(&thread[i], NULL, churn, (void *)(i + 7));
    for (int i = 0; i < 3; i++) {
        void *complaint;
        pthread_join(thread[i], &complaint);
        CHECK(complaint == NULL);
    }
    CHECK(locks > 60000);
}
#else
static void threads(void) {
    CHECK(terrace_lock() == 0); /* the library's own */
    terrace_unlock(0);
}
#endif

static int make_room(size_t bytes, size_t align) {
    CHECK(bytes == 100000 - 64 && align == 64);
    calls++;
    CHECK(terrace_malloc(1 << 20) == NULL); /* does not call this hook again */
    terrace_free(cached);
    cached = NULL;
    return 1;
}

static void refused(void *block) {
    refusals++;
    last_refused = block;
}

static void init_and_its_mistakes(void) {
    CHECK(terrace_malloc(1) == NULL);
    CHECK(terrace_init(NULL, 1000) == TERRACE_NULL);
    CHECK(terrace_init(arena, 16) == TERRACE_TOO_SMALL);
    CHECK(terrace_init(arena, sizeof arena) == TERRACE_OK);
    CHECK(terrace_init(more, sizeof more) == TERRACE_AGAIN);
    CHECK(terrace_add_region(arena + 100, 1000) == TERRACE_OVERLAPS);
    CHECK(terrace_add_region(arena - ((size_t)1 << 40), (size_t)1 << 39) == TERRACE_TOO_LARGE);
    CHECK(terrace_add_region(more, sizeof more) == TERRACE_OK);
    CHECK(terrace_add_region_with(third, sizeof third, TERRACE_DMA) == TERRACE_OK);
    CHECK(terrace_add_region_with(fourth, sizeof fourth, TERRACE_EXTERNAL | TERRACE_USER(23)) == TERRACE_OK);
    CHECK(terrace_add_region(fifth, sizeof fifth) == TERRACE_TOO_MANY);
}

static void blocks(void) {
    unsigned char *a = terrace_malloc(100), *b = terrace_calloc(50, 2), *none = terrace_malloc(0);
    CHECK(a && b && none && a != b && none != a && none != b);
    CHECK((uintptr_t)a % _Alignof(max_align_t) == 0);
    for (int i = 0; i < 100; i++) CHECK(b[i] == 0);
    memset(a, 7, 100);
    unsigned char *grown = terrace_realloc(a, 4000);
    CHECK(grown);
    for (int i = 0; i < 100; i++) CHECK(grown[i] == 7);
    CHECK(terrace_realloc(grown, 200) == grown);
    CHECK(terrace_realloc(grown, (size_t)-1 / 2) == NULL); /* and unchanged */
    CHECK(terrace_calloc((size_t)-1 / 2, 3) == NULL);
    CHECK(terrace_malloc((size_t)-1) == NULL);
    CHECK(terrace_memalign(0, 8) == NULL && terrace_memalign(24, 8) == NULL);
    unsigned char *page = terrace_memalign(4096, 10);
    CHECK(page && (uintptr_t)page % 4096 == 0);

    struct terrace_stats stats;
    terrace_stats(&stats);
    CHECK(stats.total == sizeof arena + sizeof more + sizeof third + sizeof fourth);
    CHECK(stats.total == stats.tables + stats.live + stats.free);
    CHECK(stats.requested == 200 + 100 + 0 + 10 && stats.live >= stats.requested + 4 * 2 * sizeof(size_t));
    CHECK(stats.peak == 4000 + 100 && stats.allocations - stats.frees == 4);
    CHECK(stats.largest_free <= stats.free && stats.free_blocks >= 4 && stats.refused == 0);
    CHECK(terrace_realloc(grown, 0) == NULL);
    CHECK((a = terrace_realloc(NULL, 30)) != NULL);
    terrace_free(NULL);
    terrace_free(a);
    terrace_free(none);
    terrace_free_sized(b, 100);
    terrace_free(page);
    terrace_stats(NULL);
    terrace_stats(&stats);
    CHECK(stats.live == 0 && stats.requested == 0 && stats.allocations == stats.frees);
    CHECK(terrace_check() == 1);
}

/* Whether a block lies in an array. */
#define IN(block, array) ((unsigned char *)(block) >= (array) && (unsigned char *)(block) < (array) + sizeof(array))

static void capabilities(void) {
    const unsigned mine = TERRACE_USER(23);
    unsigned char *dma = terrace_malloc_with(600, TERRACE_DMA, TERRACE_DMA);
    unsigned char *external = terrace_memalign_with(64, 600, TERRACE_EXTERNAL | mine, TERRACE_DMA);
    CHECK(IN(dma, third) && IN(external, fourth) && (uintptr_t)external % 64 == 0);
    CHECK(terrace_malloc_with(600, TERRACE_DMA | TERRACE_EXTERNAL, TERRACE_INTERNAL) == NULL); /* no region has these */
    CHECK(terrace_malloc_with(8000, TERRACE_DMA, TERRACE_EXTERNAL) == NULL);                   /* no room in either */
    CHECK(terrace_memalign_with(3, 8, TERRACE_ANY, TERRACE_ANY) == NULL);
    unsigned char *fallback = terrace_malloc_with(8000, TERRACE_DMA, TERRACE_ANY);
    CHECK(IN(fallback, arena));
    memset(external, 5, 600);
    CHECK(terrace_realloc_with(external, 8000, TERRACE_DMA, TERRACE_DMA) == NULL); /* and unchanged */
    unsigned char *inside = terrace_realloc_with(external, 2000, TERRACE_DMA, TERRACE_DMA);
    CHECK(IN(inside, fourth)); /* it had room there */
    unsigned char *moved = terrace_realloc_with(inside, 8000, TERRACE_DMA, TERRACE_ANY);
    CHECK(IN(moved, arena) && (uintptr_t)moved % 64 == 0);
    for (int i = 0; i < 600; i++) CHECK(moved[i] == 5);

    terrace_set_preference(TERRACE_DMA, TERRACE_EXTERNAL);
    unsigned char *preferred = terrace_malloc(100), *second = terrace_calloc(1, 3000), *wish = terrace_realloc_with(NULL, 9, 0, 0);
    CHECK(IN(preferred, third) && IN(second, fourth) && IN(wish, arena));
    CHECK(terrace_malloc(8000) == NULL && terrace_realloc(preferred, 8000) == NULL);
    CHECK(terrace_realloc_with(preferred, 0, TERRACE_ANY, TERRACE_ANY) == NULL); /* freed */
    terrace_set_preference(TERRACE_ANY, TERRACE_ANY);
    struct terrace_stats stats;
    terrace_stats(&stats);
    CHECK(stats.requested == 600 + 8000 + 8000 + 3000 + 9 && stats.peak_live >= stats.live && stats.live > stats.requested);
    size_t live = stats.live, peak = stats.peak_live;
    CHECK((preferred = terrace_malloc(15000)) != NULL);
    terrace_stats(&stats);
    CHECK(stats.live > peak && stats.peak_live == stats.live && stats.live > live);
    void *all[] = {dma, fallback, moved, second, wish, preferred};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) terrace_free(all[i]);
    terrace_stats(&stats);
    CHECK(stats.live == 0 && stats.requested == 0 && stats.refused == 0 && terrace_check() == 1);
}

/* Blocks of no bytes begin where their memory ends, the last one where the region does. */
static void blocks_of_no_bytes(void) {
    static void *none[200 * 1024 / (2 * sizeof(size_t))];
    size_t count = 0;
    while ((none[count] = terrace_malloc(0)) != NULL) count++;
    CHECK(count > 4000);
    for (size_t i = 0; i < count; i++) terrace_free(none[i]);
    struct terrace_stats stats;
    terrace_stats(&stats);
    CHECK(stats.live == 0 && stats.refused == (size_t)refusals && terrace_check() == 1);
}

static int take_and_free(size_t bytes, size_t align) {
    (void)bytes, (void)align;
    terrace_free(terrace_malloc(80));
    return ++calls < 1000;
}

static void hooks(void) {
    calls = 0;
    terrace_set_out_of_memory_hook(take_and_free);
    CHECK(terrace_malloc(1 << 20) == NULL && calls == 1); /* memory use did not fall */
    calls = 0;
    terrace_set_out_of_memory_hook(make_room);
    cached = terrace_malloc(40000);
    struct terrace_stats before, after;
    terrace_stats(&before);
    CHECK(terrace_memalign(64, 100000 - 64) == NULL); /* larger than any region: the block freed does not help */
    terrace_stats(&after);
    CHECK(calls == 2 && cached == NULL && after.failures == before.failures + 3);
    terrace_set_out_of_memory_hook(NULL);

    terrace_set_bad_free_hook(refused);
    unsigned char outside[64], *block = terrace_malloc(48);
    terrace_free(outside + 32);
    CHECK(refusals == 1 && last_refused == outside + 32);
    terrace_free(block + 4);
    terrace_free_sized(block, 47);
    terrace_free(arena);
    CHECK(terrace_realloc(outside, 10) == NULL && refusals == 5);
    /* Refused by its address alone: what is in front of it cannot be read. */
    char *unreadable = mmap(NULL, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(unreadable != MAP_FAILED);
    terrace_free(unreadable + (1 << 15));
    CHECK(refusals == 6 && last_refused == unreadable + (1 << 15));
    CHECK(munmap(unreadable, 1 << 16) == 0);
    terrace_free_sized(block, 48);
    CHECK(refusals == 6);
#ifdef CHECKED
    terrace_free(block);
    CHECK(refusals == 7 && last_refused == block);
#endif
    terrace_stats(&after);
    CHECK(after.refused == (size_t)refusals && after.live == 0);
}

#ifdef WIDE
/* More than what a region takes without `wide` on 32 bits. */
static unsigned char huge[17 << 20];


int main(void) {
    CHECK(terrace_init(huge, sizeof huge) == TERRACE_OK);
    void *large = terrace_malloc(14 << 20), *block = terrace_malloc(1);
    struct terrace_stats stats;
    terrace_stats(&stats);
    CHECK(large && block && stats.live == stats.peak_live && stats.live % 16 == 0);
    terrace_free(large);
    terrace_free(block);
    terrace_stats(&stats);
    CHECK(stats.live == 0 && stats.free_blocks == 1 && terrace_check() == 1);
    printf("%s: %d failed\n", failed ? "bad" : "good", failed);
    return failed;
}
#else
int main(void) {
    init_and_its_mistakes();
    blocks();
    capabilities();
    hooks();
    blocks_of_no_bytes(); /* leaves headers of freed blocks everywhere */
    threads();
    CHECK(terrace_check() == 1);
    struct terrace_stats stats;
    terrace_stats(&stats);
    CHECK(stats.live == 0);
    printf("%s: %d failed, peak %zu\n", failed ? "bad" : "good", failed, stats.peak);
    return failed;
}
#endif
