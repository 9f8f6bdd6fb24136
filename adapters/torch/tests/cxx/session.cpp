// Loads the libraries; begins and ends each case.
#include "torch.hpp"

#include <cstring>

static void *open_library(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        std::printf("%s\n", dlerror());
        std::_Exit(1);
    }
    return library;
}

static const char *paths[3];

Torch::Torch(void *library) {
    find(library, "terrace_torch_alloc", alloc);
    find(library, "terrace_torch_alloc_or_throw", alloc_or_throw);
    find(library, "terrace_torch_free", free);
    find(library, "terrace_torch_init", init);
    find(library, "terrace_torch_reset", reset);
    find(library, "terrace_torch_memory_fraction", memory_fraction);
    find(library, "terrace_torch_base_alloc", base_alloc);
    find(library, "terrace_torch_record_stream", record_stream);
    find(library, "terrace_torch_begin_allocate_to_pool", begin_allocate_to_pool);
    find(library, "terrace_torch_end_allocate_to_pool", end_allocate_to_pool);
    find(library, "terrace_torch_release_pool", release_pool);
    find(library, "terrace_torch_stats", stats);
    find(library, "terrace_torch_snapshot", snapshot);
    find(library, "terrace_torch_last_error", last_error);
    find(library, "terrace_torch_trim", trim);
    find(library, "terrace_torch_close", close);
}

std::string Torch::message() const {
    std::string text(last_error(nullptr, 0), ' ');
    last_error(text.data(), text.size() + 1);
    return text;
}

terrace_torch_stats_t Torch::counters(int device) const {
    terrace_torch_stats_t out;
    std::memset(&out, 0xFF, sizeof out);
    expect(stats(device, &out) == 0);
    return out;
}

Cuda::Cuda(void *library) {
    find(library, "cuInit", init);
    find(library, "cuDevicePrimaryCtxRetain", retain);
    find(library, "cuDevicePrimaryCtxRelease_v2", release);
    find(library, "cuCtxSetCurrent", set_current);
    find(library, "cuStreamCreate", create);
    find(library, "cuStreamDestroy_v2", destroy);
    find(library, "cuStreamSynchronize", synchronize);
    find(library, "cuMemsetD8Async", set);
    find(library, "cuMemcpyDtoHAsync_v2", read);
    find(library, "cuMemAllocHost_v2", pin);
    find(library, "cuMemFreeHost", unpin);
    find(library, "cuEventCreate", create_event);
    find(library, "cuEventRecord", record);
    find(library, "cuStreamWaitEvent", wait);
    find(library, "cuEventDestroy_v2", destroy_event);
    find(library, "cuStreamBeginCapture_v2", begin_capture);
    find(library, "cuStreamEndCapture", end_capture);
    find(library, "cuStreamIsCapturing", is_capturing);
    find(library, "cuGraphDestroy", destroy_graph);
    find(library, "cuDeviceCanAccessPeer", can_access);
    find(library, "cuCtxEnablePeerAccess", enable_peer);
    find(library, "cuMemcpyAsync", copy);
}

Simulator::Simulator(void *library) {
    find(library, "simcuda_reset", reset);
    find(library, "simcuda_calls", calls);
    find(library, "simcuda_violations", violations);
    find(library, "simcuda_leaks", leaks);
    find(library, "simcuda_hold", hold);
    find(library, "simcuda_release", release);
    find(library, "simcuda_forget", forget);
}

static void *driver() {
    static void *library = open_library(paths[0]);
    return library;
}

Torch &torch() {
    driver(); // first: every later look-up of the driver finds the simulated one
    static Torch functions(open_library(paths[1]));
    return functions;
}

Cuda &cuda() {
    static Cuda functions(driver());
    return functions;
}

Simulator &simulator() {
    static Simulator functions(driver());
    return functions;
}

const char *output() { return paths[2]; }

static void *contexts[8];

Session::Session(const char *profile, int count, int devices) : streams(count), devices(devices) {
    expect(simulator().reset(profile) == 0);
    expect(cuda().init(0) == 0);
    for (int device = 0; device < devices; device++)
        expect(cuda().retain(&contexts[device], device) == 0);
    enter();
    for (auto &stream : streams)
        expect(cuda().create(&stream, 1) == 0);
}

void Session::enter(int device) { expect(cuda().set_current(contexts[device]) == 0); }

void Session::open(int device) { expect(cuda().enable_peer(contexts[device], 0) == 0); }

static std::string text(size_t (*read)(char *, size_t)) {
    std::string text(read(nullptr, 0), ' ');
    read(text.data(), text.size() + 1);
    return text;
}

Session::~Session() {
    torch().reset();
    expect(torch().close() == 0, "blocks are left");
    for (auto stream : streams)
        expect(cuda().destroy(stream) == 0);
    expect(cuda().set_current(nullptr) == 0);
    for (int device = 0; device < devices; device++)
        expect(cuda().release(device) == 0);
    auto violations = text(simulator().violations), leaks = text(simulator().leaks);
    expect(violations.empty(), "%s", violations.c_str());
    expect(leaks.empty(), "%s", leaks.c_str());
}

void fill(void *block, unsigned char value, size_t bytes, cudaStream_t stream) {
    expect(cuda().set(address(block), value, bytes, stream) == 0);
}

bool filled(void *block, unsigned char value, size_t bytes, cudaStream_t stream) {
    std::vector<unsigned char> host(bytes, static_cast<unsigned char>(value + 1));
    expect(cuda().read(host.data(), address(block), bytes, stream) == 0);
    expect(cuda().synchronize(stream) == 0);
    return host == std::vector<unsigned char>(bytes, value);
}

int main(int count, char **arguments) {
    static const std::pair<const char *, void (*)()> cases[] = {
        {"hooks", case_hooks},     {"devices", case_devices}, {"peers", case_peers},
        {"out_of_memory", case_out_of_memory},
        {"settings", case_settings}, {"fork", case_fork},     {"streams", case_streams},
        {"handles", case_handles}, {"pools", case_pools},     {"filters", case_filters},
        {"capture", case_capture}, {"property", case_property},
    };
    if (count != 5)
        return std::printf("DRIVER LIBRARY OUTPUT CASE\n"), 2;
    for (int i = 0; i < 3; i++)
        paths[i] = arguments[i + 1];
    for (auto [name, run] : cases)
        if (std::string(name) == arguments[4])
            return run(), std::printf("case %s: fine\n", name), 0;
    return std::printf("no case %s\n", arguments[4]), 2;
}
