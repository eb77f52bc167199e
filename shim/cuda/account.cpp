// See account.hpp.
#include "shim/cuda/account.hpp"

#include <algorithm>

#include "pool/base/registered_memory.hpp"
#include "shim/cuda/make_once.hpp"

namespace cistern::cuda {
namespace {

constexpr const char* kFamilyNames[] = {"device", "pinned", "managed",  "async",      "graph",
                                        "array",  "vmm",    "vmm-host", "registered", "imported"};

RangeKind range_kind(Family family) { return family == Family::managed ? RangeKind::managed : RangeKind::registered; }
bool has_range(Family family) { return family == Family::managed || family == Family::registered; }

}  // namespace

KindCounters& Account::counters(Family family, int device) {
  const int index = per_device(family) && device >= 0 && device < kDevicesMax ? device : 0;
  return *make_once(kinds_[static_cast<int>(family)][index]);
}

const char* family_name(Family family) { return kFamilyNames[static_cast<int>(family)]; }

recording::Kind recorded(Family family, int device) {
  const int of_device = per_device(family) && device >= 0 && device < kDevicesMax ? device : 0;
  const int number = kRecordedCopies.number + 1 + static_cast<int>(family) * kDevicesMax + of_device;
  return {static_cast<std::uint16_t>(number), family_name(family), per_device(family) ? of_device : -1};
}

namespace {
void record_birth(const void* handle, const Tracked& record) {
  recording::record_allocation(recorded(record.family, record.device), handle, record.bytes, record.site);
}
void record_death(const void* handle, const Tracked& record) {
  recording::record_free(recorded(record.family, record.device), handle);
}
}  // namespace

std::uint64_t origin_key(const Tracked& record) {
  const std::uint64_t where = record.site ? record.site : reinterpret_cast<std::uintptr_t>(record.api);
  return where * 1024 + static_cast<std::uint64_t>(record.family) * kDevicesMax + record.device;
}

// Found by any address inside; what is registered also by whoever frees it.
void Account::note_range(const void* handle, const Tracked& record) {
  if (!has_range(record.family)) return;
  blocks_.ranges.insert(reinterpret_cast<std::uintptr_t>(handle), record.bytes, {range_kind(record.family)});
  if (record.family == Family::registered) note_registered(handle, record.bytes);
}

void Account::forget_range(const void* handle, const Tracked& record) {
  if (!has_range(record.family)) return;
  blocks_.ranges.erase(reinterpret_cast<std::uintptr_t>(handle));
  if (record.family == Family::registered) forget_registered(handle, record.bytes);
}

void Account::note_went_with_context(const Tracked& record) {
  Locked hold(went_lock_);
  auto [entry, is_new] = went_.try_emplace(origin_key(record));
  WentWithContext& went = entry->second;
  if (is_new) went.first = record;
  ++went.blocks;
  went.bytes += record.bytes;
  went.last_ns = std::max(went.last_ns, record.born_ns);
  went.first.born_ns = std::min(went.first.born_ns, record.born_ns);
}

void Account::end_tracked_of(const Context& context) {
  const std::uint32_t epoch = context.epoch.load();
  const auto is_old = [&](const Tracked& record) { return record.context == &context && record.epoch != epoch; };
  Vector<const void*> handles;
  tracked_.for_each([&](const void* handle, Tracked& record) {
    if (is_old(record)) handles.push_back(handle);
  });
  for (const void* handle : handles) {
    Tracked record;
    if (!tracked_.take_if(handle, record, is_old)) continue;
    forget_range(handle, record);
    record_death(handle, record);
    forget(handle, record);
    if (!record.inherited) note_went_with_context(record);
  }
}

void Account::move_tracked_of(const Context& context, Context& heir) {
  const std::uint32_t epoch = context.epoch.load();
  tracked_.for_each([&](const void*, Tracked& record) {
    if (record.context != &context || record.epoch == epoch) return;
    record.context = &heir;
    record.epoch = heir.epoch.load();
  });
}

Vector<WentWithContext> Account::went_with_context() {
  Vector<WentWithContext> all;
  Locked hold(went_lock_);
  for (auto& [key, went] : went_) all.push_back(went);
  return all;
}

// --- Memory that is only tracked

void Account::track(const void* handle, Tracked record) {
  record.born_ns = coarse_nanoseconds_since_start();
  if (record.context) {
    if (per_device(record.family)) record.device = record.context->device->ordinal;
    record.epoch = record.context->epoch.load(std::memory_order_relaxed);
  }
  counters(record.family, record.device).block_born(as_counted(record, handle));
  record_birth(handle, record);
  if (takes_device_memory(record.family))
    if (Device* device = contexts_.device(record.device)) device->tracked_bytes.fetch_add(record.bytes);
  note_range(handle, record);
  // A record that is there already is of a context that is going at this moment: its memory is no more.
  Tracked stale;
  if (tracked_.take_if(handle, stale, [](const Tracked&) { return true; })) forget(handle, stale);
  tracked_.put(handle, record);
}

bool Account::take(const void* handle, Tracked& out) {
  if (!tracked_.take_if(handle, out, [](const Tracked&) { return true; })) return false;
  forget_range(handle, out);
  record_death(handle, out);
  return true;
}

void Account::forget(const void* handle, const Tracked& record) {
  if (record.inherited) return;
  counters(record.family, record.device).block_died(as_counted(record, handle));
  if (takes_device_memory(record.family))
    if (Device* device = contexts_.device(record.device)) device->tracked_bytes.fetch_sub(record.bytes);
}

void Account::restore(const void* handle, const Tracked& record) {
  note_range(handle, record);
  tracked_.put(handle, record);
  record_birth(handle, record);
}

void Account::before_fork() {
  tracked_.before_fork();
  went_lock_.lock_for_fork();
}
void Account::after_fork() {
  went_lock_.unlock_after_fork();
  tracked_.after_fork();
}

void Account::forget_in_child() {
  tracked_.for_each([](const void*, Tracked& record) { record.inherited = true; });
  went_.clear();
  escaped = 0;
  live_on_devices.reset();
  for_each_kind([](Family, int, KindCounters& counted) { counted.reset(); });
}

}  // namespace cistern::cuda
