/* operator new and delete in every form: plain, array, nothrow, aligned, sized. Absurd sizes call the new-handler and throw
 * std::bad_alloc. Containers and strings use all of it. */
#include "check.h"

#include <algorithm>
#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <memory_resource>
#include <new>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

static bool aligned(void *block, std::size_t align) { return block && reinterpret_cast<std::uintptr_t>(block) % align == 0; }

static void every_form() {
    bool given = true, kept = true;
    for (std::size_t size = 0; size < 3000000; size = size * 5 / 3 + 1) {
        const std::nothrow_t &quiet = std::nothrow;
        void *a = operator new(size), *b = operator new[](size), *c = operator new(size, quiet), *d = operator new[](size, quiet);
        void *e = operator new(size), *f = operator new[](size);
        given &= aligned(a, 16) && aligned(b, 16) && aligned(c, 16) && aligned(d, 16);
        void *all[] = {a, b, c, d, e, f};
        for (int i = 0; i < 6; i++) fill(all[i], size, size * 6 + static_cast<unsigned>(i));
        for (int i = 0; i < 6; i++) kept &= holds(all[i], size, size, size * 6 + static_cast<unsigned>(i));
        operator delete(a), operator delete[](b), operator delete(c, quiet), operator delete[](d, quiet);
        operator delete(e, size), operator delete[](f, size);
    }
    operator delete(nullptr), operator delete[](nullptr), operator delete(nullptr, std::size_t{8});
    CHECK(given, "new, new[], nothrow: blocks aligned to 16, size 0 too");
    CHECK(kept, "which hold what is written; deleted plain, nothrow and sized");
}

static void every_aligned_form() {
    bool given = true, kept = true;
    for (std::size_t at = 8; at <= 1 << 20; at *= 2)
        for (std::size_t size : {std::size_t{0}, std::size_t{1}, at - 1, at, at * 3 + 1}) {
            const std::nothrow_t &quiet = std::nothrow;
            std::align_val_t align{at};
            void *a = operator new(size, align), *b = operator new[](size, align), *c = operator new(size, align, quiet);
            void *d = operator new[](size, align, quiet), *e = operator new(size, align), *f = operator new[](size, align);
            void *all[] = {a, b, c, d, e, f};
            for (int i = 0; i < 6; i++) given &= aligned(all[i], at), fill(all[i], size, at + static_cast<unsigned>(i));
            for (int i = 0; i < 6; i++) kept &= holds(all[i], size, size, at + static_cast<unsigned>(i));
            operator delete(a, align), operator delete[](b, align), operator delete(c, align, quiet);
            operator delete[](d, align, quiet), operator delete(e, size, align), operator delete[](f, size, align);
        }
    CHECK(given, "aligned new in all forms, 8 B to 1 MiB");
    CHECK(kept, "which hold what is written; deleted aligned, nothrow and sized");
}

static int handler_calls;
static void *reserve;

