/* A firmware on the smallest heap: it calls terrace_init, terrace_malloc and terrace_free, and no more is linked. */
#include "board.h"
#include "terrace.h"

static unsigned char arena[4096];

/* No timer runs, so the library's own lock, which does nothing, will do. */
void systick(void) {}

int main(void) {
    unsigned char *blocks[40];
    unsigned failed = terrace_malloc(8) != 0;
    failed += terrace_init(arena, sizeof arena) != TERRACE_OK;
    failed += terrace_init(arena, sizeof arena) != TERRACE_AGAIN;
    for (unsigned round = 0; round < 100; round++) {
        for (unsigned i = 0; i < 40; i++) {
            unsigned bytes = (round + i * 7) % 90;
            blocks[i] = terrace_malloc(bytes);
            if (!blocks[i] || (uintptr_t)blocks[i] % 8) {
                print("no block, or one that is not aligned\n");
                return 1;
            }
            for (unsigned j = 0; j < bytes; j++) blocks[i][j] = (unsigned char)i;
        }
        /* Every second block first, so that the others find free neighbours on both sides. */
        for (unsigned i = 0; i < 80; i += 2) {
            unsigned which = i < 40 ? i : i - 39, bytes = (round + which * 7) % 90;
            for (unsigned j = 0; j < bytes; j++) failed += blocks[which][j] != which;
            terrace_free(blocks[which]);
        }
    }
    terrace_free(0);
    void *large = terrace_malloc(3500); /* all has become one block again */
    failed += !large || terrace_malloc(3500);
    print(failed ? "bad\n" : "good: every check passed\n");
    return failed != 0;
}
