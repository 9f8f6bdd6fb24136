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
 * any C type (8 bytes on 32-bit targets, 16 on 64-bit) and cost two words each: terrace_free reads the size from there.
 * The library calls only the functions named here, memcpy and memset.
 *
 * For the least code build the library with --features small and define TERRACE_SMALL before this header: one region, and only
 * terrace_init, _malloc, _calloc, _memalign, _realloc, _free and _check, each linked if the program calls it. The first, malloc
 * and free take 974 bytes on Cortex-M4 (opt-level z, fat LTO). There nothing is counted and no hook runs; calls take longer.
 */
#ifndef TERRACE_H
#define TERRACE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The result of terrace_init and the terrace_add_region functions, as an int. Unless it is TERRACE_OK, the heap is unchanged.
 * With TERRACE_SMALL there is one region: what is too large needs --features wide, and a further call may say TERRACE_TOO_SMALL or
 * TERRACE_TOO_LARGE of its memory instead of TERRACE_AGAIN. */
enum terrace_result {
    TERRACE_OK = 0,
    TERRACE_NULL = 1,      /* the address is null: is the linker script's symbol right? */
    TERRACE_TOO_SMALL = 2, /* no room for blocks beside the region's tables (some 400 bytes, and 1.6 %) */
    TERRACE_TOO_LARGE = 3, /* more than 512 KiB on 32 bits, 32 GiB on 64: add it in parts, or build with --features wide */
    TERRACE_OVERLAPS = 4,  /* the region overlaps one that the heap has */
    TERRACE_TOO_MANY = 5,  /* all four regions are in use */
    TERRACE_AGAIN = 6      /* terrace_init was called before: use terrace_add_region for more memory */
};

/* Adds the first region: `bytes` bytes from `start` on, which only the heap may use from now on. The ends need no alignment.
 * Before this every request returns NULL. */
int terrace_init(void *start, size_t bytes);

#ifndef TERRACE_SMALL
/* Adds another region, up to four in all. A block lies in one region; the heap tries them in the order they were added. */
int terrace_add_region(void *start, size_t bytes);

/* What the memory of a region can do, as bits of an unsigned. No bit has an effect of its own: a request compares them. */
#define TERRACE_ANY 0u           /* of a request: any region suits */
#define TERRACE_INTERNAL 1u      /* on the chip */
#define TERRACE_EXTERNAL 2u      /* outside the chip, as PSRAM */
#define TERRACE_DMA 4u           /* reached by the DMA controllers */
#define TERRACE_USER(n) (1u << (8 + (n))) /* a bit of the program's own: n is 0 to 23 */

/* Adds a region that has these capabilities, the first or another:
 *
 *     terrace_add_region_with(sram, sizeof sram, TERRACE_INTERNAL | TERRACE_DMA);
 *     terrace_add_region_with(psram, 512 * 1024, TERRACE_EXTERNAL);
 *
 * terrace_init and terrace_add_region add regions with none, which serve only requests that need none. */
int terrace_add_region_with(void *start, size_t bytes, unsigned has);

/* Allocates in a region that has all bits of `first`, or else, if none of those has room, all bits of `fallback`; NULL without
 * room in either. For no fallback, pass `first` twice. terrace_free frees the block, whatever its region. O(regions).
 *
 *     frame = terrace_malloc_with(1536, TERRACE_DMA, TERRACE_DMA);
 *     image = terrace_malloc_with(150000, TERRACE_EXTERNAL, TERRACE_ANY); */
void *terrace_malloc_with(size_t bytes, unsigned first, unsigned fallback);
void *terrace_memalign_with(size_t align, size_t bytes, unsigned first, unsigned fallback);

/* As terrace_realloc, but a block that has no room in its region goes to one of these only. */
void *terrace_realloc_with(void *block, size_t bytes, unsigned first, unsigned fallback);

/* Sets what the functions without `_with` pass. Until it is called: TERRACE_ANY twice. */
void terrace_set_preference(unsigned first, unsigned fallback);
#endif

/* Allocates a block of `bytes` bytes, or returns NULL. A block of 0 bytes differs from all others. O(1). */
void *terrace_malloc(size_t bytes);

/* Allocates a block of `count * bytes` bytes, all 0, or returns NULL, also when the product overflows a size_t. */
void *terrace_calloc(size_t count, size_t bytes);

/* Allocates a block at a multiple of `align`, a power of two (otherwise returns NULL). terrace_free frees it. */
void *terrace_memalign(size_t align, size_t bytes);

/* Resizes a block to `bytes` bytes, in place if possible, else by moving it, in its region if there is room; keeps contents and
 * alignment. NULL: no room, and the block is unchanged. terrace_realloc(NULL, n) is terrace_malloc(n); terrace_realloc(p, 0) frees p and returns NULL.
 * A block that moves is copied between terrace_lock and terrace_unlock. */
void *terrace_realloc(void *block, size_t bytes);

/* Frees a block; ignores NULL. Refuses, counts and reports a pointer that is certainly no block: see
 * terrace_set_bad_free_hook; with TERRACE_SMALL it does not look. O(1). */
void terrace_free(void *block);

#ifndef TERRACE_SMALL
/* Frees a block; also refuses a size other than that of the request or of the last realloc. */
void terrace_free_sized(void *block, size_t bytes);

/* Bytes, unless they count blocks or calls; numbers of calls wrap around. total = tables + live + free. */
struct terrace_stats {
    size_t total;        /* all regions */
    size_t tables;       /* of the regions' tables */
    size_t live;         /* of live blocks, with their headers, in whole granules of 8 bytes (wide: 16) */
    size_t free;         /* of free blocks */
    size_t largest_free; /* of the largest free block; a request needs two words and up to 8 bytes more than its size */
    size_t free_blocks;  /* number of free blocks */
    size_t requested;    /* of live blocks, by their requests */
    size_t peak;         /* the highest value of `requested` */
    size_t allocations;  /* blocks allocated */
    size_t frees;        /* blocks freed */
    size_t failures;     /* requests that returned NULL */
    size_t refused;      /* frees and reallocs that were refused */
    size_t peak_live;    /* the highest value of `live` */
};

/* Fills in the struct; ignores NULL. O(free blocks), between terrace_lock and terrace_unlock. */
void terrace_stats(struct terrace_stats *out);

/* Sets the hook for requests that fail; it runs without the lock. It may free blocks or add a region, and returns non-zero to
 * have the request tried again. If that fails too, it runs again as long as memory use fell. While it runs it is not called
 * again: a request that fails then, its own included, returns NULL. NULL removes the hook, unless the hook itself passes it. */
void terrace_set_out_of_memory_hook(int (*hook)(size_t bytes, size_t align));

/* Sets the hook for pointers that terrace_free, terrace_free_sized or terrace_realloc refuse; it runs without the lock.
 * They refuse a pointer outside of all regions, one that is not aligned as a block, and a wrong size (terrace_free_sized). A
 * library built with --features checked also refuses a block that is not live, until its memory is allocated again. */
void terrace_set_bad_free_hook(void (*hook)(void *block));
#endif

/* Checks the heap: 1 when every invariant holds, 0 when memory of the heap was overwritten. O(size of the regions). */
int terrace_check(void);

/* The lock. The library's own functions are weak and do nothing: for programs in which one thread and no interrupt handler
 * uses the heap. In any other program define both; terrace_unlock receives what terrace_lock returned. The library never
 * nests them. For one Cortex-M core:
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
