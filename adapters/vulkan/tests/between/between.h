// What `between.c` needs of the machine's library, and of Vulkan's structures in the layout of a machine of 64 bits.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define say(what, ...) dprintf(1, "call: " what "\n", ##__VA_ARGS__)
#define HEAD int type_of; const void *next

/// A function of the machine's library, which exports those of Vulkan 1.0 to 1.2.
static void *real(const char *name) {
    return dlsym(dlopen(getenv("BETWEEN_REAL"), RTLD_NOW | RTLD_LOCAL), name);
}
#define REAL(returns, name, ...) ((returns (*)(__VA_ARGS__))real(name))

static int plays(const char *role) {
    const char *asked = getenv("BETWEEN_ROLE");
    return asked && !strncmp(asked, role, strlen(role));
}

typedef struct {
    HEAD;
    unsigned flags;
    const void *application;
    unsigned layers;
    const char **layer_names;
    unsigned extensions;
    const char **extension_names;
} InstanceInfo;

typedef struct { HEAD; unsigned flags, family, count; const float *priorities; } QueueInfo;

typedef struct {
    HEAD;
    unsigned flags, queues;
    const QueueInfo *queue_infos;
    unsigned layers;
    const char **layer_names;
    unsigned extensions;
    const char **extension_names;
    const unsigned *features;
} DeviceInfo;

typedef struct { char name[256]; unsigned version; } Extension;
typedef struct { HEAD; unsigned features, from, compatible; } ExternalBuffers;
typedef struct {
    unsigned types;
    struct { unsigned flags, heap; } type[32];
    unsigned heaps;
    struct { uint64_t bytes; unsigned flags; } heap[16];
} Memory;
typedef struct { HEAD; void *buffer; } BufferOf;
typedef struct { HEAD; uint64_t bytes, alignment; unsigned types; } Requirements;
typedef struct { HEAD; uint64_t bytes; unsigned type; } Allocation;
typedef struct { HEAD; unsigned flags; uint64_t bytes; unsigned usage, sharing, count; const unsigned *families; } BufferInfo;
