/* libterrace_torch: the functions for programs. The hooks that PyTorch calls (terrace_torch_alloc and so on) have PyTorch's
 * own C++ signatures; src/hooks.rs lists them.
 *
 * 0 is success; -1 is a failure, of which terrace_torch_last_error has the message. Any thread may call any of them.
 */
#ifndef TERRACE_TORCH_H
#define TERRACE_TORCH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Counters of one device. Bytes unless named otherwise; all 0 for a device that was not used. */
typedef struct terrace_torch_stats_t {
    uint64_t reserved;       /* taken from the driver now */
    uint64_t peak_reserved;  /* the most ever taken at once */
    uint64_t capacity;       /* the most to take; 0: no limit */
    uint64_t in_use;         /* in live blocks, rounding included */
    uint64_t peak_in_use;    /* the most ever in live blocks */
    uint64_t pooled;         /* freed, kept for their streams or until their fences open */
    uint64_t largest_free;   /* the largest block that needs no more from the driver */
    uint64_t pools_reserved; /* taken for pools of graphs and regions; not in reserved */
    uint64_t pools_in_use;   /* in live blocks of those pools; not in in_use */
    uint64_t live_blocks;    /* blocks handed out now, from pools too */
    uint64_t allocations;    /* allocations served, from pools too */
    uint64_t frees;          /* blocks freed, from pools too */
    uint64_t hits;           /* allocations served without asking the driver */
    uint64_t failed;         /* allocations that failed */
    uint64_t held;           /* blocks freed while another stream still uses them */
    uint64_t events;         /* events recorded so far */
    uint64_t streams;        /* streams seen */
} terrace_torch_stats_t;

/* Writes the counters of a device. */
int terrace_torch_stats(int device, terrace_torch_stats_t *out);
/* Writes the live blocks of a device (-1: of all) to a file: JSON in the shape of torch.cuda.memory._snapshot(). */
int terrace_torch_snapshot(int device, const char *path);
/* Copies the last message and a zero byte into room bytes, as much as fits; returns the whole message's length. */
size_t terrace_torch_last_error(char *buffer, size_t room);
/* Returns all unused memory of a device to the driver; returns the bytes of it. */
uint64_t terrace_torch_trim(int device);
/* Releases all devices; returns how many blocks are live. Each device is closed when its last block is freed. Caller must
 * ensure that no thread allocates any more. */
uint64_t terrace_torch_close(void);

#ifdef __cplusplus
}
#endif
#endif
