// A program that lies idle until a line tells it what to do; it answers each with a line, "done" or a number.
//
//   large MIB       frees that much memory in blocks of 1 MiB, all of it touched
//   threads MIB     eight threads free that much memory in small blocks, but one block of a thousand, and end
//   live MIB        the same of this thread
//   check           the blocks that are left have their contents
//   tasks           how many threads the process has
//   fork            how many threads a child has, after a while, and what its exit code is
//   daemon          the same for a child of a child in a session of its own, whose parents have ended
//   busy SECONDS    threads allocate, free, end and fork
//   jumps SECONDS   a signal's handler leaves by a jump what is done between calls of malloc
//   at_exit         exit handlers and destructors print how many threads there are
//   capabilities    they are set to what they are
//   execute         this program in this process, which says "again"
//   end exit|_exit|quick_exit|abort|last_thread
#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

extern "C" int capget(__user_cap_header_struct*, __user_cap_data_struct*);
extern "C" int capset(__user_cap_header_struct*, const __user_cap_data_struct*);

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "idle: %s failed\n", what.c_str());
  std::_Exit(90);
}

void sleep_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

int count_tasks() {
  struct stat tasks {};
  stat("/proc/self/task", &tasks);
  return static_cast<int>(tasks.st_nlink) - 2;
}

struct Left {
  char* block;
  std::size_t bytes;
};
std::vector<Left> left_blocks;
std::mutex mutex;

char content_of(const Left& left) { return static_cast<char>(left.bytes * 7 + 1); }

void* take(std::size_t bytes) {
  void* const block = std::malloc(bytes);
  if (!block) fail("malloc");
  std::memset(block, 1, bytes);
  return block;
}

void free_most(std::size_t bytes) {
  std::vector<Left> blocks;
  for (std::size_t sum = 0; sum < bytes; sum += blocks.back().bytes) {
    const std::size_t next = 32 + sum / 100 % 900;
    blocks.push_back({static_cast<char*>(take(next)), next});
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Left& one = blocks[i];
    if (i % 1000) {
      std::free(one.block);
    } else {
      std::memset(one.block, content_of(one), one.bytes);
      const std::lock_guard hold(mutex);
      left_blocks.push_back(one);
    }
  }
}

void check() {
  for (const Left& one : left_blocks)
    for (std::size_t i = 0; i < one.bytes; ++i)
      if (one.block[i] != content_of(one)) fail("check");
}

void free_large(std::size_t mib) {
  std::vector<void*> blocks;
  while (blocks.size() < mib) blocks.push_back(take(kMiB));
  for (void* const block : blocks) std::free(block);
}

void end_threads(std::size_t mib) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([mib] { free_most(mib * kMiB / 8); });
  for (std::thread& thread : threads) thread.join();
}

// In the child: how many threads it has, when it had time to start one.
[[noreturn]] void answer_from_child(int pipe) {
  sleep_for(0.2);
  free_large(8);
  check();
  const int tasks = count_tasks();
  if (write(pipe, &tasks, sizeof tasks) != sizeof tasks) fail("write");
  std::exit(7);
}

std::string fork_child(bool as_daemon) {
  int ends[2], tasks = 0, status = 0;
  if (pipe(ends)) fail("pipe");
  const pid_t child = fork();
  if (!child) {
    if (as_daemon && (setsid() < 0 || fork() > 0)) std::_Exit(7);
    answer_from_child(ends[1]);
  }
  close(ends[1]);
  if (read(ends[0], &tasks, sizeof tasks) != sizeof tasks) fail("child");
  close(ends[0]);
  if (waitpid(child, &status, 0) != child) fail("waitpid");
  return std::to_string(tasks) + " " + std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
}

void be_busy(double seconds) {
  std::atomic<bool> ends{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&, i] {
      for (int round = 0; !ends; ++round) {
        std::thread([&] { free_large(2); }).join();
        std::vector<void*> blocks;
        for (int n = 0; n < 2000; ++n) blocks.push_back(take(16 + n * 37 % 9000));
        for (void* const block : blocks) std::free(block);
        if (i || round % 8) continue;
        const pid_t child = fork();
        if (!child) {
          free_large(1);
          std::_Exit(0);
        }
        int status = 0;
        if (waitpid(child, &status, 0) != child || status) fail("child of a busy thread");
      }
    });
  sleep_for(seconds);
  ends = true;
  for (std::thread& thread : threads) thread.join();
}

// A jump out of malloc itself may leave a lock behind, with any malloc.
sigjmp_buf before;
volatile sig_atomic_t in_malloc = 0;
void jump(int) {
  if (!in_malloc) siglongjmp(before, 1);
}

void jump_about(double seconds) {
  std::signal(SIGALRM, jump);
  const itimerval each{{0, 300}, {0, 300}};
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  sigsetjmp(before, 1);
  setitimer(ITIMER_REAL, &each, nullptr);
  while (std::chrono::steady_clock::now() < end) {
    in_malloc = 1;
    std::free(take(1 + static_cast<std::size_t>(std::rand()) % (2 * kMiB)));
    in_malloc = 0;
  }
  const itimerval never{};
  setitimer(ITIMER_REAL, &never, nullptr);
}

void set_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2];
  if (capget(&header, data) || capset(&header, data)) fail("capabilities");
}

bool prints_at_exit = false;
void print_tasks(const char* where) {
  if (!prints_at_exit) return;
  std::printf("%s %d\n", where, count_tasks());
  std::fflush(stdout);
}
struct PrintsInDestructor {
  ~PrintsInDestructor() { print_tasks("destructor"); }
} prints_in_destructor;

[[noreturn]] void end_by(const std::string& how) {
  if (how == "_exit") _exit(5);
  if (how == "quick_exit") std::quick_exit(5);
  if (how == "abort") std::abort();
  if (how == "last_thread") {
    std::thread([] { sleep_for(0.2); }).detach();
    pthread_exit(nullptr);
  }
  std::exit(5);
}

std::string obey(const std::string& command, std::istringstream& words, char** arguments) {
  double number = 0;
  if (command == "end") {
    std::string how;
    words >> how;
    end_by(how);
  }
  words >> number;
  const auto mib = static_cast<std::size_t>(number);
  if (command == "tasks") return std::to_string(count_tasks());
  if (command == "fork" || command == "daemon") return fork_child(command == "daemon");
  if (command == "large") {
    free_large(mib);
  } else if (command == "threads") {
    end_threads(mib);
  } else if (command == "live") {
    free_most(mib * kMiB);
  } else if (command == "check") {
    check();
  } else if (command == "busy") {
    be_busy(number);
  } else if (command == "jumps") {
    jump_about(number);
  } else if (command == "at_exit") {
    prints_at_exit = true;
    std::atexit([] { print_tasks("handler"); });
  } else if (command == "capabilities") {
    set_capabilities();
  } else if (command == "execute") {
    execl(arguments[0], arguments[0], "again", nullptr);
    fail("execute");
  } else {
    fail(command);
  }
  return "done";
}

}  // namespace

int main(int count, char** arguments) {
  if (count > 1) std::cout << arguments[1] << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    std::cout << obey(command, words, arguments) << std::endl;
  }
}
