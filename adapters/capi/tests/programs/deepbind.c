/* A program loads a library, the opener, which opens another with RTLD_DEEPBIND by its bare name: only the opener's RUNPATH
 * leads there. That one's blocks must come from the program's malloc. With OPENER this file is the opener. Argument: the
 * opener. */
#include "check.h"

#ifdef OPENER
void *open_inner(int flags) {
    void *volatile handle = dlopen("inner.so", flags); /* called from here, not jumped to */
    return handle;
}
#else
int main(int count, char **arguments) {
    begin();
    if (count < 2) die("argument: the library that opens");
    void *opener = dlopen(arguments[1], RTLD_NOW);
    void *(*open_inner)(int) = NULL, *(*work)(int) = NULL;
    if (opener) *(void **)&open_inner = dlsym(opener, "open_inner");
    if (!open_inner) die("no library that opens");
    CHECK(open_inner(RTLD_NOW | RTLD_DEEPBIND | RTLD_NOLOAD) == NULL, "the other flags pass");
    void *inner = open_inner(RTLD_NOW | RTLD_DEEPBIND);
    CHECK(inner != NULL, "found in the RUNPATH of the library that opens it");
    if (inner) *(void **)&work = dlsym(inner, "plugin_work");
    if (!work) die("no plugin");
    char *block = work(5);
    CHECK(block[599] == 5, "its block");
    free(block);
    CHECK(dlopen("no such library", RTLD_NOW) == NULL && dlerror() != NULL, "what cannot be opened is told");
    return finish();
}
#endif
