/* A random sequence of calls of the whole C interface beside a record of what each block must hold.
 *
 * Upward: `shadow_step` makes one call and checks the blocks it concerns; `shadow_drain` checks and frees all blocks. The
 * program dies with a message if another owner wrote into a block, a block is misaligned, or memory of calloc is not zero.
 * Each shadow belongs to one thread. If a request fails for want of memory, the step is skipped.
 * From below: patterns of check.h. */
#ifndef SHADOW_H
#define SHADOW_H
#include "check.h"

struct shadow_block {
    unsigned char *at; /* NULL: the slot is empty, and the other fields are unused */
    size_t size;       /* bytes that `fill` wrote */
    uint64_t seed;     /* the seed of `fill` */
};

#define SHADOW_SLOTS 512
struct shadow {
    uint64_t random;    /* never 0 */
    uint64_t next_seed; /* rises, so that no pattern repeats */
    size_t largest;     /* sizes stay below; a power of two of at least 8192 */
    unsigned long done; /* calls that allocated or resized a block */
    struct shadow_block slots[SHADOW_SLOTS];
};

/* `name` differs between threads: it is in the upper bits of every seed. */
static inline void shadow_start(struct shadow *shadow, uint64_t name, size_t largest) {
    memset(shadow, 0, sizeof *shadow);
    shadow->random = (name + 1) * 0x9E3779B97F4A7C15ull | 1;
    shadow->next_seed = name << 40;
    shadow->largest = largest;
}

/* Sizes as programs have them: mostly small, a few large, now and then none at all. */
static inline size_t shadow_size(struct shadow *shadow) {
    uint64_t draw = next_random(&shadow->random);
    unsigned kind = draw % 128;
    size_t size = (size_t)(draw >> 20);
    if (kind == 0) return 0;
    if (kind < 90) return 1 + size % 256;
    if (kind < 118) return 1 + size % 4096;
    if (kind < 127) return 1 + size % (shadow->largest < 65536 ? shadow->largest : 65536);
    return 1 + size % shadow->largest;
}

static inline void shadow_expect_16(const void *at, size_t size) {
    if (size >= 16 && (uintptr_t)at % 16) die("a block is not aligned to 16");
}

static inline void shadow_expect(const struct shadow_block *block, size_t part, const char *words) {
    if (!holds(block->at, block->size, part, block->seed)) die(words);
}

static inline void shadow_keep(struct shadow *shadow, struct shadow_block *block, void *at, size_t size) {
    block->at = (unsigned char *)at;
    if (!at) return;
    block->size = size;
    block->seed = ++shadow->next_seed;
    shadow->done++;
    fill(at, size, block->seed);
}

static inline void shadow_free(struct shadow_block *block) {
    unsigned char *at = block->at;
    if (!at) return;
    shadow_expect(block, block->size, "a block was overwritten while it was live");
    block->at = NULL; /* before the free: a signal may come between */
    free(at);
}

static inline void shadow_resize(struct shadow *shadow, struct shadow_block *block, int as_array) {
    size_t size = shadow_size(shadow) + 1; /* never 0: realloc(p, 0) frees */
    struct shadow_block old = *block;
    void *at = as_array ? reallocarray(old.at, (size + 7) / 8, 8) : realloc(old.at, size);
    if (!at) return;
    shadow_expect_16(at, size);
    if (old.at) {
        old.at = (unsigned char *)at;
        shadow_expect(&old, old.size < size ? old.size : size, "contents were lost by realloc");
    }
    shadow_keep(shadow, block, at, size);
}

static inline void *shadow_aligned(struct shadow *shadow, unsigned kind, size_t size) {
    size_t align = (size_t)8 << next_random(&shadow->random) % 11; /* 8 to 8192 */
    void *at = NULL;
    if (kind == 0) at = memalign(align, size);
    else if (kind == 1) at = aligned_alloc(align, (size + align - 1) / align * align);
    else if (posix_memalign(&at, align, size)) at = NULL;
    if ((uintptr_t)at % align) die("an aligned block is not aligned");
    return at;
}

static inline void shadow_take(struct shadow *shadow, struct shadow_block *block, unsigned kind) {
    size_t size = shadow_size(shadow);
    void *at;
    if (kind < 10) {
        at = malloc(size);
        shadow_expect_16(at, size);
        if (at && kind == 9) { /* all of the usable size */
            size_t usable = malloc_usable_size(at);
            if (usable < size) die("malloc_usable_size is below what was asked for");
            size = usable;
        }
    } else if (kind < 13) {
        at = calloc((size + 3) / 4, 4);
        shadow_expect_16(at, size);
        if (at && !is_zero(at, (size + 3) / 4 * 4)) die("memory of calloc is not zero");
    } else {
        at = shadow_aligned(shadow, kind - 13, size);
    }
    shadow_keep(shadow, block, at, size);
}

/* One call at a slot drawn at random. */
static inline void shadow_step(struct shadow *shadow) {
    uint64_t draw = next_random(&shadow->random);
    struct shadow_block *block = &shadow->slots[(draw >> 32) % SHADOW_SLOTS];
    unsigned kind = draw % 16;
    if (!block->at) shadow_take(shadow, block, kind);
    else if (kind < 5) shadow_resize(shadow, block, kind == 0);
    else shadow_free(block);
}

static inline void shadow_drain(struct shadow *shadow) {
    for (int slot = 0; slot < SHADOW_SLOTS; slot++) shadow_free(&shadow->slots[slot]);
}
#endif
