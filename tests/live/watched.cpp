// A program that a test watches: it does what its lines of input say, and answers each with a line, "done" or a number.
//
//   allocate KIND BYTES   KIND: device, pinned, host; a block that it keeps
//   free                  the last one of them
//   call                  a call for a GPU that allocates nothing
//   churn SECONDS         four threads allocate, free and fork
//   fork                  a child that waits, until it is killed, with a call for a GPU each 10 ms; its number
//   raw_fork              the same, forked behind the C library's back, without those calls
//   threads               how many threads the process has
//   filter                from now on other system calls than a few end the process
//   execute PROGRAM       another program in this process
//   end exit|_exit|abort  the process
#include <cuda_runtime.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Block {
  std::string kind;
  void* memory;
};
std::vector<Block> blocks;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "watched: %s failed\n", what.c_str());
  std::_Exit(90);
}

void give_back(const Block& block) {
  if (block.kind == "host")
    std::free(block.memory);
  else if ((block.kind == "pinned" ? cudaFreeHost(block.memory) : cudaFree(block.memory)) != cudaSuccess)
    fail("free");
}

void* take(const std::string& kind, std::size_t bytes) {
  void* memory = nullptr;
  if (kind == "host") {
    memory = std::malloc(bytes);
  } else if ((kind == "pinned" ? cudaMallocHost(&memory, bytes) : cudaMalloc(&memory, bytes)) != cudaSuccess) {
    fail("allocate");
  }
  return memory;
}

void call() {
  std::size_t free_bytes, total_bytes;
  cudaMemGetInfo(&free_bytes, &total_bytes);
}

void churn(double seconds) {
  std::atomic<bool> ends{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (int round = 0; !ends; ++round) {
        const std::string kind = round % 3 == 0 ? "device" : round % 3 == 1 ? "pinned" : "host";
        give_back({kind, take(kind, std::size_t{1} << (8 + round % 12))});
        if (i == 0 && round % 256 == 0) {
          const pid_t child = fork();
          if (!child) std::_Exit(0);
          waitpid(child, nullptr, 0);
        }
      }
    });
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  ends = true;
  for (std::thread& thread : threads) thread.join();
}

pid_t fork_waiting(bool raw) {
  const pid_t child = raw ? static_cast<pid_t>(syscall(SYS_fork)) : fork();
  if (child) return child;
  if (raw)
    for (;;) syscall(SYS_pause);
  for (;;) {
    call();
    usleep(10'000);
  }
}

// Writes and reads are allowed, the end, and what a mapping and a lock need.
void filter() {
  std::vector<sock_filter> code{{BPF_LD | BPF_W | BPF_ABS, 0, 0, 0}};
  for (const unsigned allowed :
       {SYS_read, SYS_write, SYS_exit_group, SYS_exit, SYS_munmap, SYS_mmap, SYS_futex, SYS_brk, SYS_rt_sigreturn}) {
    code.push_back({BPF_JMP | BPF_JEQ | BPF_K, 0, 1, allowed});
    code.push_back({BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW});
  }
  code.push_back({BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL_PROCESS});
  const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) fail("filter");
}

int count_threads() {
  struct stat tasks {};
  stat("/proc/self/task", &tasks);
  return static_cast<int>(tasks.st_nlink) - 2;
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string command, word;
    words >> command >> word;
    std::string answer = "done";
    if (command == "allocate") {
      std::size_t bytes = 0;
      words >> bytes;
      blocks.push_back({word, take(word, bytes)});
    } else if (command == "free") {
      give_back(blocks.back());
      blocks.pop_back();
    } else if (command == "call") {
      call();
    } else if (command == "churn") {
      churn(std::stod(word));
    } else if (command == "fork" || command == "raw_fork") {
      answer = std::to_string(fork_waiting(command == "raw_fork"));
    } else if (command == "threads") {
      answer = std::to_string(count_threads());
    } else if (command == "filter") {
      filter();
    } else if (command == "execute") {
      execlp(word.c_str(), word.c_str(), "60", nullptr);
      fail(line);
    } else if (command == "end") {
      if (word == "_exit") _exit(0);
      if (word == "abort") std::abort();
      return 0;
    } else {
      fail(line);
    }
    std::cout << answer << std::endl;
  }
}