template <class Call> static bool throws_bad_alloc(Call call) {
    try {
        call();
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

static void absurd_sizes() {
    std::size_t most = hide(SIZE_MAX), half = hide(SIZE_MAX / 2 + 1);
    std::align_val_t align{64};
    CHECK(throws_bad_alloc([&] { return operator new(most); }) && throws_bad_alloc([&] { return operator new(half); }), "new of absurd sizes throws bad_alloc");
    CHECK(throws_bad_alloc([&] { return operator new[](most); }) && throws_bad_alloc([&] { return operator new[](half); }), "new[] of absurd sizes throws bad_alloc");
    CHECK(throws_bad_alloc([&] { return operator new(half, align); }) && throws_bad_alloc([&] { return operator new[](half, align); }), "aligned new of absurd sizes throws bad_alloc");
    CHECK(!operator new(most, std::nothrow) && !operator new[](half, std::nothrow), "nothrow new of absurd sizes gives null");
    CHECK(!operator new(half, align, std::nothrow) && !operator new[](half, align, std::nothrow), "aligned nothrow new of absurd sizes gives null");
    std::align_val_t uneven{hide(48)};
    CHECK(throws_bad_alloc([&] { return operator new(100, uneven); }) && !operator new[](100, uneven, std::nothrow), "aligned new at no power of two throws bad_alloc, nothrow gives null");
    /* libstdc++ 12 rounds the size up to the alignment, past 0. */
    CHECK_STRICT(throws_bad_alloc([&] { return operator new(most, align); }) && !operator new[](most, align, std::nothrow), "aligned new of SIZE_MAX");
    CHECK(throws_bad_alloc([&] { return new int[hide(SIZE_MAX / 2)]; }), "new int[too many] throws a bad_alloc");
    CHECK(throws_bad_alloc([] { std::vector<char>().reserve(hide(PTRDIFF_MAX)); }), "a vector of absurd size throws bad_alloc");
}

/* A new-handler that allocates and deletes, and throws at the third call, as [new.handler] allows. */
static void handler() {
    delete[] static_cast<char *>(reserve);
    reserve = nullptr;
    delete new std::string(1000, 'x');
    if (++handler_calls == 3) std::set_new_handler(nullptr);
}

static void new_handlers() {
    for (int form = 0; form < 4; form++) {
        std::size_t most = hide(SIZE_MAX / 2 + 1);
        handler_calls = 0;
        reserve = new char[100000];
        std::set_new_handler(handler);
        bool refused = false;
        if (form == 0) refused = throws_bad_alloc([&] { return operator new(most); });
        if (form == 1) refused = throws_bad_alloc([&] { return operator new[](most, std::align_val_t{128}); });
        if (form == 2) refused = operator new(most, std::nothrow) == nullptr;
        if (form == 3) refused = operator new[](most, std::align_val_t{128}, std::nothrow) == nullptr;
        static const char *const words[] = {"new asks the handler until there is none", "aligned new[] asks the handler until there is none",
                                            "nothrow new asks the handler until there is none", "aligned nothrow new[] asks the handler until there is none"};
        CHECK(refused && handler_calls == 3, words[form]);
        std::set_new_handler(nullptr);
    }
    std::set_new_handler([] { throw std::bad_alloc(); });
    CHECK(throws_bad_alloc([&] { return operator new(hide(SIZE_MAX)); }), "a handler that throws ends new");
    CHECK(operator new(hide(SIZE_MAX), std::nothrow) == nullptr, "a handler that throws ends nothrow new with null");
    std::set_new_handler(nullptr);
}

struct alignas(256) Wide {
    char bytes[300];
};

static void containers() {
    std::map<std::string, std::vector<std::string>> map;
    std::unordered_map<int, std::unique_ptr<Wide>> wide;
    std::list<std::shared_ptr<std::string>> list;
    bool is_aligned = true;
    std::size_t wanted = 0, total = 0;
    for (int i = 0; i < 20000; i++) {
        map[std::to_string(i % 997)].push_back(std::string(static_cast<std::size_t>(i % 100), 'a'));
        wanted += static_cast<std::size_t>(i % 100) + (i % 997 < 10 ? 1 : i % 997 < 100 ? 2 : 3);
        if (i % 10 == 0) wide[i] = std::make_unique<Wide>();
        is_aligned &= !wide.count(i) || aligned(wide[i].get(), 256);
        list.push_back(std::make_shared<std::string>(std::to_string(i)));
        if (i % 3 == 0) list.pop_front();
    }
    for (auto &[key, texts] : map)
        for (auto &text : texts) total += text.size() + key.size();
    CHECK(is_aligned, "types aligned to 256");
    CHECK(total == wanted && list.size() == 13333, "containers hold what was put into them");
    std::thread([other = std::move(map), list = std::move(list)]() mutable { other.clear(), list.clear(); }).join();
    std::pmr::monotonic_buffer_resource arena;
    std::pmr::vector<std::pmr::string> texts(&arena);
    for (int i = 0; i < 1000; i++) texts.emplace_back(static_cast<std::size_t>(i), 'b');
    CHECK(texts.back().size() == 999, "polymorphic resources");
}

/* libstdc++ allocates exceptions with malloc. */
static void exceptions() {
    int caught = 0;
    for (int i = 0; i < 10000; i++) try {
            throw std::string(static_cast<std::size_t>(i % 500), 'c');
        } catch (const std::string &text) {
            caught += text.size() == static_cast<std::size_t>(i % 500);
        }
    CHECK(caught == 10000, "exceptions with memory of their own");
}

int main() {
    begin();
    every_form();
    every_aligned_form();
    absurd_sizes();
    new_handlers();
    containers();
    exceptions();
    return finish();
}
