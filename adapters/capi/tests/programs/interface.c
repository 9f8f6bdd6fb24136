/* The C interface against what its manual pages say (malloc(3), posix_memalign(3), malloc_usable_size(3),
 * mallinfo(3), malloc_stats(3)): sizes that are 0 or absurd, alignments, errno, zeroed memory.
 * Holds under glibc, except the lines that begin with "strict". */
#include "check.h"

#include <limits.h>
#include <stdbool.h>
#include <sys/mman.h>

static const size_t absurd[] = {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX - 15, SIZE_MAX - 4095, (size_t)PTRDIFF_MAX + 1};
#define ABSURD (sizeof absurd / sizeof *absurd)

/* Whether a call failed as it must; errno is set to 0 before each. */
static bool refused(void *block, int wanted) {
    bool good = block == NULL && errno == wanted;
    free(block);
    errno = 0;
    return good;
}

static void absurd_sizes(void) {
    bool plain = true, zeroed = true, aligned = true, paged = true, posix = true, kept = true;
    unsigned char *old = malloc(100);
    fill(old, 100, 1);
    errno = 0;
    for (size_t i = 0; i < ABSURD; i++) {
        size_t size = hide(absurd[i]);
        plain &= refused(malloc(size), ENOMEM);
        zeroed &= refused(calloc(size, 1), ENOMEM) && refused(calloc(1, size), ENOMEM);
        aligned &= refused(memalign(64, size), ENOMEM) && refused(aligned_alloc(4096, size), ENOMEM);
        paged &= refused(valloc(size), ENOMEM) && refused(pvalloc(size), ENOMEM);
        void *untouched = old;
        posix &= posix_memalign(&untouched, 64, size) == ENOMEM && untouched == old;
        errno = 0;
        kept &= realloc(old, size) == NULL && errno == ENOMEM && holds(old, 100, 100, 1);
        errno = 0;
        plain &= refused(realloc(NULL, size), ENOMEM);
    }
    CHECK(plain, "malloc of absurd sizes: NULL, ENOMEM");
    CHECK(zeroed, "calloc of absurd sizes: NULL, ENOMEM");
    CHECK(aligned, "memalign and aligned_alloc of absurd sizes: NULL, ENOMEM");
    CHECK(paged, "valloc and pvalloc of absurd sizes: NULL, ENOMEM");
    CHECK(posix, "posix_memalign of absurd sizes: returns ENOMEM, leaves the pointer");
    CHECK(kept, "realloc to absurd sizes: NULL, ENOMEM, the old block stays");
    free(old);
}

static void overflows(void) {
    size_t half = hide(SIZE_MAX / 2 + 1), root = hide((size_t)1 << 32);
    errno = 0;
    CHECK(refused(calloc(half, 2), ENOMEM) && refused(calloc(root, root), ENOMEM) && refused(calloc(3, half), ENOMEM),
          "calloc whose product overflows: NULL, ENOMEM");
    CHECK(refused(reallocarray(NULL, half, 2), ENOMEM) && refused(reallocarray(NULL, root + 1, root), ENOMEM),
          "reallocarray whose product overflows: NULL, ENOMEM");
    void *old = malloc(50);
    fill(old, 50, 2);
    errno = 0;
    CHECK(reallocarray(old, root, root) == NULL && errno == ENOMEM && holds(old, 50, 50, 2),
          "reallocarray that overflows leaves the old block");
    old = reallocarray(old, 100, 30);
    CHECK(old && malloc_usable_size(old) >= 3000 && holds(old, 50, 50, 2), "reallocarray resizes");
    free(old);
}

static void size_zero(void) {
    void *a = malloc(hide(0)), *b = malloc(hide(0)), *c = calloc(hide(0), 8), *d = calloc(8, hide(0)), *e = memalign(64, hide(0));
    CHECK(a && b && c && d && e && a != b && c != d && a != c && b != d, "size 0: blocks that differ");
    free(a), free(b), free(c), free(d), free(e);
    void *posix = NULL;
    CHECK(posix_memalign(&posix, 64, hide(0)) == 0 && (uintptr_t)posix % 64 == 0, "posix_memalign of size 0");
    free(posix);
    CHECK(realloc(malloc(10), hide(0)) == NULL, "realloc(p, 0) frees and gives NULL");
    CHECK(reallocarray(malloc(10), hide(0), 4) == NULL, "reallocarray(p, 0, 4) frees and gives NULL");
    void *fresh = realloc(NULL, 40), *none = realloc(NULL, hide(0));
    CHECK(fresh && none && malloc_usable_size(fresh) >= 40, "realloc(NULL, n) is malloc(n)");
    free(fresh), free(none);
    free(NULL);
    CHECK(malloc_usable_size(NULL) == 0, "free(NULL) does nothing; malloc_usable_size(NULL) is 0");
}

