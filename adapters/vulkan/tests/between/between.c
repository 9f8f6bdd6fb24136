// A Vulkan library that stands between a test and the machine's own. The variables say in what it differs:
//
//   BETWEEN_REAL   path of the machine's library, which does all the rest
//   BETWEEN_HIDES  name of a function that it does not have
//   BETWEEN_IDLE   what vkDeviceWaitIdle returns
//   BETWEEN_ROLE   "portable": a driver over another interface; "no_import": no buffer can be imported;
//                  "two_heaps": the host's memory is a heap of its own, and the device's is of 64 MiB;
//                  "sparse": a device of 256 MiB that binds pages, see sparse.h; "sparse, elsewhere": by a queue of another family
//   BETWEEN_BIND   what vkQueueBindSparse returns, and does nothing
//
// Calls that create, bind and destroy, and what they are told, go to the standard output as "call: ...".
#include "between.h"
#include "sparse.h"

static int create_instance(const InstanceInfo *info, void *alloc, void **out) {
    int enumerates = 0;
    for (unsigned i = 0; i < info->extensions; i++)
        enumerates |= !strcmp(info->extension_names[i], "VK_KHR_portability_enumeration");
    say("vkCreateInstance%s%s", info->flags & 1 ? ", portable" : "", enumerates ? ", enumerates" : "");
    return REAL(int, "vkCreateInstance", const InstanceInfo *, void *, void **)(info, alloc, out);
}

static void destroy_instance(void *of, void *alloc) {
    say("vkDestroyInstance");
    REAL(void, "vkDestroyInstance", void *, void *)(of, alloc);
}

static int create_device(void *physical, const DeviceInfo *info, void *alloc, void **out) {
    DeviceInfo given = *info;
    const char *names[16];
    given.extensions = 0;
    given.extension_names = names;
    for (unsigned i = 0; i < info->extensions; i++)
        if (strcmp(info->extension_names[i], "VK_KHR_portability_subset"))
            names[given.extensions++] = info->extension_names[i];
    say("vkCreateDevice%s", given.extensions < info->extensions ? ", portable" : "");
    if (plays("sparse")) given.features = check_features(info->features);
    if (plays("sparse, elsewhere")) given.queues = check_queues(info);
    return REAL(int, "vkCreateDevice", void *, DeviceInfo *, void *, void **)(physical, &given, alloc, out);
}

static void destroy_device(void *of, void *alloc) {
    say("vkDestroyDevice");
    REAL(void, "vkDestroyDevice", void *, void *)(of, alloc);
}

static int wait_idle(void *of) {
    const char *code = getenv("BETWEEN_IDLE");
    say("vkDeviceWaitIdle");
    int done = REAL(int, "vkDeviceWaitIdle", void *)(of);
    return code ? atoi(code) : done;
}

static int extensions(void *physical, const char *layer, unsigned *count, Extension *out) {
    int (*call)(void *, const char *, unsigned *, Extension *) = real("vkEnumerateDeviceExtensionProperties");
    if (!plays("portable")) return call(physical, layer, count, out);
    unsigned room = *count, all = 0;
    call(physical, layer, &all, 0);
    *count = all + 1;
    if (!out) return 0;
    if (room < all + 1) return 5; // VK_INCOMPLETE
    call(physical, layer, &all, out);
    strcpy(out[all].name, "VK_KHR_portability_subset");
    return 0;
}

static void external_buffers(void *physical, void *info, ExternalBuffers *out) {
    REAL(void, "vkGetPhysicalDeviceExternalBufferProperties", void *, void *, void *)(physical, info, out);
    if (plays("no_import")) out->features = 0;
}

static void memory(void *physical, Memory *out) {
    REAL(void, "vkGetPhysicalDeviceMemoryProperties", void *, Memory *)(physical, out);
    if (plays("sparse")) out->heap[0].bytes = 256 << 20;
    if (!plays("two_heaps")) return;
    out->types = out->heaps = 2;
    out->type[1].flags = 6; // host-visible and coherent
    out->type[1].heap = 1;
    out->heap[1] = out->heap[0];
    out->heap[1].flags = 0;
    out->heap[0].bytes = 64 << 20;
}

static void requirements(void *of, const BufferOf *info, Requirements *out) {
    REAL(void, "vkGetBufferMemoryRequirements2", void *, const BufferOf *, Requirements *)(of, info, out);
    if (plays("two_heaps")) out->types = 3;
    if (find_sparse(info->buffer)) out->alignment = PAGE;
}

static int allocate(void *of, const Allocation *info, void *alloc, void **out) {
    Allocation given = *info;
    if (plays("two_heaps")) given.type = 0;
    return REAL(int, "vkAllocateMemory", void *, Allocation *, void *, void **)(of, &given, alloc, out);
}

void *vkGetInstanceProcAddr(void *of, const char *name);

static void *device_function(void *of, const char *name);

static const struct { const char *name; void *function; } OURS[] = {
    {"vkGetInstanceProcAddr", vkGetInstanceProcAddr}, {"vkGetDeviceProcAddr", device_function},
    {"vkCreateInstance", create_instance}, {"vkDestroyInstance", destroy_instance},
    {"vkCreateDevice", create_device}, {"vkDestroyDevice", destroy_device}, {"vkDeviceWaitIdle", wait_idle},
    {"vkEnumerateDeviceExtensionProperties", extensions}, {"vkGetPhysicalDeviceExternalBufferProperties", external_buffers},
    {"vkGetPhysicalDeviceMemoryProperties", memory}, {"vkGetBufferMemoryRequirements2", requirements},
    {"vkAllocateMemory", allocate},
    {"vkGetPhysicalDeviceFeatures2", features}, {"vkGetPhysicalDeviceProperties", properties},
    {"vkGetPhysicalDeviceQueueFamilyProperties", families}, {"vkCreateBuffer", create_buffer},
    {"vkDestroyBuffer", destroy_buffer}, {"vkFreeMemory", free_memory}, {"vkQueueBindSparse", bind_sparse},
    {"vkGetDeviceQueue", get_queue}, {"vkCreateCommandPool", create_pool}, {"vkQueueSubmit", queue_submit},
    {"vkCmdCopyBuffer", copy_buffer}, {"vkCmdFillBuffer", fill_buffer},
};

static void *found(const char *name, void *theirs) {
    const char *hidden = getenv("BETWEEN_HIDES");
    if (!theirs || (hidden && !strcmp(hidden, name))) return 0;
    for (unsigned i = 0; i < sizeof OURS / sizeof *OURS; i++)
        if (!strcmp(OURS[i].name, name)) return OURS[i].function;
    return theirs;
}

static void *device_function(void *of, const char *name) {
    return found(name, REAL(void *, "vkGetDeviceProcAddr", void *, const char *)(of, name));
}

void *vkGetInstanceProcAddr(void *of, const char *name) {
    return found(name, REAL(void *, "vkGetInstanceProcAddr", void *, const char *)(of, name));
}
