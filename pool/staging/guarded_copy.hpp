// Copies between our own memory and the program's that another thread may unmap or protect meanwhile. The kernel does
// them: what would fault is an answer.
#pragma once
#include <cstddef>

namespace cistern::staging {

// The side that is the program's, and guarded.
enum class Guarded : unsigned char { neither, source, target };

// Rows of one length, from the start of one to that of the next so far.
struct GuardedRows {
  char* to;
  const char* from;
  std::size_t to_pitch, from_pitch, row_bytes, rows;
};
// False: not all of it was copied.
bool guarded_copy(const GuardedRows& what, Guarded which);
// Whether this process may make the call at all, as far as it was tried.
bool guarded_copies_are_allowed();

}  // namespace cistern::staging