static void bad_alignments(void) {
    static const size_t bad[] = {0, 1, 2, 3, 4, 7, 12, 24, 100, 4095, SIZE_MAX, SIZE_MAX / 2 + 2};
    bool posix = true, other = true, loose = true;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        void *untouched = (void *)bad;
        size_t align = hide(bad[i]);
        errno = 77;
        posix &= posix_memalign(&untouched, align, 100) == EINVAL && errno == 77 && untouched == (void *)bad;
        if (align == 1 || align == 2 || align == 4) continue; /* powers of two: fine for the older functions */
        errno = 0;
        other &= refused(aligned_alloc(align, 100), EINVAL);
        errno = 0;
        void *block = memalign(align, 100); /* glibc takes the next power of two */
        size_t power = 1;
        while (power && power < align) power *= 2;
        loose &= power ? block && (uintptr_t)block % power == 0 : !block && errno == EINVAL;
        free(block);
    }
    CHECK(posix, "posix_memalign, alignment not a power of two times 8: EINVAL, errno and pointer as they were");
    CHECK(loose, "memalign, alignment not a power of two: the next one's, or EINVAL where there is none");
    CHECK_STRICT(other, "aligned_alloc, alignment not a power of two: NULL, EINVAL");
    void *one = aligned_alloc(1, 10), *two = memalign(2, 10);
    CHECK(one && two, "aligned_alloc(1, n) and memalign(2, n) give blocks");
    free(one), free(two);
}

static void good_alignments(void) {
    bool aligned = true, kept = true, same = true;
    for (size_t align = 8; align <= 4 << 20; align *= 2) {
        size_t sizes[] = {0, 1, align - 1, align, align + 1, 3 * align};
        void *blocks[6][3];
        for (int i = 0; i < 6; i++) {
            blocks[i][0] = memalign(align, sizes[i]), blocks[i][1] = aligned_alloc(align, sizes[i]);
            if (posix_memalign(&blocks[i][2], align, sizes[i])) blocks[i][2] = NULL;
            for (int j = 0; j < 3; j++) {
                aligned &= blocks[i][j] && (uintptr_t)blocks[i][j] % align == 0;
                fill(blocks[i][j], sizes[i], align + (uint64_t)i * 3 + (uint64_t)j);
                same &= malloc_usable_size(blocks[i][j]) >= sizes[i];
            }
        }
        for (int i = 0; i < 18; i++) {
            kept &= holds(blocks[i / 3][i % 3], sizes[i / 3], sizes[i / 3], align + (uint64_t)i);
            if (i % 2) blocks[i / 3][i % 3] = realloc(blocks[i / 3][i % 3], sizes[i / 3] + 100);
            kept &= holds(blocks[i / 3][i % 3], sizes[i / 3], sizes[i / 3], align + (uint64_t)i);
            free(blocks[i / 3][i % 3]);
        }
    }
    CHECK(aligned, "memalign, aligned_alloc, posix_memalign: aligned to 8 up to 4 MiB");
    CHECK(kept, "aligned blocks keep their contents, through realloc too");
    CHECK(same, "aligned blocks are as large as asked for");
    void *huge = NULL;
    int answer = posix_memalign(&huge, (size_t)1 << 30, 100);
    CHECK(answer ? answer == ENOMEM && !huge : (uintptr_t)huge % ((size_t)1 << 30) == 0, "alignment of 1 GiB: a block or ENOMEM");
    free(huge);
    huge = NULL;
    CHECK(posix_memalign(&huge, hide((size_t)1 << 63), 100) == ENOMEM && !huge, "alignment of 2^63: ENOMEM");
}

static void pages(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *a = valloc(100), *b = pvalloc(100), *c = pvalloc(page + 1), *d = pvalloc(hide(0));
    CHECK(a && b && c && d, "valloc and pvalloc give blocks");
    CHECK(((uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)d) % page == 0, "which begin pages");
    CHECK(malloc_usable_size(b) >= page && malloc_usable_size(c) >= 2 * page, "pvalloc rounds up to whole pages");
    memset(c, 1, 2 * page);
    free(a), free(b), free(c), free(d);
}

static void plain_alignment(void) {
    bool aligned = true;
    static void *blocks[3000];
    for (size_t size = 0; size < 3000; size++) blocks[size] = size % 2 ? malloc(size) : calloc(1, size);
    for (size_t size = 0; size < 3000; size++) {
        aligned &= blocks[size] && (uintptr_t)blocks[size] % 16 == 0;
        blocks[size] = realloc(blocks[size], size * 7 + 1);
    }
    for (size_t size = 0; size < 3000; size++) {
        aligned &= blocks[size] && (uintptr_t)blocks[size] % 16 == 0;
        free(blocks[size]);
    }
    CHECK(aligned, "every block of malloc, calloc and realloc is aligned to 16");
}

/* free(3): since glibc 2.33 it leaves errno alone, whatever munmap and madvise inside come to. */
static void errno_is_kept(void) {
    bool kept = true;
    for (size_t size = 1; size <= 64 << 20; size = size * 3 + 1) {
        void *block = malloc(size), *second = malloc(size);
        fill(block, size, size);
        errno = 1234;
        free(block), free(second);
        kept &= errno == 1234;
    }
    CHECK(kept, "free leaves errno alone");
}

int main(void) {
    begin();
    absurd_sizes();
    overflows();
    size_zero();
    bad_alignments();
    good_alignments();
    pages();
    plain_alignment();
    errno_is_kept();
    return finish();
}
