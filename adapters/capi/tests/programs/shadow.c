/* Contents of blocks: realloc keeps them across every boundary of size classes, calloc zeroes reused memory too, all of
 * malloc_usable_size is writable. Then a random sequence of calls, with a check of every byte.
 * Arguments: number of calls; "short": only the random sequence. */
#include "shadow.h"

#include <stdbool.h>

#define LARGEST ((size_t)64 << 20)

/* Around each power of two and half-way between two of them, where size classes end. */
static size_t boundary(unsigned i) {
    size_t base = (size_t)16 << i / 8, at[] = {base - 1, base, base + 1, base + base / 4, base + base / 2 - 1, base + base / 2,
                                               base + base / 2 + 1, base + base / 4 * 3};
    return at[i % 8];
}
#define BOUNDARIES (22u * 8u + 2u) /* 16 B << 22 is 64 MiB */

static void realloc_up_and_down(void) {
    bool up = true, down = true;
    char *block = malloc(1);
    size_t size = 1;
    for (unsigned i = 0; i < BOUNDARIES; i++) {
        size_t next = boundary(i), part = size < next ? size : next;
        fill(block, size, i);
        block = realloc(block, next);
        up &= block && holds(block, size, part, i);
        size = next;
    }
    for (unsigned i = BOUNDARIES; i-- > 0;) {
        size_t next = boundary(i), part = size < next ? size : next;
        fill(block, size, i);
        block = realloc(block, next);
        down &= block && holds(block, size, part, i) && malloc_usable_size(block) >= next;
        size = next;
    }
    free(block);
    CHECK(up, "realloc keeps contents over all boundaries up to 64 MiB");
    CHECK(down, "and down again");
}

/* Jumps far: from every fifth boundary to every fifth other one. */
static void realloc_far(void) {
    bool kept = true;
    for (unsigned from = 0; from < BOUNDARIES - 16; from += 5)
        for (unsigned to = 0; to < BOUNDARIES - 16; to += 5) {
            size_t old = boundary(from), size = boundary(to);
            char *block = malloc(old);
            fill(block, old, from * 1000 + to);
            block = realloc(block, size);
            kept &= block && holds(block, old, old < size ? old : size, from * 1000 + to);
            free(block);
        }
    CHECK(kept, "realloc keeps contents from any size to any other");
}

/* Small steps, as of a growing text, each followed by another allocation, so that the block cannot always grow in place. */
static void realloc_grows_slowly(void) {
    bool kept = true;
    char *text = NULL, *between[64] = {0};
    for (size_t length = 1; length < 300000; length += 1 + length / 50) {
        text = realloc(text, length);
        text[length - 1] = (char)length;
        free(between[length % 64]);
        between[length % 64] = malloc(length);
    }
    for (size_t length = 1; length < 300000; length += 1 + length / 50) kept &= text[length - 1] == (char)length;
    for (int i = 0; i < 64; i++) free(between[i]);
    free(text);
    CHECK(kept, "a text that grows in small steps");
}

static void calloc_is_zero(void) {
    bool fresh = true, reused = true, shrunk = true;
    for (unsigned i = 0; i < BOUNDARIES; i++) {
        size_t size = boundary(i), rounds = size < 100000 ? 50 : 3;
        char *blocks[50];
        for (size_t j = 0; j < rounds; j++) {
            blocks[j] = calloc(1, size);
            fresh &= blocks[j] && is_zero(blocks[j], size);
            memset(blocks[j], 0xff, malloc_usable_size(blocks[j]));
        }
        for (size_t j = 0; j < rounds; j++) free(blocks[j]);
        for (size_t j = 0; j < rounds; j++) {
            blocks[j] = calloc(size, 1);
            reused &= blocks[j] && is_zero(blocks[j], size);
            memset(blocks[j], 0xff, size);
            blocks[j] = realloc(blocks[j], size / 2 + 1); /* calloc must zero the part that is cut off */
        }
        char *small = calloc(1, size / 2 + 1), *other = calloc(1, size / 4 + 1);
        shrunk &= small && other && is_zero(small, size / 2 + 1) && is_zero(other, size / 4 + 1);
        free(small), free(other);
        for (size_t j = 0; j < rounds; j++) free(blocks[j]);
    }
    CHECK(fresh, "calloc gives zeros");
    CHECK(reused, "calloc gives zeros in memory that was used before");
    CHECK(shrunk, "calloc gives zeros in what realloc cut off");
}

static void usable_size(void) {
    bool enough = true, kept = true;
    static char *blocks[BOUNDARIES];
    static size_t sizes[BOUNDARIES];
    for (unsigned i = 0; i < BOUNDARIES - 8; i++) {
        blocks[i] = malloc(boundary(i));
        sizes[i] = malloc_usable_size(blocks[i]);
        enough &= sizes[i] >= boundary(i);
        fill(blocks[i], sizes[i], i + 5000);
    }
    for (unsigned i = 0; i < BOUNDARIES - 8; i++) {
        kept &= holds(blocks[i], sizes[i], sizes[i], i + 5000);
        free(blocks[i]);
    }
    CHECK(enough, "malloc_usable_size is at least what was asked for");
    CHECK(kept, "and all of it can be used");
}

static void random_sequence(unsigned long calls) {
    static struct shadow shadow;
    shadow_start(&shadow, 1, (size_t)2 << 20);
    for (unsigned long call = 0; call < calls; call++) {
        shadow_step(&shadow);
        if (call % 100000 == 0) malloc_trim(call % 3 == 0 ? 0 : 65536);
    }
    shadow_drain(&shadow);
    CHECK(shadow.done > calls / 3, "a random sequence: every block held what was written");
}

int main(int count, char **arguments) {
    begin();
    if (count < 3) {
        realloc_up_and_down();
        realloc_far();
        realloc_grows_slowly();
        calloc_is_zero();
        usable_size();
    }
    random_sequence(count > 1 ? strtoul(arguments[1], NULL, 10) : 1000000);
    return finish();
}
