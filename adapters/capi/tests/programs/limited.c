/* A limit of the library's own (TERRACE_LIMIT, at most 80 MB here): blocks are given until it is reached, then ENOMEM;
 * frees make room again, for blocks of any size. */
#include "check.h"

#include <stdbool.h>

static void *blocks[200000];

/* Takes blocks until there are no more, frees them; gives how many bytes there were. */
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
