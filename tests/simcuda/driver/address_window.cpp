// Best-fit ranges with coalescing over one large mapping.
#include "tests/simcuda/driver/address_window.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <iterator>

namespace simcuda {

bool AddressWindow::open(size_t bytes, bool shared) {
  int flags = MAP_NORESERVE | (shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS);
  if (shared) {
    file_ = memfd_create("simcuda device memory", MFD_CLOEXEC);
    if (file_ < 0 || ftruncate(file_, static_cast<off_t>(bytes)) != 0) return false;
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, file_, 0);
  if (memory == MAP_FAILED) return false;
  if (shared) madvise(memory, bytes, MADV_DONTFORK);
  begin_ = reinterpret_cast<uintptr_t>(memory);
  bytes_ = bytes;
  insert_free(begin_, bytes_);
  return true;
}

bool AddressWindow::reserve(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  begin_ = reinterpret_cast<uintptr_t>(memory);
  bytes_ = bytes;
  insert_free(begin_, bytes_);
  return true;
}

uintptr_t AddressWindow::take(size_t bytes, size_t alignment) {
  auto fit = free_by_size_.lower_bound({bytes, 0});
  while (fit != free_by_size_.end() && round_up(fit->second, alignment) + bytes > fit->second + fit->first) ++fit;
  if (fit == free_by_size_.end()) return 0;
  const auto [free_bytes, address] = *fit;
  const uintptr_t begin = round_up(address, alignment), end = begin + bytes;
  erase_free(free_by_address_.find(address));
  if (begin > address) insert_free(address, begin - address);
  if (address + free_bytes > end) insert_free(end, address + free_bytes - end);
  return begin;
}

void AddressWindow::give(uintptr_t address, size_t bytes) {
  auto next = free_by_address_.lower_bound(address);
  if (next != free_by_address_.end() && next->first == address + bytes) {
    bytes += next->second;
    erase_free(next);
  }
  next = free_by_address_.lower_bound(address);
  if (next != free_by_address_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == address) {
      address = previous->first;
      bytes += previous->second;
      erase_free(previous);
    }
  }
  insert_free(address, bytes);
}

void AddressWindow::insert_free(uintptr_t address, size_t bytes) {
  free_by_address_.emplace(address, bytes);
  free_by_size_.emplace(bytes, address);
}

void AddressWindow::erase_free(std::map<uintptr_t, size_t>::iterator range) {
  free_by_size_.erase({range->second, range->first});
  free_by_address_.erase(range);
}

void AddressWindow::poison(uintptr_t address, size_t bytes, size_t end_bytes) const {
  const uintptr_t end = address + bytes;
  if (bytes <= 2 * end_bytes) {
    std::memset(reinterpret_cast<void*>(address), kPoison, bytes);
    return;
  }
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t drop_begin = round_up(address + end_bytes, page);
  const uintptr_t drop_end = (end - end_bytes) / page * page;
  std::memset(reinterpret_cast<void*>(address), kPoison, drop_begin - address);
  std::memset(reinterpret_cast<void*>(drop_end), kPoison, end - drop_end);
  drop_pages(drop_begin, drop_end - drop_begin);
}

void AddressWindow::drop_pages(uintptr_t address, size_t bytes) const {
  if (file_ < 0)
    madvise(reinterpret_cast<void*>(address), bytes, MADV_DONTNEED);
  else
    fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset_of(address)),
              static_cast<off_t>(bytes));
}

}  // namespace simcuda
