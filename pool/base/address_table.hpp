// Objects found by the address they stand for: lock-free to read, O(1), flat to any number of entries.
// T is type-stable (its memory is never given back) and says itself what it stands for: T::address, an atomic.
//
// A reader may race with a writer, and may even stand in a slot array that is out of use. So a hit counts only when the
// object confirms the address, and a miss only after a second look under the lock.
#pragma once
#include <atomic>
#include <cstdint>

#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"

namespace cistern {

template <class T>
class AddressTable {
 public:
  T* find(std::uintptr_t address) {
    if (address <= kErased) [[unlikely]]
      return nullptr;
    Shard& shard = shard_of(address);
    if (const Slots* slots = shard.slots.load(std::memory_order_acquire)) [[likely]] {
      T* found = probe(*slots, address);
      if (found && found->address.load(std::memory_order_acquire) == address) [[likely]]
        return found;
    }
    return find_slow(shard, address);
  }

  // `address` is not 0. Takes the place of another object that stood for it, and returns that one.
  T* insert(std::uintptr_t address, T* object) {
    Shard& shard = shard_of(address);
    Locked hold(shard.lock);
    if (Slots* slots = shard.slots.load(std::memory_order_relaxed))
      if (Slot* slot = slot_of(*slots, address)) return slot->object.exchange(object, std::memory_order_acq_rel);
    make_room(shard);
    put(*shard.slots.load(std::memory_order_relaxed), address, object, shard.unused);
    ++shard.entries;
    return nullptr;
  }

  // False: another object, or none, stands for the address.
  bool erase(std::uintptr_t address, const T* object) {
    if (address <= kErased) return false;
    Shard& shard = shard_of(address);
    Locked hold(shard.lock);
    Slots* slots = shard.slots.load(std::memory_order_relaxed);
    Slot* slot = slots ? slot_of(*slots, address) : nullptr;
    if (!slot || slot->object.load(std::memory_order_relaxed) != object) return false;
    std::size_t at = static_cast<std::size_t>(slot - slots->slot);
    --shard.entries;
    slots->slot[at].key.store(kErased, std::memory_order_release);
    // Nothing is looked for beyond an unused slot, so erased ones right before it become unused again.
    if (slots->slot[(at + 1) & slots->mask].key.load(std::memory_order_relaxed) != kUnused) return true;
    for (; slots->slot[at].key.load(std::memory_order_relaxed) == kErased; at = (at - 1) & slots->mask) {
      slots->slot[at].key.store(kUnused, std::memory_order_release);
      ++shard.unused;
    }
    return true;
  }

  // Calls visit(object) for every entry, under the lock of its shard: it must not call out of Cistern.
  template <class Visit>
  void for_each(Visit visit) {
    for (Shard& shard : shards_) {
      Locked hold(shard.lock);
      Slots* slots = shard.slots.load(std::memory_order_relaxed);
      for (std::size_t i = 0; slots && i <= slots->mask; ++i)
        if (slots->slot[i].key.load(std::memory_order_relaxed) > kErased)
          visit(*slots->slot[i].object.load(std::memory_order_relaxed));
    }
  }

  void clear() {
    for (Shard& shard : shards_) {
      Locked hold(shard.lock);
      forget(shard);
    }
  }

  void before_fork() {
    for (Shard& shard : shards_) shard.lock.lock_for_fork();
  }
  void after_fork() {
    for (Shard& shard : shards_) shard.lock.unlock_after_fork();
  }

 private:
  static constexpr std::uintptr_t kUnused = 0, kErased = 1;
  static constexpr std::size_t kShards = 16;
  static constexpr std::size_t kSlotsAtFirst = 64;

  struct Slot {
    std::atomic<std::uintptr_t> key{kUnused};
    std::atomic<T*> object{nullptr};
  };
  struct Slots {
    std::size_t mask;
    Slots* spare;  // of the same size, or null
    Slot slot[1];
  };
  struct alignas(64) Shard {
    Lock lock;
    std::atomic<Slots*> slots{nullptr};
    std::size_t entries = 0, unused = 0;
  };

