// Calls each function once, also with invalid arguments.
#include "torch.hpp"

#include <cmath>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

static bool says(const char *what) { return torch().message().find(what) != std::string::npos; }

void case_hooks() {
    Session session(R"({"profile": "discrete"})");
    auto stream = session.streams[0];
    torch().init(1);
    expect(torch().alloc(0, 0, stream) == nullptr, "no bytes");
    torch().free(nullptr, 0, 0, stream);
    expect(torch().counters().allocations == 0 && torch().message().empty(), "no bytes are no failure");

    auto block = static_cast<char *>(torch().alloc(100'000, 0, stream));
    expect(block != nullptr);
    fill(block, 7, 100'000, stream);
    expect(filled(block, 7, 100'000, stream));
    size_t bytes = 0;
    expect(torch().base_alloc(block + 5000, &bytes) == block && bytes >= 100'000 && bytes < 101'000, "%zu", bytes);
    expect(torch().base_alloc(block, nullptr) == block, "a null size is allowed");
    size_t beyond = 1;
    expect(torch().base_alloc(block + bytes, &beyond) == block + bytes && beyond == 0, "the first byte behind it");
    int elsewhere = 0;
    expect(torch().base_alloc(&elsewhere, &bytes) == &elsewhere && bytes == 0);
    auto stats = torch().counters();
    expect(stats.live_blocks == 1 && stats.in_use >= 100'000 && stats.reserved >= stats.in_use && stats.failed == 0);

    expect(torch().snapshot(0, output()) == 0);
    torch().free(block, 100'000, 0, stream);
    expect(torch().message().empty());
    torch().free(block, 100'000, 0, stream);
    expect(says("freed twice"));
    torch().record_stream(block, stream);
    expect(says("recorded on a stream"));
    torch().record_stream(nullptr, stream);

    expect(torch().alloc(-1, 0, stream) == nullptr && says("less than none"));
    expect(torch().alloc(1, -1, stream) == nullptr && says("no device -1"));
    expect(torch().alloc(1, 1000, stream) == nullptr && says("no device 1000"));
    expect(torch().alloc(1, 5, stream) == nullptr && says("device 5"));
    expect(torch().stats(0, nullptr) == -1 && says("nowhere"));
    expect(torch().snapshot(0, nullptr) == -1 && says("no path"));
    expect(torch().snapshot(0, "/nowhere/at/all") == -1 && says("/nowhere/at/all"));
    torch().end_allocate_to_pool(0, {1, 2});
    expect(says("(1, 2)") && says("ended"));
    torch().release_pool(0, {1, 2});
    expect(says("released"));
    char little[8];
    expect(torch().last_error(little, sizeof little) > 8 && std::string(little) == torch().message().substr(0, 7));

    expect(torch().counters().reserved > 0);
    expect(torch().trim(0) > 0 && torch().counters().reserved == 0);
}

void case_devices() {
    Session session(R"({"profile": "two-peers", "total": 1073741824})", 1, 2);
    auto first = torch().alloc(1 << 20, 0, session.streams[0]);
    auto second = torch().alloc(2 << 20, 1, nullptr);
    expect(first && second && first != second);
    expect(torch().counters(0).in_use == 1 << 20 && torch().counters(1).in_use == 2 << 20);
    // A limit holds until it is lifted; an invalid limit changes nothing.
    torch().memory_fraction(0.25, 1);
    expect(torch().counters(1).capacity == 256 << 20 && torch().counters(0).capacity == 1 << 30);
    expect(torch().alloc(300 << 20, 1, nullptr) == nullptr && says("out of memory"));
    for (double fraction : {-0.5, 1.5, std::nan("")})
        torch().memory_fraction(fraction, 1);
    expect(says("from 0 to 1") && torch().counters(1).capacity == 256 << 20);
    torch().memory_fraction(1, 1);
    auto third = torch().alloc(300 << 20, 1, nullptr);
    expect(third != nullptr);
    torch().free(third, 300 << 20, 1, nullptr);
    torch().free(second, 2 << 20, 1, nullptr);
    torch().free(first, 1 << 20, 0, session.streams[0]);
    torch().reset();
    expect(torch().counters(0).reserved == 0 && torch().counters(1).reserved == 0);
}

// `a.to('cuda:1')` as PyTorch does it: the runtime enables peer access without telling the allocator.
void case_peers() {
    Session session(R"({"profile": "two-peers", "total": 1073741824})", 1, 2);
    const size_t bytes = 4 << 20;
    auto here = session.streams[0];
    auto from = torch().alloc(bytes, 0, here);
    fill(from, 7, bytes, here);
    int can = 0;
    expect(cuda().can_access(&can, 1, 0) == 0 && can == 1);
    Session::enter(1);
    Session::open(0);
    Session::enter(0);
    Session::open(1);
    auto to = torch().alloc(bytes, 1, nullptr);
    expect(from && to);
    // PyTorch copies on the source's stream, with the source's device current.
    expect(cuda().copy(address(to), address(from), bytes, here) == 0);
    expect(filled(to, 7, bytes, here));
    // Kernels on either device access the other's memory too, also memory that is allocated later.
    auto later = torch().alloc(64 << 20, 1, nullptr);
    fill(later, 8, 64 << 20, here);
    expect(filled(later, 8, 64 << 20, here));
    torch().free(later, 64 << 20, 1, nullptr);
    torch().free(to, bytes, 1, nullptr);
    torch().free(from, bytes, 0, here);
}

void case_out_of_memory() {
    Session session(R"({"profile": "discrete", "total": 1073741824})");
    auto stream = session.streams[0];
    std::vector<void *> blocks;
    while (auto block = torch().alloc(100 << 20, 0, stream))
        blocks.push_back(block);
    expect(blocks.size() >= 7 && says("CUDA out of memory") && says("asked for 104857600 bytes"));
    expect(torch().counters().failed == 1);
    // The hook throws an exception, which PyTorch turns into a RuntimeError.
    bool thrown = false;
    try {
        torch().alloc_or_throw(100 << 20, 0, stream);
    } catch (const std::runtime_error &error) {
        thrown = std::string(error.what()).find("CUDA out of memory") == 0;
    }
    expect(thrown);
    expect(torch().alloc_or_throw(0, 0, stream) == nullptr, "no bytes are no failure");
    expect(torch().alloc(ssize_t(1) << 62, 0, stream) == nullptr && says("CUDA out of memory"));
    torch().free(blocks.back(), 100 << 20, 0, stream);
    blocks.back() = torch().alloc_or_throw(100 << 20, 0, stream);
    expect(blocks.back() != nullptr, "what was freed can be had");
    for (auto block : blocks)
        torch().free(block, 100 << 20, 0, stream);
}

// Environment variables: the Rust test sets one to an invalid value.
void case_settings() {
    Session session(R"({"profile": "discrete"})");
    torch().init(1);
    expect(says("TERRACE_TORCH_CAPACITY") && says("lots") && says("12G"));
    expect(torch().alloc(1, 0, session.streams[0]) == nullptr && says("TERRACE_TORCH_CAPACITY"));
}

void case_fork() {
    Session session(R"({"profile": "discrete"})");
    auto block = torch().alloc(1 << 20, 0, session.streams[0]);
    expect(block != nullptr);
    pid_t child = ::fork();
    if (child == 0) {
        torch().free(block, 1 << 20, 0, session.streams[0]);
        bool fine = torch().alloc(1, 0, session.streams[0]) == nullptr && says("fork");
        torch().reset();
        _exit(fine ? 0 : 1);
    }
    int status = 0;
    expect(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    torch().free(block, 1 << 20, 0, session.streams[0]);
}
