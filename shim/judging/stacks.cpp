// See stacks.hpp.
#include "shim/judging/stacks.hpp"

#include <algorithm>

#include "pool/base/process_start.hpp"
#include "shim/judged_copy/alternate_stacks.hpp"
#include "shim/judged_copy/live_stack.hpp"

namespace cistern::judging {
namespace {

constexpr std::uintptr_t kDescriptorBytes = 2304;

// The stack pointer of what the handler interrupted; 0: there is none.
std::uintptr_t interrupted_by_handler(const OtherThread& thread) {
  const AddressRange stack = Stacks::alternate_stack_of(thread);
  return stack.first < stack.end ? interrupted_stack(thread.stack, stack.end) : 0;
}

}  // namespace

Descriptor Stacks::descriptor_at([[maybe_unused]] std::uintptr_t at) const {
#if defined(__x86_64__)
  constexpr std::uintptr_t kNumberAt = 720, kLeastBytes = 16384, kMostBytes = std::uintptr_t{1} << 34;
  constexpr std::uintptr_t kLowest = 65536, kBehindMost = 4096;
  const auto word_at = [](std::uintptr_t address) { return *reinterpret_cast<const std::uintptr_t*>(address); };
  const auto number_at = [](std::uintptr_t address) { return *reinterpret_cast<const int*>(address + kNumberAt); };
  if (number_at(address_of(__builtin_thread_pointer())) != plan_.own_id) return {};
  if (word_at(at) != at || word_at(at + 16) != at) return {};
  for (std::uintptr_t address = at; address < at + kDescriptorBytes - 8; address += 8) {
    const std::uintptr_t first = word_at(address), bytes = word_at(address + 8);
    if (bytes < kLeastBytes || bytes > kMostBytes || first < kLowest || first >= at || at - first >= bytes) continue;
    if (first + bytes - at <= kDescriptorBytes + kBehindMost) return {at, number_at(at), {first, first + bytes}};
  }
#endif
  return {};
}

Descriptor Stacks::descriptor_in(const Mapping& mapping) const {
  constexpr std::uintptr_t kAlignment = 64, kLookedAt = std::uintptr_t{64} * 1024;
  if (mapping.end - mapping.first < kDescriptorBytes) return {};
  std::uintptr_t at = (mapping.end - kDescriptorBytes) & ~(kAlignment - 1);
  for (; at >= mapping.first && mapping.end - at < kLookedAt; at -= kAlignment)
    if (*reinterpret_cast<const std::uintptr_t*>(at) == at)
      if (const Descriptor found = descriptor_at(at); found.at) return found;
  return {};
}

bool Stacks::is_of_thread(const Descriptor& descriptor) const {
  return descriptor.at == address_of(__builtin_thread_pointer()) || descriptor.id == plan_.own_id ||
         (descriptor.id > 0 && plan_.threads->knows(descriptor.id));
}

AddressRange Stacks::dead_part_of(const OtherThread& thread) const {
  if (!thread.is_complete || !thread.thread_pointer || thread.id == plan_.process_id) return {};
  const AddressRange stack = descriptor_at(thread.thread_pointer).stack;
  if (stack.holds(thread.stack)) return {stack.first, in_use_from(thread.stack, kBelowStackPointer)};
  const std::uintptr_t interrupted = interrupted_by_handler(thread);
  if (stack.holds(interrupted)) return {stack.first, in_use_from(interrupted, kBelowStackPointer)};
  return {};
}

AddressRange Stacks::alternate_stack_of(const OtherThread& thread) {
  struct {
    const OtherThread& thread;
    AddressRange found;
  } asked{thread, {}};
  visit_alternate_stacks(
      [](void* context, std::uintptr_t owner, std::uintptr_t first, std::uintptr_t bytes) {
        auto& of = *static_cast<decltype(asked)*>(context);
        const AddressRange stack{first, first + bytes};
        if (of.thread.is_complete && owner == of.thread.thread_pointer && stack.holds(of.thread.stack))
          of.found = stack;
      },
      &asked);
  return asked.found;
}

AddressRange Stacks::dead_part_of(const Mapping& mapping, const Descriptor& descriptor) const {
  const AddressRange nothing{mapping.first, mapping.first};
  const auto inside = [&](std::uintptr_t end) {
    const std::uintptr_t first = std::max(mapping.first, descriptor.stack.first);
    return first < end ? AddressRange{first, end} : nothing;
  };
  if (!descriptor.at) return nothing;
  if (!is_of_thread(descriptor)) return inside(std::min(descriptor.stack.end, mapping.end));
  if (descriptor.at == address_of(__builtin_thread_pointer()) && !plan_.on_alternate_stack &&
      descriptor.stack.holds(address_of(plan_.stack_in_use)))
    return inside(in_use_from(address_of(plan_.stack_in_use), 0));
  for (const OtherThread& thread : plan_.threads->all())
    if (thread.id == descriptor.id && thread.is_steady && descriptor.stack.holds(thread.stack))
      return inside(in_use_from(thread.stack, kBelowStackPointer));
  return nothing;
}

std::uintptr_t Stacks::begin_of_use_of_first_thread(const AddressRange& mapping) const {
  if (plan_.own_id == plan_.process_id) {
    const std::uintptr_t stack = address_of(plan_.stack_in_use);
    return mapping.holds(stack) && !plan_.on_alternate_stack ? in_use_from(stack, 0) : mapping.first;
  }
  for (const OtherThread& thread : plan_.threads->all()) {
    if (thread.id != plan_.process_id) continue;
    if (!thread.is_complete && !thread.is_steady) return mapping.first;
    const std::uintptr_t stack = mapping.holds(thread.stack) ? thread.stack : interrupted_by_handler(thread);
    return mapping.holds(stack) ? std::max(mapping.first, in_use_from(stack, kBelowStackPointer)) : mapping.first;
  }
  // It has ended; arguments and environment are still the program's.
  const std::uintptr_t arguments = address_of(start_arguments());
  return !plan_.threads->left_out() && mapping.holds(arguments) ? arguments : mapping.first;
}

}  // namespace cistern::judging
