// The roots: all mappings that the program can write, but those of our own tables, the host pool's blocks, and device
// files; anonymous ones too that it can only read. Of them drivers' data and the stacks of drivers' threads are a group
// of their own. For the child alone.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>

#include "shim/judging/plan.hpp"
#include "shim/judging/stacks.hpp"
#include "shim/process/memory_map.hpp"
#include "stats/leaks/judge.hpp"

namespace cistern::judging {

class Roots {
 public:
  explicit Roots(const Plan& plan);

  // All that the child has; then, what of the parent's it has not.
  void read();
  std::span<const leaks::Root> all() const { return roots_.all(); }
  std::span<const leaks::Constants> constants() const { return constants_.all(); }
  std::span<const std::uintptr_t> stacks_in_heap() const { return stacks_.all(); }
  unsigned unseen_threads() const { return unseen_threads_; }
  bool cannot_read() const { return cannot_read_; }
  bool is_short() const;
  bool is_of_driver(std::uintptr_t address) const;

 private:
  struct CodeRange {
    std::uintptr_t first, end;
    bool of_driver, of_runtime;
  };

  // What lies without a name behind a module's last mapping is its uninitialised data, as far as its headers say.
  void read_mappings();
  // Stacks that lie beside each other are one mapping where their guards are inside it, as the C library's are since
  // 2.42.
  void note_between_guards(Mapping mapping);
  // Of the module whose first mapping this is; 0: of none.
  static std::uintptr_t end_of_module(const Mapping& mapping);
  void note(const Mapping& mapping, bool of_driver);
  // Memory that the program has closed for a while. Before Linux 6.7 (which finds what is there at once) not where so
  // much is reserved that a look at its pages would take too long.
  static bool make_what_is_there_readable(const Mapping& mapping);
  // Of the descriptor of a thread that has ended: its head has what the next thread will use, and what it returned may
  // still be asked for.
  void add_what_ended_left(const Descriptor& descriptor, bool of_driver);
  // Without what is ours.
  void add(std::uintptr_t first, std::uintptr_t end, bool of_driver, leaks::Residency residency);
  // The parent's mappings that were not copied: made here, filled when they are read.
  void restore_what_is_missing();
  // With what the parent has there.
  static void fill(std::uintptr_t first, std::uintptr_t end);
  // Mapped ranges are sorted, as the system lists them.
  template <class Visit>
  void for_each_hole(std::uintptr_t first, std::uintptr_t end, Visit visit) {
    const auto all = mapped_.all();
    auto at = std::upper_bound(all.begin(), all.end(), first,
                               [](std::uintptr_t address, const AddressRange& one) { return address < one.end; });
    for (; first < end; ++at) {
      const std::uintptr_t until = at == all.end() ? end : std::min(end, at->first);
      if (first < until) visit(first, until);
      if (at == all.end()) return;
      first = std::max(first, at->end);
    }
  }
  static bool map_here(std::uintptr_t first, std::uintptr_t end);
  void make_readable(std::uintptr_t first, std::uintptr_t end);
  // Threads that run a driver's code: the first code that somebody returns to from the upper end of the stack on, but
  // that of the runtime, is the driver's. What they have is the driver's.
  bool runs_driver(const OtherThread& thread);
  // Of a mapping that has more than the stack, the rest is the program's.
  void give_to_driver(leaks::Root& root, const AddressRange& stack);
  // Their registers, and stacks that lie in blocks of the host pool: coroutines' and such that programs made. Those
  // blocks are in use whoever has a pointer to them.
  void note_threads();
  std::uintptr_t begin_of_block(std::uintptr_t inside) const;
  // Returns its block's begin; 0: it is in none.
  std::uintptr_t note_stack_in_heap(std::uintptr_t inside, const AddressRange& dead);
  // What the kernel alone has; alternate stacks of threads that still live.
  void note_words_of_kernel();
  bool may_live(std::uintptr_t thread_pointer) const;
  const CodeRange* code_at(std::uintptr_t address) const;

  const Plan& plan_;
  const Stacks thread_stacks_;
  Fixed<leaks::Root> roots_{kRootsMax};
  Fixed<leaks::Constants> constants_{kMappingsMax};
  Fixed<CodeRange> code_{kMappingsMax};
  Fixed<AddressRange> ours_{kOursMax}, mapped_{kMappingsMax}, of_driver_{kMappingsMax};
  Fixed<std::uintptr_t> words_{kWordsMax}, stacks_{kStacksMax};
  unsigned unseen_threads_ = 0;
  bool cannot_read_ = false, is_after_guard_ = false;

 public:
  // Of address space; of what is not touched there is none.
  static constexpr std::size_t kBytes =
      kRootsMax * sizeof(leaks::Root) + kOursMax * sizeof(AddressRange) +
      kMappingsMax * (sizeof(leaks::Constants) + sizeof(CodeRange) + 2 * sizeof(AddressRange)) +
      (kWordsMax + kStacksMax) * sizeof(std::uintptr_t);
};

}  // namespace cistern::judging
