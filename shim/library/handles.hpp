// Handles of the objects that the library makes for a program. A handle is a number, not an address: no memory is read
// through it, and one that is out of use is never mistaken for another. Records are reused, and never given back. Each
// has a lock, under which the calls for it run; it is a LongLock, since they call drivers.
//
// `Record` has: `void begin_anew()`, after which nothing of its last user is left, and `kWhat`, the name of what a
// handle stands for. (A member would put the table, which is all zero, into the file and into every process.)
#pragma once
#include <atomic>
#include <cstdint>
#include <new>

#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"
#include "shim/process/log.hpp"
#include "stats/sink.hpp"

namespace cistern::library {

// A forked child has another number: the driver's objects in records of its parent do not exist there.
inline constinit unsigned process_number = 0;

// `kTag`, 1 to 7, tells handles of one type from those of another. In use: 3 unified buffers, 4 shared buffers, 5
// mapped files.
template <class Record, class Handle, unsigned kTag>
class Handles {
  struct Slot {
    Record record;
    LongLock lock;
    // Odd: in use. Each use has another number.
    std::atomic<std::uint32_t> generation{0};
    std::uint32_t index = 0;
    Slot* next_unused = nullptr;
    bool is_lost = false;  // in a forked child: another thread was about to change it
  };

 public:
  // A record in use; no other thread uses it meanwhile. It is empty, with a line on stderr, if the handle is not valid
  // or not valid any more, or if this thread uses it already, from where the driver called back. It is empty too if the
  // record was lost in a fork.
  class Use {
   public:
    Use(Handles& all, const char* api, const Handle* handle) : all_(all), slot_(all.find(handle)) {
      const bool is_used_here = slot_ && !slot_->lock.lock();
      if (slot_ && !is_used_here) {
        const bool is_it = all.handle_of(*slot_) == handle;
        if (is_it && !slot_->is_lost) return;
        slot_->lock.unlock();
        if (is_it) {
          slot_ = nullptr;
          return;
        }
      }
      slot_ = nullptr;
      StringSink line;
      line.print("{}({}): ", api, static_cast<const void*>(handle));
      if (is_used_here)
        line.print("another call of this thread uses the {}; refused", Record::kWhat);
      else
        line.print("no {}, or destroyed already; refused", Record::kWhat);
      warn_line(line.text());
    }
    ~Use() {
      if (slot_) slot_->lock.unlock();
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    explicit operator bool() const { return slot_; }
    Record* operator->() const { return &slot_->record; }
    Record& operator*() const { return slot_->record; }
    // Its handle is out of use from now on.
    void end() {
      slot_->record.begin_anew();
      slot_->generation.fetch_add(1);
      slot_->lock.unlock();
      all_.keep(slot_);
      slot_ = nullptr;
    }

   private:
    Handles& all_;
    Slot* slot_;
  };

  // `fill(Record&)` before another thread can find it. Null: there are too many.
  template <class Fill>
  Handle* make(Fill fill) {
    Slot* const slot = unused();
    if (!slot) return nullptr;
    fill(slot->record);
    slot->generation.fetch_add(1, std::memory_order_release);
    return handle_of(*slot);
  }

  void before_fork() { lock_.lock_for_fork(); }
  void after_fork_in_parent() { lock_.unlock_after_fork(); }
  // A record that another thread was about to change is lost here. The forking thread takes no lock of a record before
  // the fork, because a call that holds one may wait for a driver.
  void after_fork_in_child() {
    if (made_) ++process_number;
    lock_.unlock_after_fork();
    for (std::uint32_t i = 0; i < made_; ++i) {
      Slot& slot = *at(i);
      if (!slot.lock.held_elsewhere()) continue;
      new (&slot.lock) LongLock;
      slot.is_lost = true;
    }
  }

 private:
  static constexpr unsigned kPageBits = 8, kIndexBits = 20;

  Handle* handle_of(const Slot& slot) const {
    const std::uint64_t generation = slot.generation.load(std::memory_order_acquire);
    return generation & 1 ? reinterpret_cast<Handle*>((generation << kIndexBits | slot.index) << 3 | kTag) : nullptr;
  }
  Slot* at(std::uint32_t index) const {
    Slot* const page = pages_[index >> kPageBits].load(std::memory_order_acquire);
    return page ? &page[index & ((1u << kPageBits) - 1)] : nullptr;
  }
  Slot* find(const Handle* handle) const {
    const auto word = reinterpret_cast<std::uintptr_t>(handle);
    if ((word & 7) != kTag || word >> 3 >> kIndexBits > UINT32_MAX) return nullptr;
    Slot* const slot = at(static_cast<std::uint32_t>(word >> 3) & ((1u << kIndexBits) - 1));
    return slot && handle_of(*slot) == handle ? slot : nullptr;
  }

  Slot* unused() {
    const Locked hold(lock_);
    if (Slot* const slot = unused_) {
      unused_ = slot->next_unused;
      return slot;
    }
    if (made_ == 1u << kIndexBits) return nullptr;
    std::atomic<Slot*>& page = pages_[made_ >> kPageBits];
    if (!page.load()) {
      auto* const slots = static_cast<Slot*>(internal_try_allocate(sizeof(Slot) << kPageBits));
      if (!slots) return nullptr;
      for (unsigned i = 0; i < 1u << kPageBits; ++i) new (&slots[i]) Slot;
      page.store(slots, std::memory_order_release);
    }
    Slot* const slot = at(made_);
    slot->index = made_++;
    // Another copy of the library in the process counts from elsewhere: its handles are not taken for one's own.
    const auto here = reinterpret_cast<std::uintptr_t>(this) * 0x9E3779B97F4A7C15ull;
    slot->generation = static_cast<std::uint32_t>(here >> 32) & ~1u;
    return slot;
  }
  void keep(Slot* slot) {
    const Locked hold(lock_);
    slot->next_unused = unused_;
    unused_ = slot;
  }

  Lock lock_;  // for making and ending one
  std::atomic<Slot*> pages_[1 << (kIndexBits - kPageBits)] = {};
  std::uint32_t made_ = 0;
  Slot* unused_ = nullptr;
};

}  // namespace cistern::library
