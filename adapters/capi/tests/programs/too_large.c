/* Sizes that no process can have, in all calls, as glibc's own malloc/tst-malloc-too-large.c tries them: each of the last 2^14
 * below SIZE_MAX and below PTRDIFF_MAX, and two in each 2^50 between. */
#include "check.h"

#include <stdbool.h>

static size_t wrong, shown, tried;

static void want(bool good, const char *call, size_t align, size_t size) {
    tried++;
    if (good) return;
    if (shown++ < 20) printf("%s(%#zx), alignment %zu: errno %d\n", call, size, align, errno);
    wrong++;
}

static void *fresh(void *block) {
    errno = 0;
    return block;
}

static void plain(size_t size) {
    errno = 0;
    want(malloc(size) == NULL && errno == ENOMEM, "malloc", 0, size);
    void *old = fresh(malloc(16));
    want(realloc(old, size) == NULL && errno == ENOMEM, "realloc", 0, size);
    free(old);
    for (size_t count = 1; count <= 8; count *= 2) {
        if (size % count) continue;
        errno = 0;
        want(calloc(count, size / count) == NULL && errno == ENOMEM, "calloc", 0, size);
        old = fresh(malloc(16));
        want(reallocarray(old, count, size / count) == NULL && errno == ENOMEM, "reallocarray", 0, size);
        free(old);
        errno = 0;
        want(reallocarray(NULL, count, size / count) == NULL && errno == ENOMEM, "reallocarray of NULL", 0, size);
    }
}

static void aligned(size_t size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t align = 1; align <= page; align *= 2) {
        void *block = NULL;
        errno = 0;
        want(memalign(align, size) == NULL && errno == ENOMEM, "memalign", align, size);
        if (align % sizeof(void *) == 0) want(posix_memalign(&block, align, size) == ENOMEM, "posix_memalign", align, size);
        errno = 0;
        if (size % align == 0) want(aligned_alloc(align, size) == NULL && errno == ENOMEM, "aligned_alloc", align, size);
    }
    errno = 0;
    want(valloc(size) == NULL && errno == ENOMEM, "valloc", page, size);
    errno = 0;
    want(pvalloc(size) == NULL && errno == ENOMEM, "pvalloc", page, size);
}

static void both(size_t size) {
    plain(hide(size)), aligned(hide(size));
}

int main(void) {
    begin();
    for (size_t i = 0; i < 1 << 14; i++) both(SIZE_MAX - i), both((size_t)PTRDIFF_MAX - i);
    for (size_t top = (1 << 14) - 1; top >= 1; top--) both(top << 50 | (((size_t)1 << 50) - 1)), both(top << 50);
    CHECK(tried > 1 << 21, "every call was tried with every size");
    CHECK(wrong == 0, "sizes that no process can have: NULL and ENOMEM, the old block stays");
    return finish();
}
