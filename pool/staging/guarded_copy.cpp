// See guarded_copy.hpp.
#include "pool/staging/guarded_copy.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <span>

#include "pool/base/own_memory.hpp"

namespace cistern::staging {
namespace {

constinit std::atomic<bool> refused{false};

// A call takes many rows, which may be short; of a long one it may take a part.
constexpr std::size_t kRowsOfACall = 64, kShortRowBytes = std::size_t{1} << 20;

// Other answers come from a filter of system calls or from a kernel without the call, and come each time.
bool is_answer_of_memory(long answer) { return answer >= 0 || answer == -EFAULT || answer == -ENOMEM; }

// Bytes copied.
long copy(const iovec* to, const iovec* from, std::size_t rows, Guarded which) {
  const bool reads = which == Guarded::source;
  const std::span here(reads ? to : from, rows), there(reads ? from : to, rows);
  const long copied = copy_own_memory(reads ? SYS_process_vm_readv : SYS_process_vm_writev, here, there);
  if (!is_answer_of_memory(copied)) refused.store(true, std::memory_order_relaxed);
  return copied;
}

bool copy_long_row(char* to, const char* from, std::size_t bytes, Guarded which) {
  for (std::size_t at = 0; at < bytes;) {
    const iovec target{to + at, bytes - at}, source{const_cast<char*>(from) + at, bytes - at};
    const long copied = copy(&target, &source, 1, which);
    if (copied <= 0) return false;
    at += static_cast<std::size_t>(copied);
  }
  return true;
}

bool copy_short_rows(const GuardedRows& what, std::size_t first, std::size_t rows, Guarded which) {
  iovec to[kRowsOfACall], from[kRowsOfACall];
  for (std::size_t i = 0; i < rows; ++i) {
    to[i] = {what.to + (first + i) * what.to_pitch, what.row_bytes};
    from[i] = {const_cast<char*>(what.from) + (first + i) * what.from_pitch, what.row_bytes};
  }
  return copy(to, from, rows, which) == static_cast<long>(rows * what.row_bytes);
}

}  // namespace

bool guarded_copy(const GuardedRows& what, Guarded which) {
  const std::size_t rows_each = what.row_bytes > kShortRowBytes ? 1 : kRowsOfACall;
  for (std::size_t row = 0; row < what.rows; row += rows_each) {
    const bool copied = rows_each == 1 ? copy_long_row(what.to + row * what.to_pitch, what.from + row * what.from_pitch,
                                                       what.row_bytes, which)
                                       : copy_short_rows(what, row, std::min(rows_each, what.rows - row), which);
    if (!copied) return false;
  }
  return true;
}

bool guarded_copies_are_allowed() { return !refused.load(std::memory_order_relaxed); }

}  // namespace cistern::staging
