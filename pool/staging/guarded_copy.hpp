// Copies between our own memory and the program's that another thread may unmap or protect meanwhile. The kernel does
// them: what would fault is an answer.
#pragma once
#include <cstddef>

namespace cistern::staging {

// The side that is the program's, and guarded.
enum class Guarded : unsigned char { neither, source, target };

// Another way to the program's side of a copy to the device than through its addresses, for any number of threads.
class SourceReader {
 public:
  // False: some of it has to be read the other way.
  virtual bool read(char* to, const char* from, std::size_t bytes) const = 0;

 protected:
  ~SourceReader() = default;
};

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
