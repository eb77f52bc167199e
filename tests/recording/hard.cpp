// A process that makes it hard to record: it ends in all ways, forks where that is awkward, and spoils its own file.
// Each way allocates blocks of 4321 bytes that it keeps; how many they are is printed, unless the process is killed.
//
//   hard WAY [PATH]
#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

extern char** environ;

namespace {

constexpr std::size_t kKeptBytes = 4321;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "hard: %s\n", what);
  std::_Exit(90);
}

std::atomic<int> kept{0};
void* volatile last_kept = nullptr;
void keep() {
  last_kept = std::malloc(kKeptBytes);
  ++kept;
}

void churn(int calls) {
  void* blocks[64] = {};
  for (int i = 0; i < calls; ++i) {
    void*& block = blocks[i * 7 % 64];
    std::free(block);
    block = std::malloc(static_cast<std::size_t>(i % 1000 + 1));
  }
  for (void* const block : blocks) std::free(block);
}

// Busy threads, until it goes.
class Busy {
 public:
  explicit Busy(int threads) {
    for (int i = 0; i < threads; ++i)
      running_.emplace_back([this] {
        while (!done_) churn(200);
      });
  }
  ~Busy() {
    done_ = true;
    for (std::thread& one : running_) one.join();
  }
  void leave() {
    for (std::thread& one : running_) one.detach();
    running_.clear();
  }

 private:
  std::atomic<bool> done_{false};
  std::vector<std::thread> running_;
};

void end_child(pid_t child) {
  int status = 0;
  if (child < 0) fail("no child");
  while (waitpid(child, &status, 0) != child)
    if (errno != EINTR) fail("waitpid");
  if (status) fail(("a child ended with " + std::to_string(status)).c_str());
}

// Once, so that the program goes on whatever the handler takes.
void signal_soon(int microseconds) {
  const itimerval soon{{0, 0}, {0, microseconds}};
  setitimer(ITIMER_REAL, &soon, nullptr);
}

// --- Threads
void threads_come_and_go() {
  for (int round = 0; round < 50; ++round) {
    std::vector<std::thread> running;
    for (int i = 0; i < 20; ++i)
      running.emplace_back([] {
        churn(50);
        keep();
      });
    for (std::thread& one : running) one.join();
  }
}

// --- Children
void fork_beside_threads() {
  Busy busy(3);
  for (int i = 0; i < 24; ++i) {
    keep();
    const pid_t child = fork();
    if (child == 0) {
      churn(100);
      i % 2 ? _exit(0) : std::exit(0);
    }
    end_child(child);
  }
}

std::atomic<int> handled{0};
void fork_in_handler(int) {
  const int error = errno;
  const pid_t child = fork();
  if (child == 0) {
    if (handled % 2) _exit(0);
    std::signal(SIGALRM, [](int) { _exit(0); });
    signal_soon(1000);  // goes on with what was interrupted
  } else {
    end_child(child);
  }
  ++handled;
  errno = error;
}

void handle(int times, void (*handler)(int)) {
  std::signal(SIGALRM, handler);
  while (handled < times) {
    const int before = handled;
    signal_soon(20 + before % 100);
    while (handled == before) churn(100);
    keep();
  }
}
void fork_in_handlers(int threads) {
  Busy busy(threads);
  handle(60, fork_in_handler);
}
void allocate_in_handlers() {
  handle(5000, [](int) {
    std::free(std::malloc(100));
    ++handled;
  });
}

void spawn_beside_threads() {
  Busy busy(3);
  char name[] = "/bin/true";
  char* arguments[] = {name, nullptr};
  for (int i = 0; i < 30; ++i) {
    keep();
    pid_t child = -1;
    if (posix_spawn(&child, name, nullptr, nullptr, arguments, environ)) fail("posix_spawn");
    end_child(child);
    child = vfork();
    if (child == 0) {
      execve(name, arguments, environ);
      _exit(99);
    }
    end_child(child);
  }
}

// The child has this memory, and this thread waits.
void clone_with_memory() {
  static char stack[64 << 10];
  for (int i = 0; i < 50; ++i) {
    const pid_t child = clone(
        [](void*) {
          churn(50);
          syscall(SYS_exit, 0);
          return 0;
        },
        stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, nullptr);
    end_child(child);
    keep();
  }
}

// No handler is called for this fork.
void fork_unseen() {
  for (int i = 0; i < 20; ++i) {
    keep();
    const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
    if (child == 0) {
      churn(1000);
      i % 2 ? _exit(0) : std::exit(0);
    }
    end_child(child);
  }
}

// --- Files
void close_descriptors(const char* path) {
  keep();
  for (int i = 3; i < 1000; ++i) close(i);
  const int file = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
  for (int i = 0; i < 100; ++i) {
    churn(10000);
    keep();
  }
  char byte;
  if (read(file, &byte, 1) != 0 || lseek(file, 0, SEEK_END) != 0) fail("another's file was written to");
}

// `spoil` is called in the middle.
template <class Spoil>
void spoiled(Spoil spoil) {
  churn(20000);
  keep();
  if (spoil()) fail("the file was not to be had");
  for (int i = 0; i < 100; ++i) {
    churn(10000);
    keep();
  }
}

void lock_memory() {
  keep();
  if (mlockall(MCL_CURRENT | MCL_FUTURE) && errno != ENOMEM && errno != EPERM) fail("mlockall");
  churn(100000);
}

void ask_too_much() {
  void* volatile block = std::malloc(std::size_t{1} << 50);
  if (block) fail("too much was given");
  const volatile std::size_t half = std::size_t{1} << 40;
  block = std::calloc(half, half);
  if (block) fail("too much was given");
}

void end_badly(const std::string& way) {
  Busy busy(3);
  for (int i = 0; i < 100; ++i) keep();
  busy.leave();
  std::printf("%d\n", kept.load());
  std::fflush(stdout);
  if (way == "exit") std::exit(3);
  if (way == "quick_exit") std::quick_exit(3);
  if (way == "_exit") _exit(3);
  if (way == "abort") std::abort();
  if (way == "kill") raise(SIGKILL);
  if (way == "segv") raise(SIGSEGV);
  fail("no such way");
}

}  // namespace

int main(int count, char** arguments) {
  const std::string way = count > 1 ? arguments[1] : "";
  const char* const path = count > 2 ? arguments[2] : "";
  if (way == "threads")
    threads_come_and_go();
  else if (way == "fork")
    fork_beside_threads();
  else if (way == "fork-in-handler")
    fork_in_handlers(0);
  else if (way == "fork-in-handler-beside-threads")
    fork_in_handlers(2);
  else if (way == "allocate-in-handler")
    allocate_in_handlers();
  else if (way == "spawn")
    spawn_beside_threads();
  else if (way == "clone")
    clone_with_memory();
  else if (way == "fork-unseen")
    fork_unseen();
  else if (way == "close")
    close_descriptors(path);
  else if (way == "truncate")
    spoiled([path] { return truncate(path, 0); });
  else if (way == "remove")
    spoiled([path] { return unlink(path); });
  else if (way == "rename")
    spoiled([path] { return std::rename(path, (std::string(path) + ".new").c_str()); });
  else if (way == "replace")
    spoiled([path] {
      const int file = open((std::string(path) + ".new").c_str(), O_WRONLY | O_CREAT, 0600);
      return write(file, "mine", 4) != 4 || std::rename((std::string(path) + ".new").c_str(), path);
    });
  else if (way == "lock")
    lock_memory();
  else if (way == "too-much")
    ask_too_much();
  else
    end_badly(way);
  std::printf("%d\n", kept.load());
  return 0;
}
