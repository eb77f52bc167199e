// A block travels to another process and back through an IPC handle. The child is this program, executed again. Its
// argument says what it has preloaded. So every pair of with and without is seen.
// harness: arguments=none
// harness: arguments={shim}
// harness: says-of-ranges=cistern: cuIpcGetMemHandle refused memory of a range: its call site gets whole .*
#include <sys/wait.h>

#include "../program.hpp"

constexpr size_t kBytes = 256 * 1024;

static std::string hex(const cudaIpcMemHandle_t& handle) {
  std::string text;
  char digits[3];
  for (unsigned char byte : handle.reserved) {
    snprintf(digits, sizeof digits, "%02x", byte);
    text += digits;
  }
  return text;
}

static int child(const char* text) {
  cudaIpcMemHandle_t handle{};
  for (size_t i = 0; i < sizeof handle.reserved; ++i) {
    const char digits[3] = {text[2 * i], text[2 * i + 1], 0};
    handle.reserved[i] = static_cast<char>(strtol(digits, nullptr, 16));
  }
  void* block = nullptr;
  SHOW(cudaIpcOpenMemHandle(&block, handle, cudaIpcMemLazyEnablePeerAccess));
  if (!block) return 1;
  ++made.external;
  say("child sees %s", contents(block, kBytes).c_str());
  fill(nullptr, block, kBytes, 22);
  NEED(cudaDeviceSynchronize());
  say("child frees an imported block: %s", name_of(cudaFree(block)));
  forget_error();
  SHOW(cudaIpcCloseMemHandle(block));
  SHOW(cudaIpcCloseMemHandle(block));
  return 0;
}

static void run_child(const char* self, const char* preload, const std::string& handle) {
  fflush(stdout);
  const pid_t pid = fork();
  if (pid == 0) {
    if (strcmp(preload, "none") == 0)
      unsetenv("LD_PRELOAD");
    else
      setenv("LD_PRELOAD", preload, 1);
    setenv("CISTERN_REPORT", "none", 1);
    execl(self, self, "child", handle.c_str(), nullptr);
    _exit(126);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  say("child ended with %d", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

// The driver refuses handles of virtual memory. So where blocks come from ranges, the first handle of a call site's
// blocks fails, and later ones do not.
static void share(cudaIpcMemHandle_t* handle, void* block, bool is_first) {
  const cudaError_t code = cudaIpcGetMemHandle(handle, block);
  forget_error();
  const cudaError_t expected = is_first && in_ranges() ? cudaErrorInvalidValue : cudaSuccess;
  say("a handle: %s", code == expected ? "as it should be" : name_of(code));
}

int main(int argc, char** argv) {
  if (argc > 2 && strcmp(argv[1], "child") == 0) return child(argv[2]);
  const char* preload = argc > 1 ? argv[1] : "none";
  for (int round = 0; round < 4; ++round) {
    unsigned* block = device_block(kBytes);
    fill(nullptr, block, kBytes, 11 + round);
    NEED(cudaDeviceSynchronize());
    cudaIpcMemHandle_t handle{};
    share(&handle, block, round == 0);
    if (round == 0) {
      NEED(cudaFree(block));
      continue;
    }
    run_child("/proc/self/exe", preload, hex(handle));
    say("the parent sees %s", contents(block, kBytes).c_str());
    SHOW(cudaFree(block));
    unsigned* next = device_block(kBytes);
    fill(nullptr, next, kBytes, 99);
    say("the next block holds %s", contents(next, kBytes).c_str());
    NEED(cudaFree(next));
  }
  cudaIpcMemHandle_t handle{};
  void* opened = nullptr;
  unsigned* block = nullptr;
  for (const bool is_first : {true, false}) {
    if (block) NEED(cudaFree(block));
    block = device_block(kBytes);
    share(&handle, block, is_first);
  }
  SHOW(cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess));
  forget_error();
  NEED(cudaFree(block));
  SHOW(cudaIpcGetMemHandle(&handle, block));
  forget_error();
  void* pinned = pinned_block(kBytes);
  SHOW(cudaIpcGetMemHandle(&handle, pinned));
  forget_error();
  NEED(cudaFreeHost(pinned));
  return finish();
}
