// The contexts and devices of the process: which are known, which context is current, and whether they share memory.
#pragma once
#include "backends/cuda/context.hpp"
#include "pool/base/address_table.hpp"
#include "shim/cuda/tracked.hpp"

namespace cistern::cuda {

// Safe to call from any thread. Contexts and devices are never freed.
//
// A program that links the library shows no call that ends a context, and a primary context that was reset comes again
// with the same handle. So the driver is asked for the id of the current context in place of its handle: each life has
// its own (CUDA 12 and later). With an older driver a reset is found out only until the context is started again.
class Contexts {
 public:
  Contexts(const Functions& functions, CallGate& gate) : functions_(functions), gate_(gate) {}

  // The context that is current on this thread, as the driver says; null: none. A handle that was not seen before is
  // recorded here, with its device; null too if the driver does not tell the device. `*ended`: if there is none, the
  // handle that is current all the same.
  Context* current(CUcontext* ended = nullptr);
  // kSuccess: it still has the life that is known. kContextIsDestroyed: its memory is forgotten by now. Else the
  // driver did not tell. Where ends are seen no call is made.
  CUresult look_at(Context& context);
  // This life, as `epoch` numbers it, has ended without a call that was seen: its memory is forgotten.
  void forget_life(Context& context, std::uint32_t life);
  // Waits for all work of the context, unless it is ending. The caller has passed the gate.
  void wait_for_work(Context& context);
  // Called when a device has its first context. Set once.
  void (*device_appeared)(Device&) = [](Device&) {};
  // Called when a context turns out to have ended some time ago: forgets its memory. Set once.
  void (*has_ended)(Context&) = [](Context&) {};

  // Null: it is not known, or it is gone.
  Context* known(CUcontext handle);
  // A context becomes known with its device, or begins again after it was gone.
  Context* make_known(CUcontext handle, int device, bool made_by_program);
  // The driver has ended it.
  void note_gone(Context& context);

  // Those that are alive. Nothing is called of the driver meanwhile: a lock is held.
  template <class Visit>
  void for_each(Visit visit) {
    table_.for_each([&](Context& context) {
      if (context.alive.load(std::memory_order_relaxed)) visit(context);
    });
  }
  // Those that are gone too.
  template <class Visit>
  void for_each_ever(Visit visit) {
    table_.for_each(visit);
  }

  // Null: none that is known.
  Device* device(int ordinal) const {
    return ordinal >= 0 && ordinal < kDevicesMax ? devices_[ordinal].load() : nullptr;
  }
  template <class Visit>
  void for_each_device(Visit visit) {
    for (auto& slot : devices_)
      if (Device* const device = slot.load()) visit(*device);
  }

  // Work of one context may use device memory of another from now on: peer access, or a copy between two.
  void note_peer_access() { share_memory_.store(true); }
  void note_copy_across() {
    if (are_several()) share_memory_.store(true);
  }
  bool share_memory() const { return share_memory_.load(std::memory_order_relaxed); }
  bool are_several() const { return alive_.load(std::memory_order_relaxed) > 1; }

  void before_fork();
  void after_fork();
  // True: the parent had one. Each is gone, whatever it was.
  bool forget_in_child();

 private:
  static constexpr std::size_t kIdSlots = 16;

  Context* make_known(std::uintptr_t address, Device& of_device, int ordinal, bool& is_new);
  bool asks_for_ids() const;
  Context* identified(std::uintptr_t address, Device& of_device, int ordinal, bool& is_new);
  bool begin_identifying();
  void end_identifying() { identifying_.store(nullptr, std::memory_order_release); }

  const Functions& functions_;
  CallGate& gate_;
  AddressTable<Context> table_;
  Lock making_lock_;
  std::atomic<Device*> devices_[kDevicesMax]{};
  std::atomic<int> alive_{0};
  std::atomic<bool> share_memory_{false};
  // Contexts by the last bits of their ids: one that is not here is asked for once more.
  std::atomic<Context*> by_id_[kIdSlots]{};
  std::atomic<const void*> identifying_{nullptr};  // the thread that compares an id with what was known; one at a time
};

inline Device* device_of(const Context* context) { return context ? context->device : nullptr; }

}  // namespace cistern::cuda
