// The classes of live memory, as it was last judged (judging/judging.hpp); kinds ask for their rows.
#pragma once
#include <array>
#include <span>

#include "pool/base/internal_memory.hpp"
#include "stats/leaks/judge.hpp"

namespace cistern {

// The memory that the kinds hand in.
class JudgedMemory {
 public:
  // Live memory: any address inside leads to it. `is_readable`: by the processor, now.
  void add(std::uintptr_t first, std::uint64_t bytes, bool is_readable) {
    targets_.push_back({first, bytes ? bytes : 1, is_readable});
  }
  // A live object that reports list, by its handle.
  void add_handle(const void* handle) {
    targets_.push_back({reinterpret_cast<std::uintptr_t>(handle), 1, false});
    add_handed_out(handle);
  }
  // Another object that a driver gave the program; it leads to the driver's own memory.
  void add_handed_out(const void* handle) { handed_out_.push_back(reinterpret_cast<std::uintptr_t>(handle)); }

  // Readable, but retained for reuse: the program does not own it now.
  void add_unused(std::uintptr_t first, std::uint64_t bytes) { unused_.push_back({first, bytes, true}); }

  void sort();
  const Vector<leaks::Target>& targets() const { return targets_; }
  const Vector<std::uintptr_t>& handed_out() const { return handed_out_; }
  const Vector<leaks::Target>& unused() const { return unused_; }

 private:
  Vector<leaks::Target> targets_, unused_;
  Vector<std::uintptr_t> handed_out_;
};

struct Judgement {
  bool is_known = false;
  const char* why_not = nullptr;  // null: it was not asked for
  unsigned unseen_threads = 0;    // their registers may hold addresses of lost blocks
  std::uint64_t unreadable_bytes = 0;
  std::uint64_t bytes_read = 0, took_ns = 0;
  std::uint64_t stopped_ns = 0;    // other threads
  std::uint64_t listed_ns = 0;     // when targets were, by the coarse clock: all that were born before it advanced
  std::uint64_t memory_bytes = 0;  // of the tables
  std::span<const leaks::Target> targets;
  const host_pool::Picture* heap = nullptr;
  std::span<const std::uint8_t> marks;
};

// Other threads than this one see no judgement: it may be made again meanwhile.
void set_judging_thread(const void* thread);
void set_judgement(const Judgement& judgement);
const Judgement& judgement();

// The class of the target that begins there and was allocated then; none: there was no judgement. A block that was made
// after the list may have the address of a target in the list.
Standing standing_of_target(std::uintptr_t first, std::uint64_t born_ns);
inline Standing standing_of_target(const void* handle, std::uint64_t born_ns) {
  return standing_of_target(reinterpret_cast<std::uintptr_t>(handle), born_ns);
}
// The class of the live host block there.
Standing standing_of_host_block(const void* block);

}  // namespace cistern
