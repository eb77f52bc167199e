// A child of fork: CUDA is not usable there. It leaves CUDA alone, or tries to use and to free what its parent made and
// gets the native error; it ends by exit or _exit; its parent goes on.
#include <sys/wait.h>

#include "../program.hpp"

constexpr size_t kBytes = 60000;

template <class Work>
static void in_child(const char* what, Work work) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    work();
    fflush(stdout);
    _exit(3);
  }
  int status = 0;
  waitpid(child, &status, 0);
  say("%s: child ended with %d, signal %d", what, WIFEXITED(status) ? WEXITSTATUS(status) : -1,
      WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

int main() {
  unsigned *block = device_block(kBytes), *pinned = pinned_block(kBytes);
  fill(nullptr, block, kBytes, 1);
  NEED(cudaDeviceSynchronize());
  pinned[0] = 2;
  NEED(cudaFree(device_block(kBytes)));  // a cache would hold it when the child begins
  NEED(cudaFreeHost(pinned_block(kBytes)));
  in_child("idle child", [] {});
  in_child("child that allocates from the heap", [] { free(malloc(100)); });
  in_child("child that frees", [&] {
    SHOW(cudaFree(block));
    SHOW(cudaFreeHost(pinned));
  });
  in_child("child that allocates", [] {
    void* more = nullptr;
    SHOW(cudaMalloc(&more, kBytes));
    SHOW(cudaMallocHost(&more, kBytes));
  });
  in_child("child that executes", [] { execl("/bin/true", "true", nullptr); });
  in_child("child that exits", [] { exit(4); });
  say("the parent's block holds %s", contents(block, kBytes).c_str());
  unsigned* next = device_block(kBytes);
  fill(nullptr, next, kBytes, 3);
  say("a new block holds %s", contents(next, kBytes).c_str());
  for (unsigned* one : {block, next}) SHOW(cudaFree(one));
  SHOW(cudaFreeHost(pinned));
  return finish();
}
