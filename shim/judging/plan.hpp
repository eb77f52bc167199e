// What the judging child is told and what it tells back, in memory of both processes; and tables of fixed size, which
// the child can fill without an allocator.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "pool/heap/picture.hpp"
#include "shim/judged_copy/held_threads.hpp"
#include "shim/judged_copy/memory_copy.hpp"
#include "shim/judged_copy/other_threads.hpp"
#include "stats/leaks/judge.hpp"

namespace cistern::judging {

// Most that are looked at; with more nothing is judged.
constexpr std::size_t kRootsMax = std::size_t{1} << 17, kMappingsMax = std::size_t{1} << 16;
constexpr std::size_t kOursMax = std::size_t{1} << 15, kDriverWordsMax = 64, kWordsMax = std::size_t{1} << 18,
                      kStacksMax = std::size_t{1} << 15;

inline std::uintptr_t address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

// Of memory that does not grow: where there is no room, that is noted.
template <class T>
class Fixed {
 public:
  explicit Fixed(std::size_t room)
      : first_(static_cast<T*>(take_in_copy(room * sizeof(T)))), room_(first_ ? room : 0) {}
  void push(const T& one) { count_ < room_ ? void(first_[count_++] = one) : void(is_short_ = true); }
  T* begin() { return first_; }
  T* end() { return first_ + count_; }
  std::span<const T> all() const { return {first_, count_}; }
  bool is_short() const { return is_short_ || !room_; }

 private:
  T* const first_;
  const std::size_t room_;
  std::size_t count_ = 0;
  bool is_short_ = false;
};

struct AddressRange {
  std::uintptr_t first, end;
  bool holds(std::uintptr_t address) const { return address - first < end - first; }
};
struct Findings {
  host_pool::Picture heap;
  bool is_complete = false;  // there was room for all
  bool cannot_read = false;  // what is mapped
  unsigned unseen_threads = 0;
  std::uint64_t unreadable_bytes = 0, bytes_read = 0, scratch_bytes = 0;
};

struct Plan {
  const void* stack_in_use;
  int own_id;      // of this thread
  int process_id;  // of the first one
  bool on_alternate_stack, may_stop;
  OtherThreads* threads;
  std::span<const std::uintptr_t> handed_out;
  std::span<const leaks::Target> unused;
  Findings* findings;
  std::span<leaks::Target> targets;
  std::span<std::uint8_t> marks;
  void* picture_table;
  std::size_t picture_bytes;
  AddressRange both;  // all of the memory of both
  HeldThreads* held;  // of the parent
  AddressRange own_stack;
  leaks::PythonIntegers integers;
};

}  // namespace cistern::judging
