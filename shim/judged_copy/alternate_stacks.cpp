// See alternate_stacks.hpp. A place of the table stays its thread pointer's: those are few, as the C library uses
// threads' memory again. Where all places are taken, stacks are not noted: their blocks count as lost then.
#include "shim/judged_copy/alternate_stacks.hpp"

#include <atomic>
#include <cstddef>

namespace cistern {
namespace {

constexpr std::size_t kPlaces = 1024;
struct Place {
  std::atomic<std::uintptr_t> thread, stack, bytes;
};
constinit Place places[kPlaces] = {};

std::size_t place_of(std::uintptr_t thread) {
  return static_cast<std::size_t>((thread >> 6) * 0x9E3779B97F4A7C15ull >> 32) % kPlaces;
}

}  // namespace

void note_alternate_stack(const void* stack, std::size_t bytes) {
  const auto thread = reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer());
  for (std::size_t i = 0, at = place_of(thread); i < kPlaces; ++i, at = (at + 1) % kPlaces) {
    std::uintptr_t owner = places[at].thread.load(std::memory_order_relaxed);
    if (!owner && !stack) return;
    if (!owner && places[at].thread.compare_exchange_strong(owner, thread)) owner = thread;
    if (owner != thread) continue;
    places[at].bytes.store(bytes, std::memory_order_relaxed);
    places[at].stack.store(reinterpret_cast<std::uintptr_t>(stack), std::memory_order_relaxed);
    return;
  }
}

void visit_alternate_stacks(VisitAlternateStack visit, void* context) {
  for (const Place& place : places)
    if (const std::uintptr_t stack = place.stack.load(std::memory_order_relaxed))
      visit(context, place.thread.load(std::memory_order_relaxed), stack, place.bytes.load(std::memory_order_relaxed));
}

}  // namespace cistern
