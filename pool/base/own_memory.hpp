// Copies within the process by the kernel, which answers where the CPU would fault.
#pragma once
#include <sys/uio.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

#include "pool/base/system_call.hpp"

namespace cistern {

// `call`: SYS_process_vm_readv, from `there` to `here`, or SYS_process_vm_writev. The kernel's answer: bytes copied, or
// an error number, negated.
inline long copy_own_memory(long call, std::span<const iovec> here, std::span<const iovec> there) {
  const auto copy_as = [&](long task) {
    return system_call(call, static_cast<std::uintptr_t>(task), reinterpret_cast<std::uintptr_t>(here.data()),
                       here.size(), reinterpret_cast<std::uintptr_t>(there.data()), there.size(), 0);
  };
  // In a child of vfork, too, the memory is what it calls its own. A process is named by its first thread, and where
  // that one has ended it has no memory: then the calling one has.
  const long copied = copy_as(system_call(SYS_getpid));
  return copied == -ESRCH ? copy_as(system_call(SYS_gettid)) : copied;
}

}  // namespace cistern
