// Host memory; argv[1] threads. See ground_truth.hpp.
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>

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
// Only the kernel has the pointer.
[[gnu::noinline]] void reachable_by_epoll() {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = make();
  epoll_ctl(epoll_create1(0), EPOLL_CTL_ADD, eventfd(0, 0), &event);
  event.data.ptr = nullptr;
  MADE(1);
}
[[gnu::noinline]] void reachable_by_timer() {
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGUSR2;
  event.sigev_value.sival_ptr = make();
  timer_t timer;
  timer_create(CLOCK_MONOTONIC, &event, &timer);
  event.sigev_value.sival_ptr = nullptr;
  MADE(1);
}
// What nobody can ask for.
[[gnu::noinline]] void hidden_in_pipe() {
  int ends[2];
  void* block = make();
  if (pipe(ends) != 0 || write(ends[1], &block, sizeof block) != sizeof block) std::abort();
  block = nullptr;
  asm volatile("" : "+m"(block));
  MADE(1);
}
[[gnu::noinline]] void reachable_in_closed_page() {
  constexpr std::size_t kPage = 4096;
  auto** const page =
      static_cast<void**>(mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  page[5] = make();
  mprotect(page, kPage, PROT_NONE);
  MADE(1);
}
struct [[gnu::packed]] Packed {
  char tag;
  void* pointer;
};
volatile Packed packed;
[[gnu::noinline]] void possible_in_packed() {
  packed.pointer = make();
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
  reachable_by_epoll();
  reachable_by_timer();
  hidden_in_pipe();
  reachable_in_closed_page();
  possible_in_packed();
  possible_interior();
  possible_tagged();
  cycle_of_two();
  lost_heads();
  wipe_stack();
  end(make);
}
