/* Statistics (mallinfo(3), malloc_trim(3), malloc_stats(3)), and blocks that libc allocates, which must be of the same
 * malloc, so that the program may free and resize them. malloc_stats prints to standard error. */
#include "check.h"

#include <stdbool.h>
#include <sys/mman.h>

static size_t live(void) {
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd; /* glibc counts blocks with a mapping of their own separately */
}

static void counts(void) {
    static void *blocks[4000];
    size_t before = live(), with_small, with_large;
    for (int i = 0; i < 4000; i++) blocks[i] = malloc(1000);
    with_small = live();
    void *large = malloc(20 << 20);
    with_large = live();
    CHECK(with_small >= before + 4000000, "mallinfo2 sees small blocks");
    CHECK(with_small <= before + 2 * 4000000, "and not twice");
    CHECK(with_large >= with_small + (20 << 20), "mallinfo2 sees a large block");
    struct mallinfo2 info = mallinfo2();
    CHECK(info.arena + info.hblkhd >= info.uordblks, "mallinfo2: what is mapped holds what is live");
    free(large);
    CHECK(live() < with_large - (19 << 20), "mallinfo2 sees its free");
    for (int i = 0; i < 4000; i++) free(blocks[i]);
    CHECK(live() < before + 400000, "mallinfo2 sees that the small ones are free");
}

static size_t resident(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    size_t total = 0, pages = 0;
    if (!file || fscanf(file, "%zu %zu", &total, &pages) != 2) die("/proc/self/statm cannot be read");
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void trim(void) {
    static void *blocks[50000];
    size_t before = resident();
    for (int i = 0; i < 50000; i++) blocks[i] = memset(malloc(1000), 1, 1000);
    size_t full = resident();
    for (int i = 0; i < 50000; i++) free(blocks[i]);
    int first = malloc_trim(0), again = malloc_trim(1 << 20);
    CHECK((first == 0 || first == 1) && (again == 0 || again == 1), "malloc_trim says 0 or 1");
    CHECK(full > before + 40000000, "50 MB are resident while they are live");
    CHECK(resident() < before + 10000000, "malloc_trim(0) returns what is free");
}

/* The attribute `size` behind the first occurrence of `element`; 0 without one. */
static size_t told(const char *text, const char *element) {
    const char *found = strstr(text, element);
    size_t number = 0;
    return found && sscanf(found + strlen(element), " size=\"%zu\"", &number) == 1 ? number : 0;
}

static void information(void) {
    char *text = NULL;
    size_t length = 0;
    void *block = memset(malloc(3 << 20), 1, 3 << 20);
    FILE *stream = open_memstream(&text, &length);
    CHECK(malloc_info(1, stream) == EINVAL, "malloc_info takes no options");
    CHECK(malloc_info(0, stream) == 0 && fclose(stream) == 0, "malloc_info writes");
    CHECK(strncmp(text, "<malloc version=", 16) == 0 && strstr(text, "</malloc>\n"), "XML in an element of its own");
    /* The last element is that of all arenas: glibc prints one for each before. */
    char *last = text;
    for (char *next; (next = strstr(last + 1, "<system type=\"current\"")) != NULL;) last = next;
    CHECK(told(last, "<system type=\"current\"") >= 100000, "what is held");
    CHECK_STRICT(told(text, "<system type=\"current\"") >= 3 << 20, "large blocks included");
    CHECK_STRICT(strstr(text, "<total type=\"used\" count="), "what is used");
    FILE *closed = fopen("/dev/null", "r");
    CHECK_STRICT(malloc_info(0, closed) == -1, "malloc_info to a stream that cannot be written");
    fclose(closed);
    free(text), free(block);
}

static void blocks_of_libc(void) {
    char *text = NULL, *line = NULL, *stream_text = NULL;
    size_t length = 0, stream_length = 0;
    CHECK(asprintf(&text, "%0*d", 5000, 1) == 5000 && (text = realloc(text, 20000)) && text[4999] == '1', "asprintf, then realloc");
    FILE *stream = open_memstream(&stream_text, &stream_length);
    for (int i = 0; i < 3000; i++) fprintf(stream, "line %d\n", i);
    fclose(stream);
    stream = fmemopen(stream_text, stream_length, "r");
    int lines = 0;
    while (getline(&line, &length, stream) > 0) lines++;
    fclose(stream);
    CHECK(lines == 3000, "open_memstream, fmemopen and getline");
    char *copy = strdup(text), *path = realpath("/proc/self/..", NULL), *here = getcwd(NULL, 0);
    CHECK(copy && path && here && strcmp(path, "/proc") == 0, "strdup, realpath and getcwd");
    free(text), free(line), free(stream_text), free(copy), free(path), free(here);
}

/* C23's functions, where the library has them: weak, so that this program links without. */
extern void free_sized(void *block, size_t size) __attribute__((weak));
extern void free_aligned_sized(void *block, size_t align, size_t size) __attribute__((weak));

static void sized_frees(void) {
    for (size_t size = 1; size < 100000; size = size * 2 + 1) {
        if (free_sized) free_sized(malloc(size), size);
        if (free_aligned_sized) free_aligned_sized(aligned_alloc(64, size), 64, size);
    }
    reached("free_sized and free_aligned_sized, if they are there");
}

int main(void) {
    begin();
    counts();
    trim();
    information();
    blocks_of_libc();
    sized_frees();
    fprintf(stderr, "-- malloc_stats:\n");
    malloc_stats();
    return finish();
}
