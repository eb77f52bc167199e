// What other threads have at the end of the process, in each place and state that a thread can be in; argv[1] of them,
// from that way on that argv[2] says.
// See ground_truth.hpp. Each thread has lost a block too, whose address is still in frames that are over.
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>

#include <atomic>

#include "ground_truth.hpp"

using namespace truth;

namespace {

std::atomic<int> ready{0};
int epoll, pipe_ends[2];

[[gnu::noinline]] void* make() {
  void* const block = std::malloc(200);
  std::memset(block, 0xff, 200);
  return block;
}

// Made and hidden: the address itself is nowhere.
#define MAKER(name)                                   \
  [[gnu::noinline]] std::uintptr_t name() {           \
    count(#name);                                     \
    return ~reinterpret_cast<std::uintptr_t>(make()); \
  }
MAKER(reachable_in_frame)
MAKER(reachable_in_register_paused)
MAKER(reachable_in_register_in_poll)
MAKER(reachable_in_register_in_epoll)
MAKER(reachable_in_register_in_read)
MAKER(reachable_in_register_running)
MAKER(reachable_in_vector_register)
MAKER(reachable_below_handler)
MAKER(reachable_in_handler)
MAKER(reachable_in_library)
MAKER(reachable_on_stack_in_heap)
MAKER(reachable_below_stack_pointer)
MAKER(lost_in_dead_frame)

void* shown(std::uintptr_t hidden) { return reinterpret_cast<void*>(~hidden); }

[[gnu::noinline]] void lose() {
  void* volatile frame[4096] = {};
  frame[2000] = shown(lost_in_dead_frame());
  if (!frame[2000]) std::abort();
}

// It is used by nothing else: a chain of calls that goes far below where the thread waits.
[[gnu::noinline]] void leave_a_dead_frame() {
  volatile char room[8192];
  for (volatile char& one : room) one = 0;
  lose();
}

#if defined(__x86_64__)
// Only in r15 from here on, in a call of the system that is made again and again.
[[noreturn]] void wait_with_register(std::uintptr_t hidden, long number, long first, long second, long third) {
  register std::uintptr_t r15 asm("r15") = hidden;
  register long r14 asm("r14") = number;
  register long r10 asm("r10") = -1;
  asm volatile(
      "notq %%r15\n\txorl %%ebx, %%ebx\n\txorl %%r12d, %%r12d\n\txorl %%r13d, %%r13d\n\t"
      "1:\tmovq %%r14, %%rax\n\tsyscall\n\tjmp 1b"
      :
      : "r"(r15), "r"(r14), "r"(r10), "D"(first), "S"(second), "d"(third)
      : "rbx", "r12", "r13", "rax", "rcx", "r11", "memory");
  __builtin_unreachable();
}
#endif

// What calls may leave in registers.
#define CLEAR_OTHERS                                                                                          \
  "xorl %%ecx, %%ecx\n\txorl %%edx, %%edx\n\txorl %%esi, %%esi\n\txorl %%edi, %%edi\n\txorl %%r8d, %%r8d\n\t" \
  "xorl %%r9d, %%r9d\n\txorl %%r10d, %%r10d\n\txorl %%r11d, %%r11d\n\t"

void run_with_register(std::uintptr_t hidden) {
#if defined(__x86_64__)
  asm volatile(CLEAR_OTHERS "xorl %%eax, %%eax\n\tnotq %%rbx\n1:\tpause\n\tjmp 1b" : : "b"(hidden));
#elif defined(__aarch64__)
  asm volatile("mvn x28, %0\n1:\tb 1b" : : "r"(hidden) : "x28");
#endif
}

void run_with_vector_register(std::uintptr_t hidden) {
#if defined(__x86_64__)
  asm volatile(CLEAR_OTHERS "notq %%rax\n\tmovq %%rax, %%xmm5\n\txorl %%eax, %%eax\n1:\tpause\n\tjmp 1b"
               :
               : "a"(hidden)
               : "xmm5");
#elif defined(__aarch64__)
  asm volatile("mvn x9, %0\n\tfmov d9, x9\n\tmov x9, xzr\n1:\tb 1b" : : "r"(hidden) : "x9", "d9");
#endif
}

void run_with_word_below_stack(std::uintptr_t hidden) {
#if defined(__x86_64__)
  asm volatile(CLEAR_OTHERS "notq %%rax\n\tmovq %%rax, -120(%%rsp)\n\txorl %%eax, %%eax\n1:\tpause\n\tjmp 1b"
               :
               : "a"(hidden));
#else
  void* volatile in_frame = shown(hidden);
  for (;;) pause();
  (void)in_frame;
#endif
}

void wait_in_handler(int) {
  void* volatile in_frame = shown(reachable_in_handler());
  wipe_stack();
  ++ready;
  for (;;) pause();
  (void)in_frame;
}

int wait_in_comparison(const void*, const void*) {
  wipe_stack();
  ++ready;
  for (;;) pause();
}

[[gnu::noinline]] void wait_below_handler() {
  void* volatile in_frame = shown(reachable_below_handler());
  raise(SIGUSR1);
  (void)in_frame;
}

void* on_own_stack(void*) {
  leave_a_dead_frame();
  void* volatile in_frame = shown(reachable_on_stack_in_heap());
  wipe_stack();
  ++ready;
  for (;;) pause();
  return in_frame;
}

[[gnu::noinline]] void reachable_alternate_stack() {
  constexpr std::size_t kBytes = std::size_t{64} * 1024;
  stack_t stack{};
  stack.ss_sp = std::malloc(kBytes);
  stack.ss_size = kBytes;
  count("reachable_alternate_stack");
  if (sigaltstack(&stack, nullptr) != 0) std::abort();
  stack.ss_sp = nullptr;
}

void wait_in_way(int way) {
  std::uintptr_t hidden = 0;
  const auto wait_for_end = [&hidden](std::uintptr_t made, void (*wait)(std::uintptr_t)) {
    hidden = made;
    wipe_stack();
    ++ready;
    wait(hidden);
  };
  switch (way) {
    case 0: {
      void* volatile in_frame = shown(reachable_in_frame());
      wipe_stack();
      ++ready;
      for (;;) pause();
      (void)in_frame;
      break;
    }
    case 1:
      return wait_for_end(reachable_in_register_running(), run_with_register);
    case 2:
      return wait_for_end(reachable_in_vector_register(), run_with_vector_register);
    case 3:
      return wait_for_end(reachable_below_stack_pointer(), run_with_word_below_stack);
    case 4:
      reachable_alternate_stack();
      return wait_below_handler();
    case 5: {
      void* volatile in_frame = shown(reachable_in_library());
      int sorted[8] = {3, 2, 1};
      std::qsort(sorted, 8, sizeof(int), wait_in_comparison);
      (void)in_frame;
      break;
    }
#if defined(__x86_64__)
    case 6:
      return wait_for_end(reachable_in_register_paused(),
                          [](std::uintptr_t made) { wait_with_register(made, SYS_pause, 0, 0, 0); });
    case 7:
      return wait_for_end(reachable_in_register_in_poll(),
                          [](std::uintptr_t made) { wait_with_register(made, SYS_poll, 0, 0, 5000); });
    case 8:
      return wait_for_end(reachable_in_register_in_epoll(), [](std::uintptr_t made) {
        static epoll_event event;
        wait_with_register(made, SYS_epoll_wait, epoll, reinterpret_cast<long>(&event), 1);
      });
    case 9:
      return wait_for_end(reachable_in_register_in_read(), [](std::uintptr_t made) {
        static char byte;
        wait_with_register(made, SYS_read, pipe_ends[0], reinterpret_cast<long>(&byte), 1);
      });
#endif
    default:
      on_own_stack(nullptr);
  }
}

// The way on a stack that lies in a block which nothing else leads to.
void start_on_stack_in_heap() {
  constexpr std::size_t kBytes = std::size_t{256} * 1024;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, std::aligned_alloc(4096, kBytes), kBytes);
  pthread_t thread;
  if (pthread_create(&thread, &attributes, on_own_stack, nullptr) != 0) std::abort();
  pthread_attr_destroy(&attributes);
}

void start(int way) {
  constexpr int kOnStackInHeap = 10;
  if (way == kOnStackInHeap) return start_on_stack_in_heap();
  std::thread([way] {
    leave_a_dead_frame();
    wait_in_way(way);
  }).detach();
}

}  // namespace

int main(int, char** arguments) {
  constexpr int kWays = 11;
  const int threads = std::atoi(arguments[1]), first = arguments[2] ? std::atoi(arguments[2]) : 0;
  struct sigaction action {};
  action.sa_handler = wait_in_handler;
  action.sa_flags = SA_ONSTACK;
  sigaction(SIGUSR1, &action, nullptr);
  epoll = epoll_create1(0);
  if (pipe(pipe_ends) != 0) std::abort();
  for (int i = 0; i < threads; ++i) {
    start((i + first) % kWays);
    while (ready <= i) usleep(1000);
  }
  usleep(20'000);
  print();
  wipe_stack();
  std::exit(0);
}
