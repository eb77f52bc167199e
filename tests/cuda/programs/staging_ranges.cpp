// Copies whose host memory may not be touched, or only in part, or only after a handler of the program has had its way:
// not mapped, read-only, protected, behind the end of a file. Each in a child that begins CUDA itself, which ends as it
// ends; where the handler helps, the right bytes arrive.
// harness: stages=both
// harness: passes-on=untouchable
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "../program.hpp"
#include "../staging.hpp"

constexpr size_t kBytes = size_t{5} << 20, kPage = 4096;

// --- The memory

static unsigned char* mapped(int protection = PROT_READ | PROT_WRITE) {
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) exit(91);
  auto* const bytes = static_cast<unsigned char*>(memory);
  write_pattern(bytes, kBytes, 1);
  mprotect(bytes, kBytes, protection);
  return bytes;
}
static unsigned char* plain() { return mapped(); }
static unsigned char* untouched() {
  return static_cast<unsigned char*>(
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
}
static unsigned char* read_only() { return mapped(PROT_READ); }
// At an address where nothing else will be mapped when this goes.
static unsigned char* far_away() {
  void* const address = reinterpret_cast<void*>(uintptr_t{1} << 40);
  if (mmap(address, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) !=
      address)
    exit(94);
  auto* const bytes = static_cast<unsigned char*>(address);
  write_pattern(bytes, kBytes, 1);
  return bytes;
}
static unsigned char* not_mapped() {
  unsigned char* bytes = far_away();
  munmap(bytes, kBytes);
  return bytes;
}
static unsigned char* half_mapped() {
  unsigned char* bytes = far_away();
  munmap(bytes + kBytes / 2, kBytes / 2);
  return bytes;
}
static unsigned char* half_read_only() {
  unsigned char* bytes = mapped();
  mprotect(bytes + kBytes / 2, kBytes / 2, PROT_READ);
  return bytes;
}

static int file_of(size_t bytes) {
  const int file = memfd_create("staging", 0);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) exit(92);
  return file;
}
static unsigned char* of_file(int file) {
  return static_cast<unsigned char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
}
static unsigned char* whole_file() {
  unsigned char* bytes = of_file(file_of(kBytes));
  write_pattern(bytes, kBytes, 1);
  return bytes;
}
static unsigned char* truncated_file() {
  const int file = file_of(kBytes);
  unsigned char* bytes = of_file(file);
  write_pattern(bytes, kBytes, 1);
  if (ftruncate(file, kBytes / 2) != 0) exit(93);
  return bytes;
}

// --- Memory behind a handler, as garbage collectors have it

static unsigned char* guarded = nullptr;
static volatile sig_atomic_t faults = 0;

static void let_in(int signal_number, siginfo_t* info, void*) {
  auto* const address = static_cast<unsigned char*>(info->si_addr);
  if (address < guarded || address >= guarded + kBytes) {
    signal(signal_number, SIG_DFL);
    return;
  }
  faults = faults + 1;
  mprotect(reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(address) & ~(kPage - 1)), kPage, PROT_READ | PROT_WRITE);
}
static void handle_faults() {
  struct sigaction action {};
  action.sa_sigaction = let_in;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
}
static unsigned char* guarded_whole() {
  guarded = mapped(PROT_NONE);
  handle_faults();
  return guarded;
}
static unsigned char* guarded_half() {
  guarded = mapped();
  mprotect(guarded + kBytes / 2, kBytes / 2, PROT_NONE);
  handle_faults();
  return guarded;
}
static unsigned char* guarded_for_writes() {
  guarded = mapped(PROT_READ);
  handle_faults();
  return guarded;
}

// --- The copies

static unsigned* device = nullptr;
static cudaStream_t stream = nullptr;

static cudaError_t copy(bool asynchronous, void* to, const void* from, cudaMemcpyKind kind) {
  return asynchronous ? cudaMemcpyAsync(to, from, kBytes, kind, stream) : cudaMemcpy(to, from, kBytes, kind);
}

static void as_source(unsigned char* memory, bool asynchronous) {
  SHOW(copy(asynchronous, device, memory, cudaMemcpyHostToDevice));
  std::vector<unsigned char> found(kBytes);
  NEED(cudaMemcpyAsync(found.data(), device, kBytes, cudaMemcpyDeviceToHost, stream));
  NEED(cudaStreamSynchronize(stream));
  const bool zero = std::all_of(found.begin(), found.end(), [](unsigned char byte) { return byte == 0; });
  say("  arrived: %s", has_pattern(found.data(), kBytes, 1) ? "all" : zero ? "zeros" : "something else");
}

static void as_target(unsigned char* memory, bool asynchronous) {
  const std::vector<unsigned char> there = pattern(kBytes, 2);
  NEED(cudaMemcpy(device, there.data(), kBytes, cudaMemcpyHostToDevice));
  SHOW(copy(asynchronous, memory, device, cudaMemcpyDeviceToHost));
  NEED(cudaStreamSynchronize(stream));
  say("  arrived: %s", has_pattern(memory, kBytes, 2) ? "all" : "something else");
}

struct Case {
  const char* name;
  unsigned char* (*make)();
};

static void in_child(const Case& one, bool source, bool asynchronous) {
  say("%s as %s%s", one.name, source ? "source" : "target", asynchronous ? ", async" : "");
  const pid_t child = fork();
  if (child == 0) {
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    stream = new_stream();
    void* block = nullptr;
    NEED(cudaMalloc(&block, kBytes));
    device = static_cast<unsigned*>(block);
    (source ? as_source : as_target)(one.make(), asynchronous);
    if (guarded) say("  the handler was asked: %s", yes_no(faults > 0));
    NEED(cudaFree(block));
    exit(3);
  }
  int status = 0;
  waitpid(child, &status, 0);
  say("  ended with %d, signal %d", WIFEXITED(status) ? WEXITSTATUS(status) : -1,
      WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

int main() {
  const Case both[] = {{"mapped", plain},
                       {"never touched", untouched},
                       {"not mapped", not_mapped},
                       {"half mapped", half_mapped},
                       {"read-only", read_only},
                       {"half read-only", half_read_only},
                       {"a file", whole_file},
                       {"a truncated file", truncated_file},
                       {"behind a handler", guarded_whole},
                       {"half behind a handler", guarded_half},
                       {"writes behind a handler", guarded_for_writes}};
  for (const Case& one : both)
    for (const bool source : {true, false})
      for (const bool asynchronous : {false, true}) in_child(one, source, asynchronous);
  return finish();
}
