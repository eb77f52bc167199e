// What is in use of threads' stacks. What lies below a stack pointer are frames that are over. Only what is known to be
// one thread's stack is passed over: the system lists stacks and other memory beside each other as one mapping.
#pragma once
#include <cstdint>

#include "shim/judging/plan.hpp"
#include "shim/process/memory_map.hpp"

namespace cistern::judging {

// As the debuggers' interface of the C library has it, a thread's descriptor is at the upper end of its stack, points
// to itself twice, and has the thread's number; and where the stack begins and its size, beside each other.
struct Descriptor {
  std::uintptr_t at = 0;  // 0: there is none
  int id = 0;
  AddressRange stack{};  // empty: not known
};

class Stacks {
 public:
  explicit Stacks(const Plan& plan) : plan_(plan) {}

  // Where this thread's own does not look so, none is believed.
  Descriptor descriptor_at(std::uintptr_t at) const;
  // The last of a mapping.
  Descriptor descriptor_in(const Mapping& mapping) const;
  // That of a thread that still lives.
  bool is_of_thread(const Descriptor& descriptor) const;

  // Of a thread that was seen whole: of its own stack, as its descriptor says. Empty: nothing is known.
  AddressRange dead_part_of(const OtherThread& thread) const;
  // Of threads that are not seen whole, and of those that have ended, whose stacks the C library keeps for others, with
  // what was thread-local.
  AddressRange dead_part_of(const Mapping& mapping, const Descriptor& descriptor) const;
  // At the mapping's begin where that is not known.
  std::uintptr_t begin_of_use_of_first_thread(const AddressRange& mapping) const;

  // The alternate stack that the thread runs a handler on; empty: none.
  static AddressRange alternate_stack_of(const OtherThread& thread);
  static std::uintptr_t in_use_from(std::uintptr_t stack, std::uintptr_t below) {
    return (stack - below) & ~std::uintptr_t{7};
  }

 private:
  const Plan& plan_;
};

}  // namespace cistern::judging
