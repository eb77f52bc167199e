// The ranges of device addresses that blocks are cut from (CISTERN_DEVICE_POOL=ranges): each context has one, unless
// its driver refuses it, and when it has ended the device's next context has that one. Some requests get whole
// allocations all the same. Safe to call from any thread.
#pragma once
#include "backends/cuda/device_range.hpp"
#include "shim/cuda/contexts.hpp"
#include "stats/sites.hpp"

namespace cistern::cuda {

class DeviceRanges {
 public:
  DeviceRanges(const Functions& functions, CallGate& gate, Blocks& blocks, Contexts& contexts, BlockSource& source,
               bool asked_for);

  bool asked_for() const { return asked_for_.load(std::memory_order_relaxed); }
  // Some have been made.
  bool any() const { return first_.load(std::memory_order_relaxed); }
  // The range that serves the context; null: there is none. Made when it is first asked for.
  DeviceRange* of(Context& context);
  // The range that the address lies in, or null. Lock-free.
  DeviceRange* containing(std::uintptr_t address) const;

  // The range could not serve a request, for this reason.
  void note_refused(DeviceRange& range, CUresult answer);

  // A block from that site could not be shared with another process, as memory from a range cannot: its site gets whole
  // allocations from now on. Where sites are off, every request does.
  void note_export_refused(const Block& block, const char* api);
  // Whether some site has to be looked at, and this one.
  bool any_whole() const { return any_whole_.load(std::memory_order_relaxed); }
  bool wants_whole(SiteId site);

  // The process uses one more device. Its copies may name memory of any device, as they may name that of cuMemAlloc;
  // mapped memory has to be opened for it. Where that is impossible no more memory comes from ranges.
  void device_appeared(Device& device);

  // Over the ranges of one device.
  struct Usage {
    std::uint64_t mapped_bytes = 0, live_bytes = 0;
    std::uint64_t waiting_bytes = 0;  // freed, and work may still use them
    std::uint64_t reclaimable_bytes = 0, largest_free_bytes = 0;
  };
  Usage usage(const Device& device) const;

  void settle();
  // Gives all memory back in which no block lies, and waits for other threads that do. Returns the bytes.
  std::uint64_t trim();
  // Gives back what was not needed since the call before.
  std::uint64_t trim_unneeded();
  // The same as trim(), after waiting for work that may still use freed blocks, but while a stream captures.
  std::uint64_t trim_after_work();

  // The same as trim_after_work(), for a call that may free while a stream captures.
  std::uint64_t trim_while_capturing();

  template <class Visit>
  void for_each(Visit visit) const {
    for (DeviceRange* range = first_.load(std::memory_order_acquire); range; range = range->next) visit(*range);
  }

  void before_fork();
  void after_fork_in_parent();
  // Nothing of it works in the child.
  void after_fork_in_child();

 private:
  bool any_waits() const;
  DeviceRange* take_ended(Context& context);
  struct Refusal {
    const char* function;
    CUresult answer;
  };
  static void say(const Device& device, const Refusal& refusal);
  // Null: it was refused, which is in `refusal` where a line should say so; or no call may be made now.
  DeviceRange* make(Context& context, Refusal* refusal);
  Refusal try_out(Context& context, CUdeviceptr first, std::uint64_t granularity, bool rdma_capable);

  const Functions& functions_;
  CallGate& gate_;
  Blocks& blocks_;
  Contexts& contexts_;
  BlockSource& source_;
  std::atomic<bool> asked_for_;
  std::atomic<DeviceRange*> first_{nullptr};
  std::atomic<bool> any_whole_{false};
  Lock whole_lock_;
  Vector<SiteId> whole_sites_;
};

}  // namespace cistern::cuda
