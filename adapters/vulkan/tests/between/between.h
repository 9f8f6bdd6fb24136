// What `between.c` needs of Vulkan's structures, in the layout of a machine of 64 bits.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define say(...) (dprintf(1, "call: " __VA_ARGS__), dprintf(1, "\n"))
#define HEAD int type_of; const void *next

typedef struct {
    HEAD;
    unsigned flags;
    const void *application;
    unsigned layers;
    const char **layer_names;
    unsigned extensions;
    const char **extension_names;
} InstanceInfo;

typedef struct {
    HEAD;
    unsigned flags, queues;
    const void *queue_infos;
    unsigned layers;
    const char **layer_names;
    unsigned extensions;
    const char **extension_names;
    const void *features;
} DeviceInfo;

typedef struct { char name[256]; unsigned version; } Extension;
typedef struct { HEAD; unsigned features, from, compatible; } ExternalBuffers;
typedef struct {
    unsigned types;
    struct { unsigned flags, heap; } type[32];
    unsigned heaps;
    struct { uint64_t bytes; unsigned flags; } heap[16];
} Memory;
typedef struct { HEAD; uint64_t bytes, alignment; unsigned types; } Requirements;
typedef struct { HEAD; uint64_t bytes; unsigned type; } Allocation;
