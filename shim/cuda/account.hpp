// The account of CUDA memory in the program's hands: counters by family and device, memory that is only tracked, and
// what went with its context. Safe to call from any thread.
#pragma once
#include "backends/cuda/blocks.hpp"
#include "pool/base/handle_table.hpp"
#include "shim/cuda/contexts.hpp"
#include "shim/cuda/tracked.hpp"
#include "stats/counters.hpp"
#include "stats/recording.hpp"

namespace cistern::cuda {

// Blocks that the program still held when their context was reset or destroyed, by site: never freed.
struct WentWithContext {
  Tracked first;
  std::uint64_t blocks = 0, bytes = 0, last_ns = 0;
};

class Account {
 public:
  Account(Blocks& blocks, Contexts& contexts) : blocks_(blocks), contexts_(contexts) {}

  KindCounters& counters(Family family, int device = 0);
  KindCounters& counters_of(BlockKind kind, const Context* context) {
    if (kind == BlockKind::pinned) return counters(Family::pinned);
    return counters(Family::device, context ? context->device->ordinal : 0);
  }
  // Null: nothing was counted yet.
  KindCounters* counters_if_used(Family family, int device) {
    return kinds_[static_cast<int>(family)][device].load(std::memory_order_acquire);
  }
  template <class Visit>
  void for_each_kind(Visit visit) {
    for (int family = 0; family < static_cast<int>(Family::count); ++family)
      for (int device = 0; device < kDevicesMax; ++device)
        if (KindCounters* const counted = counters_if_used(static_cast<Family>(family), device))
          visit(static_cast<Family>(family), device, *counted);
  }

  // Requested by the program and live, on all devices at one time.
  Level live_on_devices;
  // Allocations that the runtime answered and the driver's hooks never saw.
  Counter escaped{0};

  // --- Memory that is only tracked. The record has its site.
  void track(const void* handle, Tracked record);
  bool is_tracked(const void* handle) {
    return tracked_.with(handle, [](const Tracked* record) { return record != nullptr; });
  }
  // Takes the record out before the real free; `forget` accounts it when that succeeded, `restore` puts it back.
  bool take(const void* handle, Tracked& out);
  void forget(const void* handle, const Tracked& record);
  void restore(const void* handle, const Tracked& record);
  // Visits the record under the table's lock; null: it is not known.
  template <class Visit>
  auto with_tracked(const void* handle, Visit visit) {
    return tracked_.with(handle, visit);
  }
  template <class Visit>
  void for_each_tracked(Visit visit) {
    tracked_.for_each(visit);
  }

  // --- Memory that went with its context
  void note_went_with_context(const Tracked& record);
  // The context's tracked memory of an earlier epoch.
  void end_tracked_of(const Context& context);
  // It belongs to another one from now on.
  void move_tracked_of(const Context& context, Context& heir);
  Vector<WentWithContext> went_with_context();

  void before_fork();
  void after_fork();
  void forget_in_child();

 private:
  void note_range(const void* handle, const Tracked& record);
  void forget_range(const void* handle, const Tracked& record);

  Blocks& blocks_;
  Contexts& contexts_;
  std::atomic<KindCounters*> kinds_[static_cast<int>(Family::count)][kDevicesMax]{};
  HandleTable<Tracked> tracked_;
  Lock went_lock_;
  Map<std::uint64_t, WentWithContext> went_;
};

const char* family_name(Family family);
// As a recording names them.
recording::Kind recorded(Family family, int device);
inline recording::Kind recorded(BlockKind kind, const Context* context) {
  if (kind == BlockKind::pinned) return recorded(Family::pinned, 0);
  return recorded(Family::device, context ? context->device->ordinal : 0);
}
constexpr recording::Kind kRecordedCopies = {2, "cuda"};

// The key by which reports group memory: family, device and site; the call where sites are off.
std::uint64_t origin_key(const Tracked& record);

// Bytes the driver would take for a request; what cuMemGetInfo shows of it.
inline std::uint64_t as_driver_rounds(std::uint64_t bytes) { return (bytes + 511) & ~std::uint64_t{511}; }

inline CountedBlock as_counted(const Block& block) { return {block.requested, block.api, block.site, &block}; }
inline CountedBlock as_counted(const Tracked& record, const void* handle) {
  return {record.bytes, record.api, record.site, handle};
}

}  // namespace cistern::cuda
