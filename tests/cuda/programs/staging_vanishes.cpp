// Another thread unmaps or protects the memory while it is copied, as a collector of garbage does: the program's
// handler of faults gives the page back, and each copy ends well. It is told of faults of the driver's own copy, on
// threads that the program and the driver know; the memory is read and written by nobody else who could fault.
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <atomic>
#include <thread>

#include "../program.hpp"
#include "../staging.hpp"

constexpr size_t kBytes = size_t{16} << 20, kPage = 4096;
constexpr int kRounds = 24;

static unsigned char* memory = nullptr;
static std::atomic<int> on_strange_threads{0};

static void give_back(int, siginfo_t* info, void*) {
  const auto page = reinterpret_cast<uintptr_t>(info->si_addr) & ~(kPage - 1);
  const auto first = reinterpret_cast<uintptr_t>(memory);
  if (page < first || page >= first + kBytes) _exit(92);
  char name[16] = "";
  prctl(PR_GET_NAME, name);
  if (strcmp(name, "cistern-copy") == 0) ++on_strange_threads;
  mmap(reinterpret_cast<void*>(page), kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

static void make_memory() {
  void* const made = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) exit(91);
  memset(made, 1, kBytes);
  memory = static_cast<unsigned char*>(made);
}

// Most of it, a moment after the copy began. Its place is nobody else's: an unmapped one might be taken.
static void go(bool unmapped, int round) {
  usleep(static_cast<useconds_t>(round * 157 % 3000));
  unsigned char* const from = memory + kBytes / 8;
  const size_t bytes = kBytes / 8 * 7;
  if (unmapped)
    mmap(from, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  else
    mprotect(from, bytes, PROT_NONE);
}

static void copies(bool to_device, void* block) {
  int failed = 0;
  for (int round = 0; round < kRounds; ++round) {
    make_memory();
    std::thread other(go, round % 2, round);
    const cudaError_t code = to_device ? cudaMemcpy(block, memory, kBytes, cudaMemcpyHostToDevice)
                                       : cudaMemcpy(memory, block, kBytes, cudaMemcpyDeviceToHost);
    failed += code != cudaSuccess;
    other.join();
    munmap(memory, kBytes);
  }
  say("%s: %d failed", to_device ? "to the device" : "to the host", failed);
}

int main() {
  alarm(100);
  struct sigaction action {};
  action.sa_sigaction = give_back;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
  void* const block = device_block(kBytes);
  copies(true, block);
  copies(false, block);
  say("faults on threads that nobody knows: %d", on_strange_threads.load());
  std::vector<unsigned char> there = pattern(kBytes, 1), back(kBytes);
  NEED(cudaMemcpy(block, there.data(), kBytes, cudaMemcpyHostToDevice));
  NEED(cudaMemcpy(back.data(), block, kBytes, cudaMemcpyDeviceToHost));
  say("then: right: %s", yes_no(back == there));
  NEED(cudaFree(block));
  return finish();
}
