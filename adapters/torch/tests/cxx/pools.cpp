// Pools of captured graphs, and of regions of a program.
#include "torch.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

static constexpr size_t BIG = 3 << 20;

static size_t pool_bytes() { return torch().counters().pools_in_use; }

void case_pools() {
    Session session(R"({"profile": "discrete"})");
    auto one = session.streams[0], two = session.streams[1];
    MempoolId_t id{0, 7};
    auto before = torch().alloc(BIG, 0, one);
    torch().begin_allocate_to_pool(0, id, [one](cudaStream_t stream) { return stream == one; });
    auto inside = torch().alloc(BIG, 0, one), outside = torch().alloc(BIG, 0, two);
    expect(inside && outside && pool_bytes() >= BIG && pool_bytes() < 2 * BIG, "%zu", pool_bytes());
    expect(torch().snapshot(-1, output()) == 0);
    torch().free(inside, BIG, 0, one);
    torch().free(before, BIG, 0, one);
    // Allocations from the pool reuse its own memory, and never the block that was freed to the device.
    auto again = torch().alloc(BIG, 0, one);
    for (int i = 0; i < 100; i++) {
        torch().free(again, BIG, 0, one);
        again = torch().alloc(BIG, 0, one);
        expect(again && pool_bytes() >= BIG && pool_bytes() < 2 * BIG, "%zu", pool_bytes());
    }
    expect(torch().counters().pools_reserved <= 16 * BIG, "a hundred blocks one after the other need no hundred places");
    torch().end_allocate_to_pool(0, id);
    auto after = torch().alloc(BIG, 0, one);
    expect(pool_bytes() < 2 * BIG, "after the end everything is the device's");
    // The same pool begins again inside another: the first pool whose filter accepts serves the allocation.
    torch().begin_allocate_to_pool(0, {0, 8}, [](cudaStream_t) { return false; });
    torch().begin_allocate_to_pool(0, id, [](cudaStream_t) { return true; });
    auto second = torch().alloc(BIG, 0, two);
    expect(pool_bytes() >= 2 * BIG);
    torch().end_allocate_to_pool(0, id);
    torch().end_allocate_to_pool(0, {0, 8});
    torch().release_pool(0, {0, 8});
    torch().release_pool(0, id);
    auto still = torch().counters().pools_reserved;
    expect(still >= 2 * BIG, "one user is left");
    torch().release_pool(0, id);
    torch().free(second, BIG, 0, two);
    torch().free(again, BIG, 0, one);
    torch().free(after, BIG, 0, one);
    torch().free(outside, BIG, 0, two);
    torch().reset();
    expect(torch().counters().pools_reserved == 0, "%zu", torch().counters().pools_reserved);
    expect(torch().message().empty(), "%s", torch().message().c_str());
}

// Filters of any kind are copied, called, and destroyed as often as copied.
void case_filters() {
    Session session(R"({"profile": "discrete"})");
    auto one = session.streams[0];
    auto owned = std::make_shared<std::atomic<int>>(0);
    struct Large {
        std::shared_ptr<std::atomic<int>> asked;
        std::thread::id thread;
        char more[64];
        bool operator()(cudaStream_t) const { return ++*asked, std::this_thread::get_id() == thread; }
    };
    torch().begin_allocate_to_pool(0, {1, 0}, Large{owned, std::this_thread::get_id(), {}});
    expect(owned.use_count() == 2, "%ld copies", owned.use_count());
    // A region's filter tests the thread. Threads that share one stream allocate from their own pools concurrently.
    std::atomic<size_t> wrong{0};
    auto mine = [&](bool inside) {
        Session::enter();
        for (int i = 0; i < 200; i++) {
            auto block = torch().alloc(BIG, 0, one);
            size_t bytes = 0;
            wrong += !block || torch().base_alloc(block, &bytes) != block || bytes < BIG;
            if (inside)
                wrong += pool_bytes() < BIG;
            torch().free(block, BIG, 0, one);
        }
        cuda().set_current(nullptr);
    };
    std::thread other(mine, false);
    mine(true);
    other.join();
    Session::enter();
    expect(wrong == 0 && *owned >= 400, "%d", owned->load());
    expect(torch().counters().pools_reserved < 4 * BIG, "the other thread has its memory from the device");
    torch().end_allocate_to_pool(0, {1, 0});
    expect(owned.use_count() == 1, "%ld copies", owned.use_count());
    torch().release_pool(0, {1, 0});
    // A filter that accepts a stream no more: the stream's next block is the device's.
    bool inside = true;
    torch().begin_allocate_to_pool(0, {1, 2}, [&inside](cudaStream_t) { return inside; });
    auto pooled = torch().alloc(BIG, 0, one);
    expect(pool_bytes() >= BIG);
    inside = false;
    auto own = torch().alloc(BIG, 0, one);
    expect(pool_bytes() < 2 * BIG, "%zu", pool_bytes());
    torch().free(pooled, BIG, 0, one);
    torch().free(own, BIG, 0, one);
    torch().end_allocate_to_pool(0, {1, 2});
    torch().release_pool(0, {1, 2});
    // An empty function accepts every stream.
    torch().begin_allocate_to_pool(0, {1, 1}, nullptr);
    auto block = torch().alloc(BIG, 0, one);
    expect(pool_bytes() >= BIG);
    torch().free(block, BIG, 0, one);
    torch().end_allocate_to_pool(0, {1, 1});
    torch().release_pool(0, {1, 1});
}

