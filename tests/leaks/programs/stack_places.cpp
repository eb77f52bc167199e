// A block that only one thread's stack, or what lies beside it, leads to, where it is easily passed over; argv[1]:
//   merged       a stack without a guard and the next one are one mapping
//   merged_ended the same, where the lower thread has ended
//   slots        four stacks of the program's beside each other behind one guard
//   in_front     a block has a coroutine's stack, and in front of it a pointer
//   returned     a thread has ended with it as its value, and may still be joined
//   stale_frame  a signal's old frame lies above a coroutine's stack, in one mapping
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "../../support/asleep.h"

namespace {

constexpr std::size_t kBytes = 100'000, kStack = std::size_t{256} * 1024, kSmall = 16384;
std::atomic<int> ready{0}, last{0};  // how many threads are, and which was the last of them

[[gnu::noinline]] void* reachable_block() {
  void* const block = std::malloc(kBytes);
  std::memset(block, 1, kBytes);
  return block;
}

void say_ready() {
  last = gettid();
  ++ready;
}

[[noreturn]] void wait_for_end() {
  say_ready();
  for (;;) poll(nullptr, 0, -1);
}
void* hold(void*) {
  void* volatile mine = reachable_block();
  wait_for_end();
  return mine;
}
void* wait_only(void*) { wait_for_end(); }
void* end_at_once(void*) {
  say_ready();
  return nullptr;
}
void* give_back(void*) {
  void* const made = reachable_block();
  say_ready();
  return made;
}

void start(void* (*run)(void*), const pthread_attr_t* attributes = nullptr) {
  pthread_t thread;
  const int before = ready;
  if (pthread_create(&thread, attributes, run, nullptr) != 0) std::abort();
  while (ready == before) usleep(1000);
  wait_until_asleep(getpid(), last);
}

void merged(void* (*lower)(void*)) {
  pthread_attr_t without_guard;
  pthread_attr_init(&without_guard);
  pthread_attr_setguardsize(&without_guard, 0);
  start(lower, &without_guard);
  start(hold);
}

void slots() {
  constexpr std::size_t kPage = 4096;
  auto* const memory =
      static_cast<char*>(mmap(nullptr, 4 * kStack + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  mprotect(memory, kPage, PROT_NONE);
  for (std::size_t i = 4; i-- > 0;) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, memory + kPage + i * kStack, kStack);
    start(hold, &attributes);
  }
}

ucontext_t scheduler, coroutine;
struct Task {
  void* data;
  char stack[65536];
};
Task* task;

void* run_task(void*) {
  task = static_cast<Task*>(std::malloc(sizeof(Task)));
  task->data = reachable_block();
  getcontext(&coroutine);
  coroutine.uc_stack.ss_sp = task->stack;
  coroutine.uc_stack.ss_size = sizeof task->stack;
  makecontext(&coroutine, wait_for_end, 0);
  swapcontext(&scheduler, &coroutine);
  return nullptr;
}

char* area;
[[gnu::noinline]] void enter_coroutine() {
  void* volatile mine = reachable_block();
  volatile char frame[4096];
  for (volatile char& one : frame) one = 0;
  getcontext(&coroutine);
  coroutine.uc_stack.ss_sp = area;
  coroutine.uc_stack.ss_size = kSmall;
  makecontext(&coroutine, wait_for_end, 0);
  swapcontext(&scheduler, &coroutine);
  std::free(mine);
}
[[gnu::noinline]] void enter_deeper() {
  volatile char frame[8192];
  for (volatile char& one : frame) one = 0;
  enter_coroutine();
  frame[0] = 1;
}
void* leave_a_frame(void*) {
  area = static_cast<char*>(mmap(nullptr, 2 * kSmall, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  stack_t stack{};
  stack.ss_sp = area + kSmall;
  stack.ss_size = kSmall;
  sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_handler = [](int) {};
  action.sa_flags = SA_ONSTACK;
  sigaction(SIGUSR1, &action, nullptr);
  pthread_kill(pthread_self(), SIGUSR1);
  enter_deeper();
  return nullptr;
}

}  // namespace

int main(int, char** arguments) {
  const std::string way = arguments[1];
  if (way == "merged") merged(wait_only);
  if (way == "merged_ended") merged(end_at_once);
  if (way == "slots") slots();
  if (way == "in_front") start(run_task);
  if (way == "returned") start(give_back);
  if (way == "stale_frame") start(leave_a_frame);
  return 0;
}
