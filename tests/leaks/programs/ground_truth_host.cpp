// Host memory; argv[1] threads. See ground_truth.hpp.
#include "ground_truth.hpp"

using namespace truth;

namespace {

[[gnu::noinline]] void* make() {
  void* const block = std::malloc(200);
  std::memset(block, 0xff, 200);
  return block;
}

struct Freer {
  std::vector<void*> blocks;
  ~Freer() {
    for (void* block : blocks) std::free(block);
  }
};
Freer freer;
// Not destroyed.
auto& texts = *new std::vector<std::string>;
auto& text = *new std::string;

struct WithDestructor {
  ~WithDestructor() { ++*value; }
  int* value = new int(1);
};
WithDestructor* volatile array;

struct First {
  virtual ~First() = default;
  long a = 1;
};
struct Second {
  virtual ~Second() = default;
  long b = 2;
};
struct Both : First, Second {
  char rest[100];
};
Second* volatile second;
void* volatile interior;
void* volatile tagged;
struct Node {
  Node* volatile other;
  char rest[60];
};

[[gnu::noinline]] void freed_late() { freer.blocks.push_back(make()); }
[[gnu::noinline]] void reachable_text() {
  text.assign(1000, 'x');
  texts.assign(3, std::string(500, 'y'));
  MADE(1 + 1 + 3);
}
[[gnu::noinline]] void reachable_array() {
  array = new WithDestructor[7];
  MADE(1 + 7);
}
[[gnu::noinline]] void reachable_second_base() {
  second = new Both;
  MADE(1);
}
[[gnu::noinline]] void possible_interior() {
  interior = static_cast<char*>(make()) + 40;
  MADE(1);
}
[[gnu::noinline]] void possible_tagged() {
  tagged = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(make()) | 1);
  MADE(1);
}
[[gnu::noinline]] void cycle_of_two() {
  auto* volatile one = new Node{};
  one->other = new Node{one, {}};
  one = nullptr;
  MADE(2);
}
// Heads, and behind each two.
[[gnu::noinline]] void* indirect_behind_heads(std::size_t bytes) { return std::calloc(1, bytes); }
[[gnu::noinline]] void lost_heads() {
  constexpr int kHeads = 100;
  for (int i = 0; i < kHeads; ++i) {
    auto* volatile head = static_cast<Holder*>(std::calloc(1, sizeof(Holder)));
    head->first = indirect_behind_heads(300);
    head->second = indirect_behind_heads(30);
    head = nullptr;
  }
  MADE(kHeads);
  count("indirect_behind_heads", 2 * kHeads);
}

}  // namespace

int main(int, char** arguments) {
  run(std::atoi(arguments[1]), make);
  freed_late();
  reachable_text();
  reachable_array();
  reachable_second_base();
  possible_interior();
  possible_tagged();
  cycle_of_two();
  lost_heads();
  wipe_stack();
  end(make);
}
