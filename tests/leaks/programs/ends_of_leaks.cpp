// Loses 10 blocks of 1000 bytes and keeps 5, then ends as argv[1] says:
//   return, exit, _exit, quick_exit, errx, abort
//   handler    exit in a signal handler
//   forked     a child ends so; the parent waits for any child, and counts SIGCHLD
//   beside     another thread sleeps in poll, and prints what that returned
//   threads N  N threads that start and end others
//   sparse N   N GiB mapped and hardly touched
//   guarded    a page in the midst of a mapping may not be touched
//   stacks     threads whose stacks lie beside each other in one mapping, with guards inside it, have lost 4 more
//   registers  a thread runs that has one of what is kept in a register only
//   allocating a thread allocates and frees all the time
#include <err.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "../../support/asleep.h"

namespace {

void* kept[5];

[[gnu::noinline]] void* lost_block() { return std::malloc(1000); }
[[gnu::noinline]] void* reachable_block() { return std::malloc(2000); }

[[gnu::noinline]] void allocate() {
  for (void*& one : kept) one = reachable_block();
  for (int i = 0; i < 10; ++i) {
    void* volatile lost = lost_block();
    if (!lost) std::abort();
    lost = nullptr;
  }
}
[[gnu::noinline]] void wipe_stack() {
  volatile char frames[16 * 1024];
  for (volatile char& one : frames) one = 0;
}

volatile sig_atomic_t children_ended = 0;

[[gnu::noinline]] void* lose_one(void*) {
  void* volatile lost[100] = {};
  lost[50] = lost_block();
  return lost[50] ? nullptr : lost[50];
}

constexpr std::size_t kPage = 4096;
void install_guard(char* page) {
  constexpr int kInstallGuard = 102;  // MADV_GUARD_INSTALL of Linux 6.13
  if (madvise(page, kPage, kInstallGuard) != 0) std::abort();
}

// As the C library's have been since 2.42.
void lose_on_stacks() {
  constexpr std::size_t kThreads = 4, kBytes = 256 * 1024;
  auto* const stacks = static_cast<char*>(
      mmap(nullptr, kThreads * kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0));
  for (std::size_t i = 0; i < kThreads; ++i) {
    char* const guard = stacks + i * kBytes;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_t thread;
    install_guard(guard);
    if (pthread_attr_setstack(&attributes, guard + kPage, kBytes - kPage) != 0 ||
        pthread_create(&thread, &attributes, lose_one, nullptr) != 0)
      std::abort();
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
  }
}

[[noreturn]] void forked() {
  signal(SIGCHLD, [](int) { children_ended = children_ended + 1; });
  const pid_t child = fork();
  if (child == 0) std::exit(0);
  pid_t ended;
  while ((ended = wait(nullptr)) == -1 && errno == EINTR) {
  }
  std::printf("waited for the child: %d, one more: %d\n", ended == child, wait(nullptr) == -1 && errno == ECHILD);
  std::printf("signals: %d\n", static_cast<int>(children_ended));
  std::exit(0);
}

}  // namespace

int main(int, char** arguments) {
  const std::string way = arguments[1];
  allocate();
  wipe_stack();
  if (way == "exit") std::exit(3);
  if (way == "_exit") _exit(3);
  if (way == "quick_exit") std::quick_exit(3);
  if (way == "errx") errx(3, "so it ends");
  if (way == "abort") std::abort();
  if (way == "handler") {
    signal(SIGUSR1, [](int) { std::exit(3); });
    raise(SIGUSR1);
  }
  if (way == "forked") forked();
  if (way == "beside") {
    static std::atomic<int> waiting{0};
    std::thread([] {
      waiting = gettid();
      pollfd none{-1, 0, 0};
      const int answer = poll(&none, 1, -1);
      std::printf("poll returned %d\n", answer);
      _exit(9);
    }).detach();
    while (!waiting) usleep(1000);
    wait_until_asleep(getpid(), waiting);
    std::exit(3);
  }
  if (way == "threads") {
    static std::atomic<bool> over{false};
    static std::atomic<int> made{0};
    for (int i = 0; i < std::atoi(arguments[2]); ++i)
      std::thread([] {
        while (!over) std::thread([] { std::free(std::malloc(100)); }).join(), ++made;
      }).detach();
    while (made < 10 * std::atoi(arguments[2])) usleep(1000);
    std::exit(3);
  }
  if (way == "sparse") {
    const std::size_t bytes = std::stoull(arguments[2]) << 30;
    auto* memory = static_cast<char*>(
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    for (std::size_t at = 0; at < bytes; at += bytes / 80) memory[at] = 1;
    std::exit(3);
  }
  if (way == "stacks") {
    lose_on_stacks();
    std::exit(3);
  }
  if (way == "guarded") {
    constexpr std::size_t kBytes = 16 * kPage;
    auto* memory =
        static_cast<char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::memset(memory, 1, kBytes);
    install_guard(memory + 4 * kPage);
    std::exit(3);
  }
  if (way == "registers") {
    std::thread([] {
      void* const only_here = kept[0];
      kept[0] = nullptr;
#if defined(__x86_64__)
      asm volatile("movq %0, %%r15\n1:\tpause\n\tjmp 1b" : : "r"(only_here) : "r15");
#elif defined(__aarch64__)
      asm volatile("mov x28, %0\n1:\tb 1b" : : "r"(only_here) : "x28");
#endif
    }).detach();
    usleep(100'000);
    wipe_stack();
    std::exit(3);
  }
  if (way == "allocating") {
    static std::atomic<std::size_t> rounds{0};
    std::thread([] {
      std::vector<void*> own(1000);
      for (std::size_t i = 0;; rounds = ++i) {
        std::free(own[i % own.size()]);
        own[i % own.size()] = std::malloc(i * 7 % 3000);
      }
    }).detach();
    while (rounds < 10'000) usleep(1000);
    std::exit(3);
  }
  return 3;
}
