/* The library's own limit (TERRACE_LIMIT, at most 80 MB here): requests succeed until it is reached, then fail with ENOMEM;
 * after frees, requests of any size succeed again. */
#include "check.h"

#include <stdbool.h>

static void *blocks[200000];

/* Allocates blocks until a request fails and frees them; returns the sum of their sizes. */
static size_t all_of(size_t size) {
    size_t count = 0;
    while (count < 200000 && (blocks[count] = malloc(size)) != NULL) count++;
    int error = errno;
    for (size_t i = 0; i < count; i++) free(blocks[i]);
    if (count == 200000 || error != ENOMEM) return 0;
    return count * size;
}

int main(void) {
    begin();
    static const size_t sizes[] = {1000, 10000, 100000, 1000000, 10000000, 1000};
    bool enough = true, limited = true;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t bytes = all_of(sizes[i]);
        enough &= bytes >= 45000000;
        limited &= bytes <= 80000 * 1024;
    }
    CHECK(enough, "most of the limit was given, size after size, then ENOMEM");
    CHECK(limited, "and no more than the limit");
    CHECK(malloc(hide(100 << 20)) == NULL && errno == ENOMEM, "one block beyond the limit: NULL, ENOMEM");
    return finish();
}
