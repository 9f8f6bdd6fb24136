/* The library of the least code, on a computer: every function that it has. */
#define TERRACE_SMALL
#include <stdio.h>
#include <string.h>

#include "terrace.h"

static unsigned failed;
#define CHECK(what) ((what) ? (void)0 : (void)(failed++, printf("FAILED in line %d: %s\n", __LINE__, #what)))

static unsigned char arena[65536];

int main(void) {
    CHECK(terrace_malloc(1) == NULL);
    CHECK(terrace_init(NULL, 100) == TERRACE_NULL);
    CHECK(terrace_init(arena, 16) == TERRACE_TOO_SMALL);
    CHECK(terrace_init(arena, (size_t)1 << 46) == TERRACE_TOO_LARGE);
    CHECK(terrace_init(arena + 1, sizeof arena - 1) == TERRACE_OK);
    CHECK(terrace_init(arena, sizeof arena) == TERRACE_AGAIN);

    void *large = terrace_malloc(60000);
    CHECK(large != NULL && terrace_malloc(60000) == NULL);
    terrace_free(large);
    terrace_free(NULL);
    unsigned char *zeros = terrace_calloc(100, 7);
    for (unsigned i = 0; i < 700; i++) CHECK(zeros[i] == 0);
    CHECK(terrace_calloc((size_t)-1 / 2, 3) == NULL);
    memset(zeros, 5, 700);

    unsigned char *aligned = terrace_memalign(512, 100);
    CHECK(aligned != NULL && (uintptr_t)aligned % 512 == 0);
    CHECK(terrace_memalign(3, 8) == NULL && terrace_memalign(0, 8) == NULL);
    zeros = terrace_realloc(zeros, 30000);
    for (unsigned i = 0; i < 700; i++) CHECK(zeros[i] == 5);
    CHECK(terrace_realloc(zeros, 70000) == NULL && zeros[699] == 5);
    CHECK((zeros = terrace_realloc(zeros, 10)) != NULL && zeros[9] == 5);
    CHECK(terrace_realloc(zeros, 0) == NULL);
    CHECK(terrace_check() == 1);
    terrace_free(aligned);
#ifdef CHECKED
    /* Refused: a double free, the inside of a block, and what lies elsewhere. */
    terrace_free(aligned);
    terrace_free(aligned + 1);
    terrace_free((void *)16);
    CHECK(terrace_realloc(&failed, 8) == NULL && terrace_realloc((void *)4, 8) == NULL);
#endif
    unsigned char *first = terrace_realloc(NULL, 0), *second = terrace_malloc(0);
    CHECK(first != NULL && second != NULL && first != second);
    terrace_free(first);
    terrace_free(second);
    CHECK((large = terrace_malloc(60000)) != NULL && terrace_check() == 1);
    printf("%s: %u failed\n", failed ? "bad" : "good", failed);
    return failed != 0;
}
