// The load of bench/host_sites.py: allocates all the time, at call depths between 5 and about 40. Documents are read by
// recursive descent into trees of nodes with names and attributes, rendered to text, indexed, edited and thrown away;
// a part of each index lives on for a while: sites_load [THREADS [DOCUMENTS [SEED]]]. Prints a sum that
// is the same under every allocator and in every build.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "workload.hpp"

namespace {

using host_bench::Random;

constexpr std::size_t kIndexesKept = 16;
constexpr unsigned kLevelsMin = 2, kLevelsMax = 17;  // each is two or three frames

struct Node {
  std::string name;
  std::map<std::string, std::string> attributes;
  std::vector<std::unique_ptr<Node>> children;
};

using Index = std::unordered_map<std::string, std::list<std::pair<unsigned, std::string>>>;

std::string word(Random& random) {
  std::string text;
  const std::size_t length = random.between(3, random.chance(10) ? 120 : 28);
  for (std::size_t i = 0; i < length; ++i) text += static_cast<char>('a' + random.below(26));
  return text;
}

// --- Reading: an element holds attributes, small leaves, and one element that goes deeper
[[gnu::noinline]] std::unique_ptr<Node> read_element(Random& random, unsigned levels);

[[gnu::noinline]] void read_attributes(Random& random, Node& node) {
  for (std::size_t i = random.below(3); i-- > 0;) node.attributes.emplace(word(random), word(random));
}

[[gnu::noinline]] void read_leaf(Random& random, Node& parent) {
  auto leaf = std::make_unique<Node>();
  leaf->name = word(random);
  parent.children.push_back(std::move(leaf));
}

[[gnu::noinline]] void read_children(Random& random, Node& node, unsigned levels) {
  for (std::size_t i = random.below(4); i-- > 0;) read_leaf(random, node);
  if (levels > 0) node.children.push_back(read_element(random, levels - 1));
}

std::unique_ptr<Node> read_element(Random& random, unsigned levels) {
  auto node = std::make_unique<Node>();
  node->name = word(random);
  read_attributes(random, *node);
  read_children(random, *node, levels);
  return node;
}

// --- Using
[[gnu::noinline]] std::string render(const Node& node) {
  std::string text = "<" + node.name;
  for (const auto& [key, value] : node.attributes) text += " " + key + "=\"" + value + "\"";
  text += ">";
  for (const auto& child : node.children) text += render(*child);
  return text + "</" + node.name + ">";
}

[[gnu::noinline]] void add_to_index(const Node& node, unsigned depth, Index& index) {
  index[node.name.substr(0, 2)].emplace_back(depth, node.name);
  for (const auto& child : node.children) add_to_index(*child, depth + 1, index);
}

[[gnu::noinline]] std::unique_ptr<Node> edited(const Node& node) {
  auto copy = std::make_unique<Node>();
  copy->name = node.name + "'";
  if (node.attributes.size() > 1) copy->attributes = node.attributes;
  for (const auto& child : node.children) copy->children.push_back(edited(*child));
  return copy;
}

std::uint64_t sum_of(const std::string& text) {
  std::uint64_t sum = 0;
  for (const char one : text) sum = sum * 31 + static_cast<unsigned char>(one);
  return sum;
}

std::uint64_t work(std::uint64_t seed, unsigned documents) {
  Random random(seed);
  std::deque<Index> kept;
  std::uint64_t sum = 0;
  for (unsigned i = 0; i < documents; ++i) {
    const auto levels = static_cast<unsigned>(random.between(kLevelsMin, kLevelsMax));
    std::unique_ptr<Node> root = read_element(random, levels);
    root = edited(*root);
    Index index;
    add_to_index(*root, 0, index);
    sum += sum_of(render(*root)) + index.size();
    kept.push_back(std::move(index));
    if (kept.size() > kIndexesKept) kept.pop_front();
  }
  return sum;
}

}  // namespace

int main(int count, char** arguments) {
  const auto threads = static_cast<unsigned>(count > 1 ? std::atoi(arguments[1]) : 1);
  const auto documents = static_cast<unsigned>(count > 2 ? std::atoi(arguments[2]) : 40000);
  const std::uint64_t seed = count > 3 ? std::strtoull(arguments[3], nullptr, 10) : 1;
  host_bench::require(threads > 0, "THREADS is at least 1");
  std::vector<std::uint64_t> sums(threads);
  std::vector<std::thread> others;
  for (unsigned i = 1; i < threads; ++i) others.emplace_back([&, i] { sums[i] = work(seed + i, documents); });
  sums[0] = work(seed, documents);
  for (std::thread& other : others) other.join();
  std::uint64_t sum = 0;
  for (const std::uint64_t one : sums) sum ^= one;
  std::printf("%llu\n", static_cast<unsigned long long>(sum));
  return 0;
}
