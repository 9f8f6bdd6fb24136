// 20,000 random steps over 4 streams and 2 threads, every byte checked.
//
// Each block is filled on its stream after it was allocated, and copied to the host before it is freed, all in stream order
// and without waiting: memory that was given out too early would show another block's value. Readers on other streams are
// slow, and the simulated driver tells of every two uses of a byte that no stream or event orders.
#include "torch.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <random>
#include <thread>

static constexpr int STEPS = 10'000; // for each of two threads
static constexpr size_t LIVE = 150;
static constexpr size_t LARGEST = 2 << 20;
static constexpr size_t IN_FLIGHT = 24;
static constexpr size_t WORK = 16 << 20; // bytes that a slow reader sets first

struct Block {
    void *memory;
    size_t bytes;
    unsigned char value;
    cudaStream_t stream;
};

// The bytes of a block when it was freed, valid once its stream has executed the copy.
struct Copy {
    const unsigned char *host;
    size_t bytes;
    unsigned char value;
    cudaStream_t stream;
};

class Worker {
  public:
    Worker(unsigned seed, const std::vector<cudaStream_t> &streams) : random(seed), streams(streams) {}

    void run() {
        Session::enter();
        expect(cuda().create_event(&event, 2) == 0);
        expect(cuda().pin(reinterpret_cast<void **>(&pinned), (IN_FLIGHT + 1) * LARGEST) == 0);
        for (auto stream : streams)
            work[stream] = torch().alloc(WORK, 0, stream);
        for (int step = 0; step < STEPS; step++) {
            if (live.size() < LIVE && (live.empty() || random() % 2))
                allocate();
            else
                free(random() % live.size());
            if (step % 2000 == 1999)
                torch().reset();
        }
        while (!live.empty())
            free(live.size() - 1);
        check(0);
        for (auto [stream, block] : work)
            torch().free(block, WORK, 0, stream);
        expect(cuda().unpin(pinned) == 0 && cuda().destroy_event(event) == 0 && cuda().set_current(nullptr) == 0);
    }

  private:
    cudaStream_t any() { return streams[random() % streams.size()]; }

    void allocate() {
        // 1 byte to 256 KiB, as many of each order of magnitude, half of them powers of two, so that what is freed is soon
        // what is asked for; some of 2 MiB, which no stream caches.
        double exponent = std::uniform_real_distribution<double>(0, 18)(random);
        exponent = random() % 2 ? exponent : std::floor(exponent);
        size_t bytes = random() % 50 ? static_cast<size_t>(std::exp2(exponent)) : LARGEST;
        Block block{nullptr, bytes, static_cast<unsigned char>(random()), any()};
        block.memory = torch().alloc(ssize_t(bytes), 0, block.stream);
        expect(block.memory != nullptr);
        fill(block.memory, block.value, bytes, block.stream);
        live.push_back(block);
    }

    void free(size_t at) {
        std::swap(live[at], live.back());
        Block block = live.back();
        live.pop_back();
        // A quarter are read on another stream, after the fill, and the allocator is told in one of two ways.
        cudaStream_t reader = random() % 4 ? block.stream : any(), named = block.stream;
        if (reader != block.stream) {
            expect(cuda().record(event, block.stream) == 0 && cuda().wait(reader, event, 0) == 0);
            // The reader is slow: it has a millisecond's work to do first.
            fill(work[reader], 0, WORK, reader);
            if (random() % 2)
                torch().record_stream(block.memory, reader);
            else
                named = reader;
        }
        auto host = pinned + (freed++ % (IN_FLIGHT + 1)) * LARGEST;
        std::fill_n(host, block.bytes, block.value ^ 0xFF);
        expect(cuda().read(host, address(block.memory), block.bytes, reader) == 0);
        copies.push_back({host, block.bytes, block.value, reader});
        torch().free(block.memory, ssize_t(block.bytes), 0, named);
        check(IN_FLIGHT);
    }

    // Waits for copies until this many are left.
    void check(size_t left) {
        for (; copies.size() > left; copies.pop_front()) {
            const Copy &copy = copies.front();
            expect(cuda().synchronize(copy.stream) == 0);
            auto end = copy.host + copy.bytes;
            auto wrong = std::find_if(copy.host, end, [&](auto byte) { return byte != copy.value; });
            expect(wrong == end, "byte %zd of %zu", wrong - copy.host, copy.bytes);
        }
    }

    std::mt19937 random;
    const std::vector<cudaStream_t> &streams;
    std::vector<Block> live;
    std::deque<Copy> copies;
    // A slot for each copy in flight, used in turn. Pinned, since a copy to pageable memory blocks the caller.
    unsigned char *pinned = nullptr;
    size_t freed = 0;
    void *event = nullptr;
    std::map<cudaStream_t, void *> work;
};

void case_property() {
    for (const char *profile : {R"({"profile": "discrete", "total": 2147483648})", R"({"profile": "vgpu"})"}) {
        Session session(profile, 4);
        Worker first(1, session.streams), second(2, session.streams);
        std::thread other([&] { second.run(); });
        first.run();
        other.join();
        Session::enter();
        torch().reset(); // blocks that others still used count as live until then
        auto stats = torch().counters();
        std::printf("%s: %zu allocations, %zu events, peak in use %zu\n", profile, size_t(stats.allocations),
                    size_t(stats.events), size_t(stats.peak_in_use));
        expect(stats.live_blocks == 0 && stats.held == 0 && stats.failed == 0 && stats.allocations > 9000);
    }
}
