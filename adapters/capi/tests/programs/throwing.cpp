/* C++ out of memory: new throws, nothrow new returns null, containers stay unchanged, and after the frees all of it works
 * again. Argument: megabytes above what is mapped at the start. */
#include "limits.h"

#include <new>
#include <string>
#include <utility>
#include <vector>

template <class Call> static bool throws_bad_alloc(Call call) {
    try {
        call();
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

/* A list that links the blocks themselves, so that it needs no other memory. */
struct Node {
    Node *next;
    char bytes[1 << 18];
};

int main(int count, char **arguments) {
    begin();
    std::puts("start");
    limit_to(count > 1 ? std::strtoul(arguments[1], nullptr, 10) : 100);
    for (int round = 0; round < 3; round++) {
        Node *list = nullptr;
        std::size_t bytes = 0;
        bool thrown = throws_bad_alloc([&] {
            for (;;) {
                Node *node = new Node;
                node->next = list, list = node, bytes += sizeof *node;
            }
        });
        CHECK(thrown, "new throws bad_alloc when memory ends");
        CHECK(bytes >= allowance / 10 * 8, "after at least 80 % of the allowance");
        CHECK(operator new(sizeof(Node), std::nothrow) == nullptr, "nothrow new gives null");
        CHECK(throws_bad_alloc([] { return operator new(sizeof(Node), std::align_val_t{4096}); }), "aligned new throws");
        while (list) delete std::exchange(list, list->next);
    }
    std::vector<std::string> texts(1000, std::string(1000, 't'));
    CHECK(throws_bad_alloc([&] {
        for (;;) texts.resize(texts.size() * 2, std::string(1000, 't'));
    }), "a growing vector ends with bad_alloc");
    bool whole = texts.size() >= 1000;
    for (auto &text : texts) whole &= text.size() == 1000 && text[999] == 't';
    CHECK(whole, "and is as it was before the last step");
    texts.clear(), texts.shrink_to_fit();
    CHECK(!throws_bad_alloc([] { delete new Node; }), "afterwards new gives blocks again");
    return finish();
}