static bool capturing(cudaStream_t stream) {
    int state = 0;
    return cuda().is_capturing(stream, &state) == 0 && state == 1;
}

// Enough allocations and frees on a stream that fences are queried.
static void use_others(cudaStream_t stream) {
    for (int i = 0; i < 200; i++) {
        size_t bytes = 50'000 + i * 1000;
        auto block = torch().alloc(bytes, 0, stream);
        expect(block != nullptr);
        torch().free(block, bytes, 0, stream);
    }
}

// The only stream so far has freed memory and begins a capture; a second stream appears meanwhile.
static void capture_the_only_stream() {
    Session session(R"({"profile": "discrete"})", 2);
    auto only = session.streams[0], late = session.streams[1];
    auto before = torch().alloc(BIG, 0, only);
    fill(before, 1, BIG, only);
    torch().free(before, BIG, 0, only);
    torch().begin_allocate_to_pool(0, {0, 1}, capturing);
    expect(cuda().begin_capture(only, 0) == 0);
    auto inside = torch().alloc(BIG, 0, only), outside = torch().alloc(BIG, 0, late);
    expect(inside && outside && pool_bytes() >= BIG && pool_bytes() < 2 * BIG, "%s", torch().message().c_str());
    torch().free(outside, BIG, 0, late);
    torch().free(inside, BIG, 0, only);
    void *graph = nullptr;
    expect(cuda().end_capture(only, &graph) == 0, "the capture was disturbed");
    torch().end_allocate_to_pool(0, {0, 1});
    expect(cuda().destroy_graph(graph) == 0);
    torch().release_pool(0, {0, 1});
}

// As torch.cuda.graph does it: begins the pool, then a capture in global mode on a stream that is new to the allocator.
void case_capture() {
    capture_the_only_stream();
    Session session(R"({"profile": "discrete"})", 3);
    auto one = session.streams[0], fresh = session.streams[1], forked = session.streams[2];
    for (int round = 0; round < 3; round++) {
        // The only stream so far frees memory with work in flight; in later rounds the second stream has a block too.
        auto before = torch().alloc(BIG, 0, one), early = round ? torch().alloc(BIG, 0, fresh) : nullptr;
        fill(before, 1, BIG, one);
        torch().free(before, BIG, 0, one);
        torch().begin_allocate_to_pool(0, {0, 1}, capturing);
        expect(cuda().begin_capture(fresh, 0) == 0);
        // In the first round the captured stream is named before any fence of the other stream's work is queried. In later
        // rounds it frees a block before any other call names it, and the other stream's allocations query fences.
        if (round) {
            torch().free(early, BIG, 0, fresh);
            use_others(one);
        }
        auto inside = torch().alloc(BIG, 0, fresh);
        expect(inside != nullptr);
        fill(inside, 2, BIG, fresh);
        // A second stream joins the capture by an event.
        void *event = nullptr;
        expect(cuda().create_event(&event, 2) == 0 && cuda().record(event, fresh) == 0 && cuda().wait(forked, event, 0) == 0);
        auto beside = torch().alloc(BIG, 0, forked);
        expect(beside && pool_bytes() >= 2 * BIG, "%zu", pool_bytes());
        fill(beside, 3, BIG, forked);
        torch().record_stream(inside, forked);
        torch().free(beside, BIG, 0, forked);
        torch().free(inside, BIG, 0, fresh);
        expect(cuda().record(event, forked) == 0 && cuda().wait(fresh, event, 0) == 0);
        use_others(one);
        void *graph = nullptr;
        expect(cuda().end_capture(fresh, &graph) == 0, "the capture was disturbed");
        torch().end_allocate_to_pool(0, {0, 1});
        expect(cuda().destroy_graph(graph) == 0 && cuda().destroy_event(event) == 0);
        torch().release_pool(0, {0, 1});
        expect(torch().message().empty(), "%s", torch().message().c_str());
    }
}
