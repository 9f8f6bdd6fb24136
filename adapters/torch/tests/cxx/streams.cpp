// When memory is reused: streams, and handles that name no stream.
#include "torch.hpp"

#include <algorithm>

static constexpr size_t BIG = 4 << 20; // no stream caches it

void case_streams() {
    Session session(R"({"profile": "discrete"})", 3);
    auto one = session.streams[0], two = session.streams[1], three = session.streams[2];
    // A stream reuses its own freed memory at once; another stream does not.
    auto first = torch().alloc(4096, 0, one);
    torch().free(first, 4096, 0, one);
    auto other = torch().alloc(4096, 0, two);
    auto again = torch().alloc(4096, 0, one);
    expect(again == first && other != first);
    torch().free(other, 4096, 0, two);
    torch().free(again, 4096, 0, one);

    // Recorded on two streams, and once by the free itself: the memory is not reused while those have work in flight.
    for (bool recorded : {true, false}) {
        auto shared = torch().alloc(BIG, 0, one);
        fill(shared, 1, BIG, one);
        expect(cuda().synchronize(one) == 0);
        simulator().hold();
        fill(shared, 2, BIG, two);
        if (recorded) {
            torch().record_stream(shared, two);
            torch().record_stream(shared, two);
        }
        torch().free(shared, BIG, 0, recorded ? one : two);
        expect(torch().counters().held == 1);
        auto next = torch().alloc(BIG, 0, one), third = torch().alloc(BIG, 0, three);
        expect(next && third && next != shared && third != shared, "memory that a queued fill will write to");
        simulator().release();
        fill(next, 3, BIG, one);
        expect(cuda().synchronize(two) == 0);
        expect(filled(next, 3, BIG, one));
        torch().free(next, BIG, 0, one);
        torch().free(third, BIG, 0, three);
        // Reset waits for blocks that streams still use.
        torch().reset();
        expect(torch().counters().held == 0 && torch().counters().reserved == 0);
    }
    // Recording the block's own stream changes nothing.
    auto own = torch().alloc(4096, 0, one);
    torch().record_stream(own, one);
    torch().free(own, 4096, 0, one);
    expect(torch().alloc(4096, 0, one) == own);
    torch().free(own, 4096, 0, one);
}

void case_handles() {
    Session session(R"({"profile": "discrete"})", 1);
    auto handle = [](uintptr_t number) { return reinterpret_cast<cudaStream_t>(number); };
    // 0 and 1 are the same stream.
    auto first = torch().alloc(4096, 0, handle(0));
    torch().free(first, 4096, 0, handle(1));
    expect(torch().alloc(4096, 0, handle(1)) == first);
    torch().free(first, 4096, 0, handle(0));
    expect(torch().counters().held == 0);
    // Handle 2 names another stream on each thread: its freed memory is reused after the work of all threads is done.
    auto threads = torch().alloc(4096, 0, handle(2));
    expect(threads && threads != first);
    simulator().hold();
    fill(threads, 1, 4096, handle(2));
    torch().free(threads, 4096, 0, handle(2));
    std::vector<void *> others;
    for (int i = 0; i < 64; i++) {
        others.push_back(torch().alloc(4096, 0, handle(2)));
        expect(others.back() && others.back() != threads, "memory that a queued fill will write to");
    }
    simulator().release();
    expect(cuda().synchronize(handle(2)) == 0);
    for (auto other : others)
        torch().free(other, 4096, 0, handle(2));
    torch().reset();
    expect(torch().counters().held == 0 && torch().counters().reserved == 0, "%zu", torch().counters().reserved);
    // An invalid stream is refused, and other streams keep working.
    expect(torch().alloc(4096, 0, handle(0xDEAD0)) == nullptr && !torch().message().empty());
    auto fine = torch().alloc(4096, 0, session.streams[0]);
    torch().free(fine, 4096, 0, handle(0xDEAD0));
    expect(torch().message().find("is not used again") != std::string::npos, "its remaining uses are unknown");
    simulator().forget(); // the allocator had to pass the handle to the driver, which reports it as a violation
}
