/* terrace: a heap for firmware. Link libterrace_embedded.a.
 *
 *     #include "terrace.h"
 *
 *     static unsigned char arena[32 * 1024];
 *
 *     int main(void) {
 *         if (terrace_init(arena, sizeof arena) != TERRACE_OK) return 1;
 *         char *line = terrace_malloc(80);
 *         terrace_free(line);
 *     }
 *
 * Every call takes a bounded number of instructions, whatever was allocated before; terrace_calloc also clears, a
 * terrace_realloc that cannot resize in place also copies, and terrace_stats walks the free blocks. Blocks are aligned for
 * any C type (8 bytes on 32-bit targets, 16 on 64-bit) and cost two words each: a free without a size must find one.
 * Nothing is called but the functions named here (and memcpy, memset).
 */
#ifndef TERRACE_H
#define TERRACE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What terrace_init and terrace_add_region return (as an int). On any error but TERRACE_OK the heap is as it was. */
enum terrace_result {
    TERRACE_OK = 0,
    TERRACE_NULL = 1,      /* the address is null: is the linker script's symbol right? */
    TERRACE_TOO_SMALL = 2, /* nothing would be left beside the region's tables (some 200 bytes, and 1.6 %) */
    TERRACE_TOO_LARGE = 3, /* more than the heap's records can express: add it in parts */
    TERRACE_OVERLAPS = 4,  /* the heap has some of these bytes already */
    TERRACE_TOO_MANY = 5,  /* all four regions are in use */
    TERRACE_AGAIN = 6      /* terrace_init was called before: use terrace_add_region for more memory */
};

/* Gives the heap its first memory: `bytes` bytes from `start` on, which nobody else uses from now on. The ends may lie
 * anywhere. Before this every request gets NULL. */
int terrace_init(void *start, size_t bytes);

/* Gives the heap more: up to four regions in all. Blocks lie in one of them; they are tried in the order they came. */
int terrace_add_region(void *start, size_t bytes);

/* A block of `bytes` bytes, or NULL. 0 bytes are a block too, different from all others. O(1). */
void *terrace_malloc(size_t bytes);

/* A block of `count * bytes` bytes, all 0, or NULL; NULL too when the product is too large for a size_t. */
void *terrace_calloc(size_t count, size_t bytes);

/* A block whose address is a multiple of `align`, a power of two (NULL for any other number). Freed as all others. */
void *terrace_memalign(size_t align, size_t bytes);

/* Makes a block `bytes` bytes long, where it is if possible, else elsewhere, with what it held and its alignment. NULL: no
 * room, and the block is as it was. terrace_realloc(NULL, n) is terrace_malloc(n); terrace_realloc(p, 0) frees p and
 * returns NULL. A block that moves is copied between terrace_lock and terrace_unlock. */
void *terrace_realloc(void *block, size_t bytes);

/* Takes a block back. NULL is ignored. What is certainly not a block is refused, counted and reported: see
 * terrace_set_bad_free_hook. O(1). */
void terrace_free(void *block);

/* The same; a size that is not the one asked for last is refused too. */
void terrace_free_sized(void *block, size_t bytes);

/* Bytes, and numbers of calls, which wrap around. total = tables + live + free. */
struct terrace_stats {
    size_t total;        /* all regions */
    size_t tables;       /* in the regions' tables */
    size_t live;         /* in live blocks, with their headers, in whole granules of 8 bytes */
    size_t free;         /* in free blocks */
    size_t largest_free; /* the largest of them; a block needs two words more than it has bytes */
    size_t free_blocks;  /* how many */
    size_t requested;    /* in live blocks, as they were asked for */
    size_t peak;         /* the most that `requested` ever was */
    size_t allocations;  /* blocks handed out */
    size_t frees;        /* blocks taken back */
    size_t failures;     /* requests that got NULL */
    size_t refused;      /* frees and reallocs that were refused */
};

/* Fills in the struct; NULL is ignored. O(free blocks), between terrace_lock and terrace_unlock. */
void terrace_stats(struct terrace_stats *out);

/* What is called when a request finds nothing, outside of the lock. It may free blocks or add a region, and returns
 * non-zero to have the request tried again; it is called again as long as that fails and something came back. While it
 * runs it is not called again: requests that fail then, its own included, get NULL. NULL, given outside of the hook, takes it away. */
void terrace_set_out_of_memory_hook(int (*hook)(size_t bytes, size_t align));

/* What is called with a pointer that terrace_free, terrace_free_sized or terrace_realloc refused, outside of the lock.
 * Always refused: what lies in no region, is not aligned as every block is, or has another size (terrace_free_sized). In a
 * library built with --features checked also: any block that is not live, until its memory is handed out again. */
void terrace_set_bad_free_hook(void (*hook)(void *block));

/* 1 when every invariant of the heap holds, 0 when something wrote where it must not. O(size of the regions). */
int terrace_check(void);

/* The lock. The library has weak ones that do nothing, for programs in which only one thread and no interrupt handler
 * uses the heap. In any other define both; what terrace_lock returns is given to terrace_unlock. They do not nest. For one
 * Cortex-M core:
 *
 *     uintptr_t terrace_lock(void) {
 *         uint32_t state;
 *         __asm volatile("mrs %0, primask\n cpsid i" : "=r"(state) : : "memory");
 *         return state;
 *     }
 *     void terrace_unlock(uintptr_t state) { __asm volatile("msr primask, %0" : : "r"(state) : "memory"); }
 */
uintptr_t terrace_lock(void);
void terrace_unlock(uintptr_t state);

#ifdef __cplusplus
}
#endif

#endif
