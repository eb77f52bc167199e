// Records found by handle or address: a hash table in shards, each under its own lock. Records are only touched
// inside with() and for_each(), under the shard's lock; the callbacks must not call out of Cistern. Nor does a record
// end there, whose members may call a driver. A table that is met at every allocation may have spin locks, which cost
// one locked instruction, not two.
#pragma once
#include <cstdint>
#include <utility>

#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"

namespace cistern {

template <class Record, class L = Lock>
class HandleTable {
 public:
  // Calls use(record) with the handle's record, or with null; returns what it returns.
  template <class Use>
  auto with(const void* handle, Use use) {
    Shard& shard = shard_of(handle);
    Locked hold(shard.lock);
    auto found = shard.records.find(handle);
    return use(found == shard.records.end() ? nullptr : &found->second);
  }

  // Replaces what stood there: a handle that comes again names a new object.
  void put(const void* handle, Record record) {
    Shard& shard = shard_of(handle);
    Locked hold(shard.lock);
    const auto [entry, is_new] = shard.records.try_emplace(handle, std::move(record));
    if (!is_new) std::swap(entry->second, record);
  }

  // Takes the record out when when(record) says so, and moves it to `out`. False: not there, or not wanted.
  template <class When>
  bool take_if(const void* handle, Record& out, When when) {
    Shard& shard = shard_of(handle);
    typename Map<const void*, Record>::node_type taken;
    {
      Locked hold(shard.lock);
      auto found = shard.records.find(handle);
      if (found == shard.records.end() || !when(found->second)) return false;
      taken = shard.records.extract(found);
    }
    out = std::move(taken.mapped());
    return true;
  }

  template <class Visit>
  void for_each(Visit visit) {
    for (Shard& shard : shards_) {
      Locked hold(shard.lock);
      for (auto& [handle, record] : shard.records) visit(handle, record);
    }
  }

  void before_fork() {
    for (Shard& shard : shards_) shard.lock.lock_for_fork();
  }
  void after_fork() {
    for (Shard& shard : shards_) shard.lock.unlock_after_fork();
  }

 private:
  struct alignas(64) Shard {
    L lock;
    Map<const void*, Record> records;
  };
  static constexpr std::size_t kShards = 32;

  Shard& shard_of(const void* handle) {
    const auto word = reinterpret_cast<std::uintptr_t>(handle);
    return shards_[(word * 0x9E3779B97F4A7C15ull) >> 59];
  }

  Shard shards_[kShards];
};

}  // namespace cistern
