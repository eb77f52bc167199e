// A stretch of addresses from which blocks are cut: the memory of one device, all pinned host memory, or addresses with
// no memory. Pages are committed by the first touch only. Bookkeeping is O(log n) in the number of free ranges.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace simcuda {

// [assumed] Drivers give device addresses that are multiples of 512.
constexpr size_t kGranule = 512;
constexpr size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

class AddressWindow {
 public:
  // shared: the memory is a file without a name that another process can map (IPC); it is not inherited by fork.
  bool open(size_t bytes, bool shared);
  // Addresses only: whoever touches them faults.
  bool reserve(size_t bytes);
  // Best fit, lowest address: a block that was just freed is soon given again, so that stale uses show. 0: none left.
  // The alignment is a power of two. A greater one than a granule costs O(n).
  uintptr_t take(size_t bytes, size_t alignment = kGranule);
  void give(uintptr_t address, size_t bytes);

  uintptr_t begin() const { return begin_; }
  bool contains(uintptr_t address) const { return address - begin_ < bytes_; }
  int file() const { return file_; }
  size_t offset_of(uintptr_t address) const { return address - begin_; }
  // Fills a freed block with 0xDB. Beyond so many bytes at each end the pages are dropped and read as zero, so that
  // memory once touched does not stay committed. It needs no lock, because a freed block has no owner.
  void poison(uintptr_t address, size_t bytes, size_t end_bytes = size_t{2} << 20) const;

 private:
  void insert_free(uintptr_t address, size_t bytes);
  void erase_free(std::map<uintptr_t, size_t>::iterator range);
  void drop_pages(uintptr_t address, size_t bytes) const;

  uintptr_t begin_ = 0;
  size_t bytes_ = 0;
  int file_ = -1;
  std::map<uintptr_t, size_t> free_by_address_;
  std::set<std::pair<size_t, uintptr_t>> free_by_size_;
};

constexpr unsigned char kPoison = 0xDB;

}  // namespace simcuda
