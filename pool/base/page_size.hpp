// The size of the system's pages: 4, 16 or 64 KiB. It is read once from what the kernel left for the process, without a
// call: it is needed under locks and in signal handlers.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cistern {

// A page of any system has at least so many bytes, and begins at a multiple of them.
constexpr std::size_t kLeastPageBytes = 4096;

namespace page_size {
// 0: not read yet. Tests store another size.
inline constinit std::atomic<std::size_t> known{0};
std::size_t read();
}  // namespace page_size

inline std::size_t page_bytes() {
  const std::size_t known = page_size::known.load(std::memory_order_relaxed);
  return known ? known : page_size::read();
}

// The begin of the page that holds the address.
inline std::uintptr_t page_begin(std::uintptr_t address) { return address & ~(page_bytes() - 1); }
// Rounded up to whole pages; of an address: the end of the pages before it.
inline std::size_t whole_pages(std::size_t bytes) {
  const std::size_t page = page_bytes();
  return (bytes + page - 1) & ~(page - 1);
}

}  // namespace cistern
