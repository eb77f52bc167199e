// The process ends with blocks live, freed by static destructors, by atexit, or not at all; by return, exit,
// _exit or quick_exit, or it executes itself. The runtime is gone before static destructors run and answers them by
// itself, so what these free stays alive.
// harness: exit=7
// harness: leaks=device:4,pinned:3
// harness: arguments=return
// harness: arguments=exit
// harness: arguments=exec
// harness: leaks=device:3,pinned:2
// harness: arguments=_exit
// harness: arguments=quick_exit
#include "../program.hpp"

constexpr size_t kBytes = 40000;

// The runtime is gone by now: the answer is its affair, but the call must end.
struct Owner {
  unsigned* block = nullptr;
  ~Owner() {
    if (block) (void)cudaFree(block);
  }
};
struct PinnedOwner {
  unsigned* block = nullptr;
  ~PinnedOwner() {
    if (block) (void)cudaFreeHost(block);
  }
};
static Owner owner;
static PinnedOwner pinned_owner;
static unsigned* for_atexit = nullptr;

int main(int argc, char** argv) {
  const std::string way = argc > 1 ? argv[1] : "return";
  device_block(kBytes);
  device_block(kBytes);
  device_block(kBytes);
  pinned_block(kBytes);
  pinned_block(kBytes);
  const bool destructors_run = way == "return" || way == "exit";
  if (destructors_run) {
    owner.block = device_block(kBytes);
    pinned_owner.block = pinned_block(kBytes);
    for_atexit = device_block(kBytes);
    atexit([] { (void)cudaFree(for_atexit); });
    fill(nullptr, owner.block, kBytes, 1);
  }
  NEED(cudaFree(device_block(kBytes)));
  say("ending by %s", way.c_str());
  if (way == "exec") execl("/proc/self/exe", argv[0], "return", nullptr);
  const int code = finish(7);
  if (way == "exit") exit(code);
  if (way == "_exit") _exit(code);
  if (way == "quick_exit") quick_exit(code);
  return code;
}
