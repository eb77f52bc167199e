// Threads that allocate, free and copy memory at random, and note each of their calls: what a recording of them must
// have. Afterwards, or right before the program kills itself, it prints a line for each call, by thread in their order:
//
//   recorded THREADS CALLS SEED end|kill|fork|churn
//
//   THREAD allocate KIND ADDRESS BYTES · THREAD free KIND ADDRESS · THREAD copy BYTES · THREAD fail BYTES
//
// KIND: device:0, device:1, pinned, host. THREAD: the system's number. `fork`: each thread forks now and then, and the
// child does a few calls of its own, which it prints to a file named by its number. `churn`: blocks live shortly, but
// for the first of each thread.
#include <cuda_runtime.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Call {
  char what;  // a, f, c, x
  int kind;
  const void* address;
  std::size_t bytes;
};

constexpr const char* kKinds[] = {"device:0", "device:1", "pinned", "host"};

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "recorded: %s failed\n", what);
  std::_Exit(90);
}
#define MUST(call)                          \
  do {                                      \
    if ((call) != cudaSuccess) fail(#call); \
  } while (0)

// The calls of one thread. Each is there before the count says so.
class Log {
 public:
  explicit Log(std::size_t most) : calls_(new Call[most]) {}
  void note(Call call) {
    calls_[count_.load(std::memory_order_relaxed)] = call;
    count_.fetch_add(1, std::memory_order_release);
  }
  void print(std::FILE* to) const {
    const std::size_t count = count_.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < count; ++i) {
      const Call& call = calls_[i];
      const auto address = reinterpret_cast<std::uintptr_t>(call.address);
      if (call.what == 'a')
        std::fprintf(to, "%d allocate %s %" PRIxPTR " %zu\n", thread, kKinds[call.kind], address, call.bytes);
      else if (call.what == 'f')
        std::fprintf(to, "%d free %s %" PRIxPTR "\n", thread, kKinds[call.kind], address);
      else
        std::fprintf(to, "%d %s %zu\n", thread, call.what == 'c' ? "copy" : "fail", call.bytes);
    }
  }
  int thread = 0;

 private:
  Call* const calls_;
  std::atomic<std::size_t> count_{0};
};

struct Block {
  int kind;
  void* address;
  std::size_t bytes;
};

class Worker {
 public:
  Worker(Log& log, unsigned seed, bool churns) : log_(log), random_(seed), churns_(churns) {
    log_.thread = static_cast<int>(syscall(SYS_gettid));
  }
  void call() {
    const unsigned what = random_() % 16;
    const std::size_t most = churns_ ? 2 : 50;
    if (what == 0) return copy();
    if (what == 1 && !churns_) return allocate_too_much();
    if (blocks_.size() < most && (blocks_.empty() || what < 10)) return allocate();
    free_one();
  }
  void free_all() {
    while (!blocks_.empty()) free_one();
  }

 private:
  void allocate() {
    Block block{static_cast<int>(random_() % 4), nullptr, random_() % 100000 + 1};
    if (block.kind < 2) {
      MUST(cudaSetDevice(block.kind));
      MUST(cudaMalloc(&block.address, block.bytes));
    } else if (block.kind == 2) {
      MUST(cudaMallocHost(&block.address, block.bytes));
    } else {
      block.address = std::malloc(block.bytes);
    }
    log_.note({'a', block.kind, block.address, block.bytes});
    blocks_.push_back(block);
  }
  void free_one() {
    const std::size_t at = random_() % blocks_.size();
    const Block block = blocks_[at];
    blocks_[at] = blocks_.back();
    blocks_.pop_back();
    if (block.kind < 2)
      MUST(cudaFree(block.address));
    else if (block.kind == 2)
      MUST(cudaFreeHost(block.address));
    else
      std::free(block.address);
    log_.note({'f', block.kind, block.address, 0});
  }
  void copy() {
    char from[512] = {}, *to = nullptr;
    MUST(cudaSetDevice(0));
    const std::size_t bytes = random_() % sizeof from + 1;
    for (const Block& block : blocks_)
      if (block.kind == 0 && block.bytes >= bytes) to = static_cast<char*>(block.address);
    if (!to) return;
    MUST(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
    log_.note({'c', 0, nullptr, bytes});
  }
  void allocate_too_much() {
    void* block = nullptr;
    const std::size_t bytes = (std::size_t{1} << 50) + random_() % 1000;
    MUST(cudaSetDevice(0));
    if (cudaMalloc(&block, bytes) == cudaSuccess) fail("a failure");
    cudaGetLastError();
    log_.note({'x', 0, nullptr, bytes});
  }

  Log& log_;
  std::mt19937 random_;
  const bool churns_;
  std::vector<Block> blocks_;
};

// The child's file has its calls; the driver is not to be used in it.
void fork_once(unsigned seed) {
  const pid_t child = fork();
  if (child < 0) fail("fork");
  if (child == 0) {
    Log log(10);
    log.thread = static_cast<int>(getpid());
    for (unsigned i = 0; i < 5; ++i) {
      const std::size_t bytes = seed % 1000 + 100 * i + 1;
      void* const block = std::malloc(bytes);
      log.note({'a', 3, block, bytes});
      std::free(block);
      log.note({'f', 3, block, 0});
    }
    std::FILE* const to = std::fopen((std::to_string(getpid()) + ".calls").c_str(), "w");
    log.print(to);
    std::fclose(to);
    std::_Exit(0);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0) fail("the child");
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) return 2;
  const int threads = std::atoi(arguments[1]), calls = std::atoi(arguments[2]);
  const unsigned seed = static_cast<unsigned>(std::atoi(arguments[3]));
  const std::string way = arguments[4];
  std::vector<Log*> logs;
  for (int i = 0; i < threads; ++i) logs.push_back(new Log(static_cast<std::size_t>(2 * calls + 100)));
  std::atomic<int> done{0};
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i)
    running.emplace_back([&, i] {
      Worker worker(*logs[static_cast<std::size_t>(i)], seed + static_cast<unsigned>(i), way == "churn");
      for (int call = 0; call < calls || way == "kill"; ++call) {
        if (call == calls / 2) ++done;
        if (call == 2 * calls) pause();
        if (way == "fork" && call % 50 == 7) fork_once(seed + static_cast<unsigned>(call));
        worker.call();
      }
      if (way == "end") worker.free_all();
    });
  if (way == "kill") {
    while (done < threads) usleep(1000);
    for (const Log* log : logs) log->print(stdout);
    std::fflush(stdout);
    raise(SIGKILL);
  }
  for (std::thread& one : running) one.join();
  for (const Log* log : logs) log->print(stdout);
  return 0;
}