  static std::uint64_t hash(std::uintptr_t address) { return address * 0x9E3779B97F4A7C15ull; }
  // Of an address aligned to 2^n the hash has n zero bits at its low end.
  static std::size_t home(const Slots& slots, std::uintptr_t address) { return (hash(address) >> 32) & slots.mask; }
  Shard& shard_of(std::uintptr_t address) { return shards_[hash(address) >> 60]; }

  static T* probe(const Slots& slots, std::uintptr_t address) {
    for (std::size_t at = home(slots, address), steps = 0; steps <= slots.mask; at = (at + 1) & slots.mask, ++steps) {
      const std::uintptr_t key = slots.slot[at].key.load(std::memory_order_acquire);
      if (key == address) return slots.slot[at].object.load(std::memory_order_acquire);
      if (key == kUnused) break;
    }
    return nullptr;
  }

  // Under the lock of its shard.
  static Slot* slot_of(Slots& slots, std::uintptr_t address) {
    for (std::size_t at = home(slots, address);; at = (at + 1) & slots.mask) {
      const std::uintptr_t key = slots.slot[at].key.load(std::memory_order_relaxed);
      if (key == address) return &slots.slot[at];
      if (key == kUnused) return nullptr;
    }
  }

  [[gnu::noinline]] T* find_slow(Shard& shard, std::uintptr_t address) {
    Locked hold(shard.lock);
    const Slots* slots = shard.slots.load(std::memory_order_relaxed);
    return slots ? probe(*slots, address) : nullptr;
  }

  static void put(Slots& slots, std::uintptr_t address, T* object, std::size_t& unused) {
    for (std::size_t at = home(slots, address);; at = (at + 1) & slots.mask) {
      Slot& slot = slots.slot[at];
      const std::uintptr_t key = slot.key.load(std::memory_order_relaxed);
      if (key > kErased) continue;
      if (key == kUnused) --unused;
      slot.object.store(object, std::memory_order_relaxed);
      slot.key.store(address, std::memory_order_release);
      return;
    }
  }

  static Slots* new_slots(std::size_t count) {
    auto* slots = static_cast<Slots*>(internal_allocate(sizeof(Slots) + (count - 1) * sizeof(Slot)));
    slots->mask = count - 1;
    slots->spare = nullptr;
    for (std::size_t i = 0; i < count; ++i) new (&slots->slot[i]) Slot;
    return slots;
  }

  // Doubled when more than half full; else, too few slots unused, moved to the spare array, which clears the erased.
  // Arrays out of use stay allocated, for readers that are late: together no more than the one in use, twice.
  void make_room(Shard& shard) {
    Slots* old = shard.slots.load(std::memory_order_relaxed);
    if (old && shard.unused > (old->mask + 1) / 4) return;
    Slots* next;
    if (!old || shard.entries > (old->mask + 1) / 2) {
      next = new_slots(old ? 2 * (old->mask + 1) : kSlotsAtFirst);
    } else {
      next = old->spare ? old->spare : new_slots(old->mask + 1);
      for (std::size_t i = 0; i <= next->mask; ++i) next->slot[i].key.store(kUnused, std::memory_order_release);
      next->spare = old;
    }
    shard.unused = next->mask + 1;
    for (std::size_t i = 0; old && i <= old->mask; ++i)
      if (const std::uintptr_t key = old->slot[i].key.load(std::memory_order_relaxed); key > kErased)
        put(*next, key, old->slot[i].object.load(std::memory_order_relaxed), shard.unused);
    shard.slots.store(next, std::memory_order_release);
  }

  static void forget(Shard& shard) {
    Slots* slots = shard.slots.load(std::memory_order_relaxed);
    for (std::size_t i = 0; slots && i <= slots->mask; ++i)
      slots->slot[i].key.store(kUnused, std::memory_order_release);
    shard.entries = 0;
    if (slots) shard.unused = slots->mask + 1;
  }

  Shard shards_[kShards];
};

}  // namespace cistern
