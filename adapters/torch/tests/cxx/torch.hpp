// Loads the libraries as a PyTorch process does: the driver first, then libterrace_torch, both at run time.
//
// Provides `torch`, `cuda`, `simulator` (functions by name with PyTorch's and CUDA's own types), `expect`, `Session`.
// Needs the three paths that main() got.
#pragma once

#include "terrace_torch.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <functional>
#include <string>
#include <sys/types.h>
#include <type_traits>
#include <utility>
#include <vector>

// As cuda_runtime_api.h and c10/core/CachingDeviceAllocator.h have them.
struct CUstream_st;
using cudaStream_t = CUstream_st *;
using CaptureId_t = unsigned long long;
using MempoolId_t = std::pair<CaptureId_t, CaptureId_t>;
using Filter = std::function<bool(cudaStream_t)>;

// Reports a failed expectation and ends the program with 1.
#define expect(claim, ...) \
    do { \
        if (!(claim)) { \
            std::printf("%s:%d: %s\n", __FILE__, __LINE__, #claim); \
            std::printf("  " __VA_ARGS__); \
            std::printf("\n  last error: %s\n", torch().message().c_str()); \
            std::fflush(stdout); \
            std::_Exit(1); \
        } \
    } while (0)

template <class F> void find(void *library, const char *name, F &function) {
    function = reinterpret_cast<F>(dlsym(library, name));
    if (!function) {
        std::printf("no %s: %s\n", name, dlerror());
        std::_Exit(1);
    }
}

// libterrace_torch with the types by which PyTorch calls it: pybind casts addresses to exactly these.
struct Torch {
    void *(*alloc)(ssize_t, int, cudaStream_t);
    void *(*alloc_or_throw)(ssize_t, int, cudaStream_t);
    void (*free)(void *, ssize_t, int, cudaStream_t);
    void (*init)(int);
    void (*reset)();
    void (*memory_fraction)(double, int);
    void *(*base_alloc)(void *, size_t *);
    void (*record_stream)(void *, cudaStream_t);
    void (*begin_allocate_to_pool)(int, MempoolId_t, Filter);
    void (*end_allocate_to_pool)(int, MempoolId_t);
    void (*release_pool)(int, MempoolId_t);
    decltype(&terrace_torch_stats) stats;
    decltype(&terrace_torch_snapshot) snapshot;
    decltype(&terrace_torch_last_error) last_error;
    decltype(&terrace_torch_trim) trim;
    decltype(&terrace_torch_close) close;

    explicit Torch(void *library);
    std::string message() const;
    terrace_torch_stats_t counters(int device = 0) const;
};

// Functions of the driver that a program with kernels and copies would call.
struct Cuda {
    int (*init)(unsigned);
    int (*retain)(void **, int);
    int (*release)(int);
    int (*set_current)(void *);
    int (*create)(cudaStream_t *, unsigned);
    int (*destroy)(cudaStream_t);
    int (*synchronize)(cudaStream_t);
    int (*set)(uint64_t, unsigned char, size_t, cudaStream_t);
    int (*read)(void *, uint64_t, size_t, cudaStream_t);
    int (*pin)(void **, size_t);
    int (*unpin)(void *);
    int (*create_event)(void **, unsigned);
    int (*record)(void *, cudaStream_t);
    int (*wait)(cudaStream_t, void *, unsigned);
    int (*destroy_event)(void *);
    int (*begin_capture)(cudaStream_t, int);
    int (*end_capture)(cudaStream_t, void **);
    int (*is_capturing)(cudaStream_t, int *);
    int (*destroy_graph)(void *);
    int (*can_access)(int *, int, int);
    int (*enable_peer)(void *, unsigned);
    int (*copy)(uint64_t, uint64_t, size_t, cudaStream_t);

    explicit Cuda(void *library);
};

// The simulated driver's own functions.
struct Simulator {
    int (*reset)(const char *);
    uint64_t (*calls)(const char *);
    size_t (*violations)(char *, size_t);
    size_t (*leaks)(char *, size_t);
    void (*hold)();
    void (*release)();
    void (*forget)();

    explicit Simulator(void *library);
};

Torch &torch();
Cuda &cuda();
Simulator &simulator();
// The file into which a case may write.
const char *output();

inline uint64_t address(const void *pointer) { return reinterpret_cast<uintptr_t>(pointer); }

// A fresh machine with the first device's context current, and some streams. The end frees everything, and expects no leak
// and no violation.
struct Session {
    std::vector<cudaStream_t> streams;

    explicit Session(const char *profile, int count = 2, int devices = 1);
    ~Session();
    // Makes a device's context current on this thread.
    static void enter(int device = 0);
    // Enables peer access from the current device to another's memory, as the runtime does for PyTorch.
    static void open(int device);

  private:
    int devices;
};

// Sets all bytes, in stream order.
void fill(void *block, unsigned char value, size_t bytes, cudaStream_t stream);
// Whether all bytes are this value, after everything put on the stream so far.
bool filled(void *block, unsigned char value, size_t bytes, cudaStream_t stream);

// The cases, by file.
void case_hooks();
void case_devices();
void case_peers();
void case_out_of_memory();
void case_settings();
void case_fork();
void case_streams();
void case_handles();
void case_pools();
void case_filters();
void case_capture();
void case_property();
