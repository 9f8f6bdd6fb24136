// Standard containers and strings in a few types: what compiling C++ costs.
#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

template <int N> struct Row {
  std::map<std::string, std::vector<std::tuple<int, double, std::array<char, N + 1>>>> entries;
  std::vector<std::unique_ptr<Row<N - 1>>> inner;
  int sum() const {
    int total = N;
    for (const auto &[name, list] : entries)
      for (const auto &entry : list) total += std::get<0>(entry) + int(name.size());
    for (const auto &row : inner) total += row->sum();
    return total;
  }
};
template <> struct Row<0> { int sum() const { return 0; } };

int main() {
  Row<6> row;
  row.entries["a"].emplace_back(1, 2.0, std::array<char, 7>{});
  row.inner.push_back(std::make_unique<Row<5>>());
  std::printf("%d\n", row.sum());
}
