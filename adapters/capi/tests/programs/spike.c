/* Frees 200 MB of small blocks and makes no call after that: the library's purge thread returns the memory, in a forked child
 * too. 20 MB start no thread: later calls purge them in pieces. Argument: "never" if the setting forbids the thread. */
#include "check.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/wait.h>

enum { block = 1000, count = 200000, most_seconds = 30 };
static void *blocks[count];

static long resident_pages(void) {
    long all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &all, &resident) != 2) die("no statm");
    fclose(file);
    return resident;
}

static int threads(void) {
    DIR *folder = opendir("/proc/self/task");
    int found = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) found += entry->d_name[0] != '.';
    closedir(folder);
    return found;
}

static void fill_and_free(size_t how_many) {
    for (size_t i = 0; i < how_many; i++)
        if (!(blocks[i] = malloc(block))) die("no memory");
        else memset(blocks[i], 1, block);
    for (size_t i = 0; i < how_many; i++) free(blocks[i]);
}

/* Whether the memory is returned within half a minute, without a call of the library. */
static bool comes_back(long before) {
    double start = now();
    char line[100];
    while (now() - start < most_seconds) {
        int file = open("/proc/self/statm", O_RDONLY);
        ssize_t length = read(file, line, sizeof line - 1);
        close(file);
        line[length > 0 ? length : 0] = 0;
        char *second = strchr(line, ' ');
        if (second && strtol(second, NULL, 10) - before < count / 4096 * block / 10) return true;
        usleep(10000);
    }
    return false;
}

/* Resident KiB, exact to the page. */
static long exact_resident(void) {
    char text[2000];
    int file = open("/proc/self/smaps_rollup", O_RDONLY);
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    text[length > 0 ? length : 0] = 0;
    char *found = strstr(text, "\nRss:");
    if (!found) die("no smaps_rollup");
    return strtol(found + 5, NULL, 10);
}

/* Each call purges 1 MiB, rounded up to slices of 64 KiB. */
static void in_pieces(void) {
    fill_and_free(20000);
    usleep(600000); /* two delays and a step of the clock */
    long first = exact_resident(), last = first, worst = 0;
    for (int pair = 0; pair < 50; pair++) {
        free(malloc(hide(200000)));
        long rest = exact_resident();
        if (last - rest > worst) worst = last - rest;
        last = rest;
    }
    CHECK(worst <= 2 * (1024 + 64), "a pair of calls gives two pieces back at most");
    CHECK(first - last > 16 << 10, "50 pairs give everything back");
}

int main(int arguments, char **argument) {
    begin();
    bool never = arguments > 1 && strcmp(argument[1], "never") == 0;
    if (!never) in_pieces();
    fill_and_free(10000);
    long before = resident_pages();
    CHECK(threads() == 1, "10 MB start no thread");
    fill_and_free(count);
    if (never) {
        CHECK(threads() == 1, "no thread where none is wanted");
        return finish();
    }
    CHECK(threads() == 2, "200 MB do");
    CHECK(comes_back(before), "memory comes back without a call");
    int good = 0;
    for (int child = 0; child < 5; child++) {
        if (child == 2) fill_and_free(count); /* so that the process forks while the purge thread works */
        if (child > 2) {
            /* A round of purging is under way; the child's frees come after its start. */
            fill_and_free(count);
            comes_back(before + count / 4096 * block / 2);
        }
        pid_t pid = fork();
        if (pid == 0) {
            alarm(60);
            if (threads() != 1) _exit(4);
            fill_and_free(count);
            _exit(threads() == 2 && comes_back(before) ? 0 : 5);
        }
        int status = -1;
        waitpid(pid, &status, 0);
        good += WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    CHECK(good == 5, "in five children too, each with a thread of its own");
    CHECK(threads() == 2, "the parent has one still");
    return finish();
}
