/* C++ thread_local objects whose destructors allocate and free while the thread ends; blocks that outlive the thread that
 * allocated them; static objects that free after main. */
#include "check.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

static std::atomic<int> destroyed;

struct Last {
    std::vector<std::unique_ptr<std::string>> texts;
    ~Last() {
        for (int i = 0; i < 20; i++) texts.push_back(std::make_unique<std::string>(200, 'd'));
        for (auto &text : texts)
            if (text->back() != 'd') die("a text of a thread_local object was overwritten");
        texts.clear();
        std::free(std::malloc(100000));
        destroyed++;
    }
};

static thread_local Last last;
static thread_local std::string name;
/* Constructed by the first destructor that runs, while the thread's storage is being destroyed. */
static thread_local std::unique_ptr<Last> very_last;

struct Maker {
    bool used = false;
    ~Maker() {
        if (used) very_last = std::make_unique<Last>();
    }
};
static thread_local Maker maker;

struct AtExit {
    std::vector<std::string> texts = std::vector<std::string>(100, std::string(300, 'e'));
    ~AtExit() {
        texts.emplace_back(5000, 'f');
        texts.clear();
    }
} at_exit;

int main() {
    begin();
    std::vector<std::string> left(200);
    for (int round = 0; round < 200; round++) {
        std::thread([&, round] {
            last.texts.push_back(std::make_unique<std::string>(100 + round, 'd'));
            name = std::string(static_cast<std::size_t>(round * 10), 'n');
            maker.used = true;
            left[static_cast<std::size_t>(round)] = name + "left";
        }).join();
    }
    bool whole = true;
    for (std::size_t i = 0; i < left.size(); i++) whole &= left[i].size() == i * 10 + 4;
    CHECK(whole, "texts outlive the thread that made them");
    CHECK(destroyed >= 200, "thread_local objects were destroyed, with calls of malloc in between");
    left.clear();
    return finish();
}
