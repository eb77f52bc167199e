// What the programs share that run under a filter of system calls which they have from their start, as in a container
// or a service.
#pragma once
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "program.hpp"
#include "staging.hpp"

struct FilteredCalls {
  unsigned one, other;
};
constexpr FilteredCalls kCopiesOfKernel = {SYS_process_vm_readv, SYS_process_vm_writev};

// The program from its start, with the argument "again".
[[noreturn]] inline void start_again_under_filter(char** arguments, unsigned action,
                                                  const FilteredCalls& calls = kCopiesOfKernel) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls.one, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls.other, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, action),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter = {sizeof program / sizeof *program, program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) _exit(91);
  execl("/proc/self/exe", arguments[0], "again", nullptr);
  _exit(92);
}

inline void copy_there_and_back(const char* name, unsigned char* memory, size_t bytes) {
  auto* const device = device_block<unsigned char>(bytes);
  for (unsigned round = 0; round < 2; ++round) {
    write_pattern(memory, bytes, round);
    SHOW(cudaMemcpy(device, memory, bytes, cudaMemcpyHostToDevice));
    memset(memory, 0, bytes);
    SHOW(cudaMemcpy(memory, device, bytes, cudaMemcpyDeviceToHost));
    say("  %s: %s", name, has_pattern(memory, bytes, round) ? "all arrived" : "something else arrived");
  }
  NEED(cudaFree(device));
}

// Of memory that only the program knows of, and of its malloc's.
inline int copies() {
  constexpr size_t kBytes = size_t{5} << 20;
  void* const mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return 93;
  copy_there_and_back("mapped", static_cast<unsigned char*>(mapped), kBytes);
  void* const allocated = malloc(kBytes);
  copy_there_and_back("allocated", static_cast<unsigned char*>(allocated), kBytes);
  free(allocated);
  return finish();
}
