// See page_size.hpp.
#include "pool/base/page_size.hpp"

#include <elf.h>
#include <unistd.h>

#include "pool/base/process_start.hpp"

namespace cistern {

// The C library is asked only where the program has overwritten what the kernel left.
std::size_t page_size::read() {
  std::size_t bytes = start_value(AT_PAGESZ);
  if (!bytes) bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  known.store(bytes, std::memory_order_relaxed);
  return bytes;
}

}  // namespace cistern
