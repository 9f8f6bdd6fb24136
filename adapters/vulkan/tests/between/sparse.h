// The role "sparse" of `between.c`: a device that binds pages of 64 KiB to sparse buffers, as numbers.
//
// Each sparse buffer has memory for all of it underneath, so that the machine's device can work on it; what is bound where is a table. The
// process ends where Vulkan's rules are broken, or ours: a page that is used is bound, one that is freed or destroyed is not.
#define PAGE 65536

typedef struct Sparse {
    struct Sparse *next;
    void *buffer, *under;
    uint64_t pages;
    void *bound[];
} Sparse;

static Sparse *all;
static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;

typedef struct { uint64_t at, bytes; void *memory; uint64_t offset; unsigned flags; } Bind;
typedef struct { void *buffer; unsigned count; const Bind *binds; } BufferBinds;
typedef struct {
    HEAD;
    unsigned waits;
    void *const *wait;
    unsigned buffers;
    const BufferBinds *buffer;
    unsigned opaques;
    const void *opaque;
    unsigned images;
    const void *image;
    unsigned signals;
    void *const *signal;
} BindInfo;
typedef struct {
    HEAD;
    unsigned waits;
    void *const *wait;
    const unsigned *stages;
    unsigned commands;
    const void *command;
    unsigned signals;
    void *const *signal;
} SubmitInfo;
typedef struct { HEAD; unsigned flags, family; } PoolInfo;

#define insist(rule) do { if (!(rule)) { say("broken: %s", #rule); abort(); } } while (0)

/// The device says that it can: sparseBinding, sparseResidencyBuffer and sparseResidencyAliased, by number.
static const unsigned FEATURES[] = {44, 45, 52};

static void features(void *physical, void *out) {
    REAL(void, "vkGetPhysicalDeviceFeatures2", void *, void *)(physical, out);
    for (int i = 0; i < 3 && plays("sparse"); i++) ((unsigned *)((char *)out + 16))[FEATURES[i]] = 1;
}

static const unsigned *check_features(const unsigned *asked) {
    for (int i = 0; i < 3; i++) insist(asked && asked[FEATURES[i]]);
    return 0;
}

static void properties(void *physical, void *out) {
    REAL(void, "vkGetPhysicalDeviceProperties", void *, void *)(physical, out);
    // limits.sparseAddressSpaceSize
    if (plays("sparse")) *(uint64_t *)((char *)out + 352) = 1ull << 31;
}

static void families(void *physical, unsigned *count, unsigned *out) {
    REAL(void, "vkGetPhysicalDeviceQueueFamilyProperties", void *, unsigned *, unsigned *)(physical, count, out);
    if (plays("sparse, elsewhere")) {
        if (out) memcpy(out + 6, (unsigned[6]){12, 1, 64, 1, 1, 1}, 24); // copies and binds; a structure is six numbers
        *count += 1;
    } else if (out && plays("sparse")) {
        out[0] |= 8;
    }
}

/// The queue of the second family is the first one's under another number.
static unsigned check_queues(const DeviceInfo *info) {
    insist(info->queues == 2 && info->queue_infos[1].family == 1 && info->queue_infos[1].count == 1);
    return 1;
}

static void get_queue(void *device, unsigned family, unsigned at, void **out) {
    REAL(void, "vkGetDeviceQueue", void *, unsigned, unsigned, void **)(device, 0, at, out);
}

static int create_pool(void *device, const PoolInfo *info, void *alloc, void **out) {
    PoolInfo given = *info;
    given.family = 0;
    return REAL(int, "vkCreateCommandPool", void *, PoolInfo *, void *, void **)(device, &given, alloc, out);
}

static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;

static int queue_submit(void *queue, unsigned count, const SubmitInfo *info, void *fence) {
    pthread_mutex_lock(&queue_lock);
    int code = REAL(int, "vkQueueSubmit", void *, unsigned, const SubmitInfo *, void *)(queue, count, info, fence);
    pthread_mutex_unlock(&queue_lock);
    return code;
}

/// With the table locked.
static Sparse **place_of(void *buffer) {
    Sparse **at = &all;
    while (*at && (*at)->buffer != buffer) at = &(*at)->next;
    return at;
}

static Sparse *find_sparse(void *buffer) {
    pthread_mutex_lock(&table);
    Sparse *found = *place_of(buffer);
    pthread_mutex_unlock(&table);
    return found;
}

