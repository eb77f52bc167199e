// See misuse.hpp.
#include "shim/opencl/hooks/misuse.hpp"

#include "shim/process/misuse.hpp"

namespace cistern::opencl {
namespace {

// A handle that we never saw: made through a way that we don't know, or no memory object at all (PoCL would crash).
bool plausible_object(const void* handle) {
  OpenclState& s = state();
  const auto is_there = [](const auto* record) { return record != nullptr; };
  if (s.contexts.with(handle, is_there) || s.queues.with(handle, is_there) || s.kernels.with(handle, is_there) ||
      s.counted.with(handle, is_there))
    return false;
  void* word = nullptr;
  if (!read_word(handle, &word)) return false;
  bool known = false;
  s.contexts.for_each(
      [&](const void* context, const ContextRecord&) { known = known || *static_cast<void* const*>(context) == word; });
  return known;
}

}  // namespace

cl_int answer_unknown(cl_mem memory, const CountingCall& call) {
  if (memory && !plausible_object(memory)) {
    report_unknown_handle(call.api, memory);
    return kInvalidMemObject;
  }
  if (memory) state().counters.count_unpooled(Unpooled::unknown_handle);
  return call.real(memory);
}

cl_int answer_released(cl_mem memory, const CountingCall& call, const MemoryRecord& record) {
  OpenclState& s = state();
  // Objects of unknown creators may stand at a dead object's address.
  const bool may_be_another = record.state == MemoryState::dead && s.unknown_creators.load(std::memory_order_relaxed);
  if (!may_be_another) return refuse_released(memory, call.api, record);
  s.counters.count_unpooled(Unpooled::unknown_handle);
  return call.real(memory);
}

cl_int refuse_released(cl_mem memory, const char* api, const MemoryRecord& record) {
  report_released_handle(api, memory, kind_name(record.kind), record.site, record.released_site);
  return kInvalidMemObject;
}

cl_int refuse_kept(const char* api, cl_command_queue queue, std::span<const void* const> memory) {
  if (!queue) return kSuccess;
  OpenclState& s = state();
  for (const void* const used : memory) {
    LifeSites sites{};
    const bool kept = s.memory.with(used, [&](const MemoryRecord* record) {
      if (!record || record->state != MemoryState::pooled) return false;
      sites = {record->site, record->released_site, 0};
      return true;
    });
    if (!kept) [[likely]]
      continue;
    sites.used = site_of_call(s, api);
    report_use_of_released(api, used, sites);
    return kInvalidMemObject;
  }
  return kSuccess;
}

}  // namespace cistern::opencl
