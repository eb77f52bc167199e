// Accounts memory that a call gave the program: its record and its figures.
#pragma once
#include <utility>

#include "shim/opencl/state.hpp"

namespace cistern::opencl {

inline PartCounters* part_of_record(const MemoryRecord* record) { return record ? record->part : nullptr; }
inline PartCounters* part_of(OpenclState& s, cl_context context) {
  return s.contexts.with(context, [](const ContextRecord* record) {
    return record && record->group ? &record->group->counters : nullptr;
  });
}

// A handle that the driver has just given, or that the pool gives again.
inline void adopt(OpenclState& s, const void* handle, MemoryRecord&& record, bool pool_hit = false,
                  std::uint64_t now_ns = coarse_now_ns()) {
  record.born_ns = since_start(now_ns);
  record.part = pool_hit ? s.memory.with(handle, part_of_record) : part_of(s, record.context);
  const std::uint64_t reserved = pool_hit ? read(s.counters.live_bytes) + record.bytes + s.pool.usage_bytes() : 0;
  {
    Locked hold(s.counters.lock);
    s.counters.block_born_locked(as_counted(record, handle), pool_hit, reserved, record.born_ns);
  }
  recording::record_allocation(kRecorded, handle, record.bytes, record.site);
  s.proportion.note_live(read(s.counters.live_bytes));
  const cl_context context = record.context;
  // Memory known by a pointer is no argument of a command: nobody would see its first use.
  const bool is_seen_by_commands = record.kind != MemoryKind::svm && record.kind != MemoryKind::usm;
  if (!pool_hit && is_seen_by_commands) record.first_use = first_use_of(s, context, record.flags, record.bytes);
  const bool put = pool_hit && s.memory.with(handle, [&](MemoryRecord* former) {
    if (!former) return false;
    // Pending commands of its former life are this one's too.
    record.uses.swap(former->uses);
    record.pending_uses = record.uses.empty() ? 0 : former->pending_uses;
    record.first_use = former->first_use;
    expect_first_use(s, record);
    *former = std::move(record);
    return true;
  });
  if (!put) {
    expect_first_use(s, record);
    s.memory.put(handle, std::move(record));
  }
  keep_headroom(s, context);
}

inline void record_failed(OpenclState& s, const MemoryRecord& asked) {
  if (recording::is_on()) recording::record_failure(kRecorded, asked.bytes, site_of_call(s, asked.api));
}

// What a creating call of the driver gave (null: it failed), and why the pool did not serve it. Returns the handle.
template <class Handle>
Handle account_created(Handle handle, MemoryRecord&& record, Unpooled why) {
  OpenclState& s = state();
  if (!handle) {
    add(s.counters.failed);
    record_failed(s, record);
    return nullptr;
  }
  add(s.counters.driver_allocs);
  s.counters.count_unpooled(why);
  record.site = site_of_call(s, record.api);
  adopt(s, handle, std::move(record));
  return handle;
}

}  // namespace cistern::opencl
