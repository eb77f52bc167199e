// Numbers for the stacks that a thread was seen with, and what each is called: a stack is a return address and the
// stack behind it, so that of one that differs in a few inner frames only these are looked up.
//
// For processes that capture at every allocation; a table of one size, which begins anew when it is full.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace cistern::unwind {

class StackNames {
 public:
  using Number = std::uint32_t;
  static constexpr Number kNone = 0;  // not known; what is in front of it is not either

  // Behind the outermost frame there is nothing.
  Number of_outermost(std::uintptr_t address) { return of(address, kEnd); }
  Number of(std::uintptr_t address, Number behind) {
    if (behind == kNone) return kNone;
    std::size_t at = ((address + behind) * 0x9E3779B97F4A7C15) >> (64 - kBits);
    for (;; at = (at + 1) % kStacks) {
      Stack& stack = stacks_[at];
      if (stack.address == address && stack.behind == behind) return static_cast<Number>(at + 1);
      if (!stack.address) break;
    }
    if (used_ == kStacks / 2) return kNone;
    ++used_;
    stacks_[at] = {address, nullptr, behind, 0};
    return static_cast<Number>(at + 1);
  }

  // 0: it has none of that kind. `tag`: what keeps apart names of one stack; the last one is kept.
  std::uint32_t name(Number stack, const void* tag) const {
    return stacks_[stack - 1].tag == tag ? stacks_[stack - 1].name : 0;
  }
  void set_name(Number stack, const void* tag, std::uint32_t name) {
    stacks_[stack - 1].tag = tag;
    stacks_[stack - 1].name = name;
  }

  bool is_full() const { return used_ == kStacks / 2; }
  void begin_anew() {
    std::memset(static_cast<void*>(stacks_), 0, sizeof stacks_);
    used_ = 0;
    ++generation_;
  }
  // Numbers of another one are of other stacks.
  unsigned generation() const { return generation_; }

 private:
  static constexpr unsigned kBits = 12;
  static constexpr std::size_t kStacks = std::size_t{1} << kBits;
  static constexpr Number kEnd = ~Number{0};
  struct Stack {
    std::uintptr_t address;  // 0: free
    const void* tag;
    Number behind;
    std::uint32_t name;
  };
  unsigned used_, generation_;
  Stack stacks_[kStacks];
};

}  // namespace cistern::unwind
