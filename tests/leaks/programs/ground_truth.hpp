// Memory in every place that can hold the pointer to it, made by functions whose names say what it is to be judged:
// lost_*, indirect_*, possible_*, reachable_*; hidden_* are in use where nobody can look, and judged lost; cycle_* are
// half lost, half indirectly lost; freed_* are freed by a destructor that runs late. What each made is printed: its
// name, blocks.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace truth {

inline std::mutex lock;
inline struct {
  const char* name;
  int blocks;
} made[100];

// Without an allocation: this one would be its caller's.
inline void count(const char* name, int blocks = 1) {
  std::lock_guard hold(lock);
  auto* one = made;
  while (one->name && std::strcmp(one->name, name) != 0) ++one;
  one->name = name;
  one->blocks += blocks;
}

inline void print() {
  for (const auto& [name, blocks] : made)
    if (name) dprintf(STDOUT_FILENO, "%s %d\n", name, blocks);
}

// Frames that are over leave their words on the stack.
[[gnu::noinline]] inline void wipe_stack() {
  volatile char frames[16 * 1024];
  for (volatile char& one : frames) one = 0;
}

#define CASE(name) [[gnu::noinline]] inline void name(void* (*make)())
#define MADE(blocks) ::truth::count(__func__, blocks)

inline void* volatile in_global[64];
inline std::vector<void*> in_vector;  // a destructor empties it
inline std::map<int, void*> in_map;
inline void** in_arena =
    static_cast<void**>(mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
inline void** in_shared =
    static_cast<void**>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
inline void** not_forked =
    static_cast<void**>(mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
inline void** wiped =
    static_cast<void**>(mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
inline thread_local void* of_thread;

// What is written to memory that is lost would not be written at all.
struct Holder {
  void* volatile first;
  void* volatile second;
  char rest[100];
};

template <class Put>
void place(Put put) {
  std::lock_guard hold(lock);
  put();
}

CASE(lost_plain) {
  make();
  MADE(1);
}
CASE(indirect_in_lost_struct) {
  auto* volatile lost = static_cast<Holder*>(std::calloc(1, sizeof(Holder)));
  lost->first = make();
  lost->second = make();
  lost = nullptr;
  MADE(2);
  ::truth::count("lost_struct");
}
CASE(hidden_by_upper_tag) {
  place([&] {
    for (void* volatile& place : in_global)
      if (!place) {
        place = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(make()) | std::uintptr_t{0xab} << 56);
        break;
      }
  });
  MADE(1);
}
CASE(reachable_global) {
  place([&] {
    for (void* volatile& place : in_global)
      if (!place) {
        place = make();
        break;
      }
  });
  MADE(1);
}
CASE(reachable_vector) {
  place([&] { in_vector.push_back(make()); });
  MADE(1);
}
CASE(reachable_map) {
  place([&] { in_map.emplace(static_cast<int>(in_map.size()), make()); });
  MADE(1);
}
CASE(reachable_arena) {
  place([&] { *(in_arena += 1000 / sizeof(void*)) = make(); });
  MADE(1);
}
CASE(reachable_shared) {
  place([&] { *in_shared++ = make(); });
  MADE(1);
}
CASE(reachable_not_forked) {
  place([&] { *not_forked++ = make(); });
  MADE(1);
}
CASE(reachable_wiped_on_fork) {
  place([&] { *wiped++ = make(); });
  MADE(1);
}
CASE(lost_with_its_thread) {
  of_thread = make();
  MADE(1);
}

inline void every_case(void* (*make)()) {
  for (const auto one :
       {lost_plain, indirect_in_lost_struct, hidden_by_upper_tag, reachable_global, reachable_vector, reachable_map,
        reachable_arena, reachable_shared, reachable_not_forked, reachable_wiped_on_fork})
    one(make);
}

// The cases in so many threads, which end; what the main thread has for itself.
[[gnu::noinline]] inline void reachable_thread_local(void* (*make)()) {
  of_thread = make();
  MADE(1);
}
inline void run(int threads, void* (*make)()) {
  void* arena = not_forked;
  madvise(arena, 1 << 20, MADV_DONTFORK);
  arena = wiped;
  madvise(arena, 1 << 20, MADV_WIPEONFORK);
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i)
    running.emplace_back([make] {
      every_case(make);
      lost_with_its_thread(make);
    });
  for (std::thread& one : running) one.join();
  every_case(make);
  reachable_thread_local(make);
}

// Ends the process with a pointer in this frame, and one in a register that calls preserve, and nowhere else.
[[gnu::noinline]] inline void* reachable_stack(void* (*make)()) {
  MADE(1);
  return make();
}
[[gnu::noinline]] inline std::uintptr_t reachable_register(void* (*make)()) {
  MADE(1);
  return ~reinterpret_cast<std::uintptr_t>(make());
}
[[noreturn, gnu::noinline]] inline void end(void* (*make)()) {
  void* volatile on_stack = reachable_stack(make);
  const std::uintptr_t hidden = reachable_register(make);
  print();
  wipe_stack();
  (void)on_stack;
#if defined(__x86_64__)
  // What else calls preserve may hold anything that main had there.
  asm volatile(
      "notq %%rax\n\tmovq %%rax, %%rbx\n\txorl %%r12d, %%r12d\n\txorl %%r13d, %%r13d\n\txorl %%r14d, %%r14d\n\t"
      "xorl %%r15d, %%r15d\n\txorl %%edi, %%edi\n\txorl %%eax, %%eax\n\tcall exit@PLT"
      :
      : "a"(hidden));
#elif defined(__aarch64__)
  asm volatile("mvn x19, %0\n\tmov x0, #0\n\tbl exit" : : "r"(hidden) : "x19", "x0", "x30");
#endif
  __builtin_unreachable();
}

}  // namespace truth
