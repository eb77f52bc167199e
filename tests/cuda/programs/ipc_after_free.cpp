// A block is freed while another process has it open; what the exporter allocates next is not the importer's block.
#include <sys/wait.h>

#include "../program.hpp"

constexpr size_t kBytes = 65536;

// The child waits for a byte before it writes into the block that its parent has freed by then.
static int child(int go, int done, cudaIpcMemHandle_t handle) {
  void* block = nullptr;
  if (cudaIpcOpenMemHandle(&block, handle, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess) return 1;
  char byte = 'o';
  if (write(done, &byte, 1) != 1 || read(go, &byte, 1) != 1) return 2;
  fill(nullptr, block, kBytes, 66);
  NEED(cudaDeviceSynchronize());
  return cudaIpcCloseMemHandle(block) == cudaSuccess ? 0 : 3;
}

int main(int argc, char** argv) {
  cudaIpcMemHandle_t handle{};
  if (argc > 1 && strcmp(argv[1], "child") == 0) {
    if (read(0, &handle, sizeof handle) != static_cast<ssize_t>(sizeof handle)) return 4;
    return child(0, 1, handle);
  }
  for (int round = 0; round < 3; ++round) {
    int to_child[2], from_child[2];
    if (pipe(to_child) || pipe(from_child)) return 91;
    unsigned* block = device_block(kBytes);
    fill(nullptr, block, kBytes, 1);
    NEED(cudaDeviceSynchronize());
    NEED(cudaIpcGetMemHandle(&handle, block));
    const pid_t pid = fork();
    if (pid == 0) {
      dup2(to_child[0], 0);
      dup2(from_child[1], 1);
      close(to_child[1]);
      close(from_child[0]);
      setenv("CISTERN_REPORT", "none", 1);
      execl("/proc/self/exe", "ipc_after_free", "child", nullptr);
      _exit(126);
    }
    close(to_child[0]);
    close(from_child[1]);
    char byte = 0;
    if (write(to_child[1], &handle, sizeof handle) < 0 || read(from_child[0], &byte, 1) != 1) say("no answer");
    SHOW(cudaFree(block));
    unsigned* next[4];
    for (unsigned*& one : next) fill(nullptr, one = device_block(kBytes), kBytes, 2);
    NEED(cudaDeviceSynchronize());
    if (write(to_child[1], &byte, 1) != 1) say("the child is gone");
    int status = 0;
    waitpid(pid, &status, 0);
    say("child ended with %d", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    for (unsigned* one : next) say("holds %s", contents(one, kBytes).c_str());
    for (unsigned* one : next) NEED(cudaFree(one));
    close(to_child[1]);
    close(from_child[0]);
  }
  return finish();
}