static int create_buffer(void *device, const BufferInfo *info, void *alloc, void **out) {
    BufferInfo given = *info;
    given.flags = 0;
    int code = REAL(int, "vkCreateBuffer", void *, BufferInfo *, void *, void **)(device, &given, alloc, out);
    if (!info->flags || code) return code;
    insist(info->flags == 7); // binding, residency, aliased
    struct { uint64_t bytes, alignment; unsigned types; } wanted;
    REAL(void, "vkGetBufferMemoryRequirements", void *, void *, void *)(device, *out, &wanted);
    Allocation memory = {5, 0, wanted.bytes, 0};
    Sparse *made = calloc(1, sizeof *made + (info->bytes / PAGE + 1) * sizeof(void *));
    code = REAL(int, "vkAllocateMemory", void *, Allocation *, void *, void **)(device, &memory, 0, &made->under);
    if (!code) code = REAL(int, "vkBindBufferMemory", void *, void *, void *, uint64_t)(device, *out, made->under, 0);
    insist(!code);
    made->buffer = *out;
    made->pages = info->bytes / PAGE;
    pthread_mutex_lock(&table);
    made->next = all;
    all = made;
    pthread_mutex_unlock(&table);
    return 0;
}

static void destroy_buffer(void *device, void *buffer, void *alloc) {
    pthread_mutex_lock(&table);
    Sparse **at = place_of(buffer), *gone = *at;
    if (gone) *at = gone->next;
    pthread_mutex_unlock(&table);
    REAL(void, "vkDestroyBuffer", void *, void *, void *)(device, buffer, alloc);
    if (!gone) return;
    for (uint64_t i = 0; i < gone->pages; i++) insist(!gone->bound[i]);
    REAL(void, "vkFreeMemory", void *, void *, void *)(device, gone->under, 0);
    free(gone);
}

static void free_memory(void *device, void *memory, void *alloc) {
    pthread_mutex_lock(&table);
    for (Sparse *at = all; at && memory; at = at->next)
        for (uint64_t i = 0; i < at->pages; i++) insist(at->bound[i] != memory);
    pthread_mutex_unlock(&table);
    REAL(void, "vkFreeMemory", void *, void *, void *)(device, memory, alloc);
}

static int bind_sparse(void *queue, unsigned count, const BindInfo *info, void *fence) {
    static const unsigned STAGES[1] = {0x10000};
    insist(count == 1 && info->buffers == 1 && info->waits <= 1 && info->signals == 1);
    const BufferBinds *of = info->buffer;
    if (getenv("BETWEEN_BIND")) return atoi(getenv("BETWEEN_BIND"));
    pthread_mutex_lock(&table);
    Sparse *to = *place_of(of->buffer);
    insist(to && of->count);
    for (unsigned i = 0; i < of->count; i++) {
        Bind bind = of->binds[i];
        insist(bind.bytes && bind.at % PAGE == 0 && bind.bytes % PAGE == 0 && bind.offset == 0 && bind.flags == 0);
        insist((bind.at + bind.bytes) / PAGE <= to->pages);
        for (uint64_t page = bind.at / PAGE; page < (bind.at + bind.bytes) / PAGE; page++) to->bound[page] = bind.memory;
    }
    pthread_mutex_unlock(&table);
    say("vkQueueBindSparse, %u %s", of->count, of->binds->memory ? "bound" : "unbound");
    SubmitInfo submit = {4, info->next, info->waits, info->wait, STAGES, 0, 0, info->signals, info->signal};
    return queue_submit(queue, 1, &submit, fence);
}

static void check_bound(void *buffer, uint64_t at, uint64_t bytes) {
    Sparse *of = find_sparse(buffer);
    for (uint64_t page = at / PAGE; of && page <= (at + bytes - 1) / PAGE; page++) insist(page < of->pages && of->bound[page]);
}

typedef struct { uint64_t from, to, bytes; } Copy;

static void copy_buffer(void *command, void *from, void *to, unsigned count, const Copy *copies) {
    for (unsigned i = 0; i < count; i++) {
        check_bound(from, copies[i].from, copies[i].bytes);
        check_bound(to, copies[i].to, copies[i].bytes);
    }
    REAL(void, "vkCmdCopyBuffer", void *, void *, void *, unsigned, const Copy *)(command, from, to, count, copies);
}

static void fill_buffer(void *command, void *to, uint64_t at, uint64_t bytes, unsigned value) {
    check_bound(to, at, bytes);
    REAL(void, "vkCmdFillBuffer", void *, void *, uint64_t, uint64_t, unsigned)(command, to, at, bytes, value);
}
