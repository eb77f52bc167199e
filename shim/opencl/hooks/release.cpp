// Memory objects retained and released.
//
//   release_memory -> decide_release, under the record's lock
//     unknown   -> answer_unknown (misuse.hpp)
//     misuse    -> answer_released (misuse.hpp): the program had released it before
//     not_last  -> passed on
//     pool      -> give_to_pool: the pool keeps the buffer, behind the commands that use it (pool/recycle_pool.hpp)
//     really    -> really_release; a parent whose last child went is released with it
//
// Retains and releases are passed on, except the program's last release of a buffer that the pool keeps. If anything
// else could still see the buffer, it is really released: sub-buffers, images, destructor callbacks, maps, or
// references that did not come through Cistern.
#include <algorithm>

#include "shim/opencl/buffers.hpp"
#include "shim/opencl/hooks/hooks.hpp"
#include "shim/opencl/hooks/misuse.hpp"
#include "shim/process/process.hpp"

namespace cistern::opencl {
namespace {

bool given_back(const MemoryRecord& record) {
  return record.state == MemoryState::dead || record.state == MemoryState::pooled;
}

struct Release {
  enum class What { unknown, misuse, not_last, pool, really } what = What::unknown;
  Unpooled why = Unpooled::pool_off;
  MemoryRecord record;  // pool, really: the object's, with its uses moved out; misuse: a copy
};

// Whether commands may still use it whose end cannot be found out, because the program gave their queue up.
bool end_unknown(const MemoryRecord& record) {
  return record.end_unknown || std::any_of(record.uses.begin(), record.uses.end(), [](const Use& use) {
           return use.clock->known(use.number) == Settled::never;
         });
}

std::optional<Unpooled> why_not_pooled(OpenclState& s, const MemoryRecord& record) {
  if (record.children) return Unpooled::has_children;
  if (record.has_callback) return Unpooled::destructor_callback;
  if (record.inherited) return Unpooled::inherited;
  if (phase() != Phase::running) return Unpooled::exiting;
  if (end_unknown(record)) return Unpooled::end_unknown;
  const ContextTraits context = traits_of(s, record.context);
  if (!context.known) return Unpooled::context_released;
  if (context.command_buffers) return Unpooled::command_buffer;
  if (context.unseen_commands) return Unpooled::end_unknown;
  return std::nullopt;
}

// Decides under the record's lock which release it is. The last release changes the record's state. (The lock of a
// context's record is taken under the lock of a memory record, never the other way round.)
Release decide_release(OpenclState& s, cl_mem memory) {
  Release release;
  s.memory.with(memory, [&](MemoryRecord* record) {
    if (!record) return;
    if (given_back(*record)) {
      release.what = Release::What::misuse;
      release.record = *record;
      return;
    }
    if (record->references > 1) {
      release.what = Release::What::not_last;
      --record->references;
      ++record->releases;
      return;
    }
    if (!record->references) return;  // an orphan: whoever releases it got it from the driver
    record->references = 0;
    ++record->releases;
    if (!record->children) expect_no_first_use(s, *record);
    const std::optional<Unpooled> why = record->recyclable ? why_not_pooled(s, *record) : Unpooled::pool_off;
    release.what = why ? Release::What::really : Release::What::pool;
    release.why = why.value_or(Unpooled::pool_off);
    record->state = !why ? MemoryState::pooled : record->children ? MemoryState::orphan : MemoryState::dead;
    release.record = std::move(*record);  // takes the uses; the rest stays as it is
  });
  return release;
}

// PoCL gives memory to a buffer when its first command runs, and takes it back when the last one ends. A program that
// enqueues far ahead needs little memory there. Buffers that the pool holds behind pending commands need more, so they
// are bounded by the program's own peak.
std::uint64_t waiting_bytes_max(const OpenclState& s) {
  constexpr std::uint64_t kFloor = 32 << 20;
  return kFloor + 2 * read(s.counters.peak_bytes);
}

// How the pool keeps a buffer: it can be given again immediately, or `waits` for its commands. `refused`: it is not
// kept after all, for a reason that only the driver or the pool knows.
struct Keeping {
  bool waits = false;
  std::optional<Unpooled> refused{};
};

// The buffer can be given again immediately if its commands all ended, or their queue orders the next commands behind
// them. The queue's clock has promised that order then (order.hpp), and the record keeps the uses.
Keeping keep_in_order_or_wait(OpenclState& s, cl_mem buffer, MemoryRecord& record, cl_uint references) {
  const bool commands = std::any_of(record.uses.begin(), record.uses.end(),
                                    [](const Use& use) { return use.clock->known(use.number) != Settled::yes; });
  if (const std::optional<Waited> why = why_it_waits(s, record, references)) {
    if (s.pool.waiting_bytes() + record.bytes > waiting_bytes_max(s)) {
      add(s.calls.queries);  // for the reference count; count_death counts it of a buffer that is kept
      return {.refused = Unpooled::too_many_in_flight};
    }
    if (commands) s.counters.count_waited(*why);
    return {.waits = true};
  }
  if (commands) add(s.counters.kept_in_order);
  s.memory.with(buffer, [&](MemoryRecord* kept) {
    if (kept) kept->uses.swap(record.uses);
  });
  return {};
}

// The driver says first whether the buffer is mapped: nothing is promised or counted for one that is not kept. A buffer
// also waits while it has more than one reference: the driver drops its own a moment after the command's end, and
// others may hold references that did not come through Cistern.
Keeping keep(OpenclState& s, cl_mem buffer, MemoryRecord& record) {
  if (record.mapped_once && s.source.map_count(buffer)) return {.refused = Unpooled::mapped};
  const cl_uint references = s.source.uncounted_reference_count(buffer);
  if (record.uses.empty() && references == 1) return {};
  return keep_in_order_or_wait(s, buffer, record, references);
}

// Counts the release, and the query for the reference count that keep() made.
void count_death(OpenclState& s, const CountedBlock& block, std::uint64_t now_ns) {
  const std::uint64_t died_ns = since_start(now_ns);
  Locked hold(s.counters.lock);
  bump(s.counters.driver_queries);
  s.counters.block_died_locked(block, died_ns, read(s.counters.live_bytes) + s.pool.usage_bytes());
}

// For the program the buffer is gone. True: the pool has it now.
bool give_to_pool(OpenclState& s, cl_mem buffer, Release& release) {
  MemoryRecord& record = release.record;
  if (s.unknown_enqueues.load(std::memory_order_relaxed)) {
    // Unseen commands on any queue may use it: every queue has to pass a marker.
    record.uses.clear();
    for (auto& clock : clocks_of(record.context)) record.uses.push_back({clock, clock->note_command()});
  }
  const Keeping keeping = keep(s, buffer, record);
  if (keeping.refused) {
    release.why = *keeping.refused;
    s.memory.with(buffer, [](MemoryRecord* kept) {
      if (kept) kept->state = MemoryState::dead;
    });
    return false;
  }
  const std::uint64_t now_ns = coarse_now_ns();
  count_death(s, as_counted(record, buffer), now_ns);
  recording::record_free(kRecorded, buffer);
  s.proportion.note_back(record.bytes, record.recycled);
  s.pool.give(pool_key(record), buffer, std::move(record.uses), keeping.waits, now_ns);
  keep_headroom(s, record.context);
  return true;
}

// A child is gone. If it alone kept a released parent alive, the parent ends here, and so on upwards.
void parent_lost_child(OpenclState& s, const void* parent) {
  while (parent) {
    const void* grandparent = nullptr;
    bool ended = false;
    Vector<Use> uses;  // ends outside the lock: it may release markers
    s.memory.with(parent, [&](MemoryRecord* record) {
      if (!record || !record->children || --record->children || record->state != MemoryState::orphan) return;
      record->state = MemoryState::dead;
      expect_no_first_use(s, *record);
      uses.swap(record->uses);
      ended = true;
      grandparent = record->parent;
      s.counters.bytes_died(as_counted(*record, parent));
      recording::record_free(kRecorded, parent);
    });
    if (!ended) return;
    remember_dead(s, parent);
    parent = grandparent;
  }
}

// The driver refused to release it: the object stays as it was.
bool is_refused(cl_int error) { return error == kOutOfResources || error == kOutOfHostMemory; }

void take_release_back(OpenclState& s, cl_mem memory) {
  s.memory.with(memory, [&](MemoryRecord* record) {
    if (!record) return;
    ++record->references;
    --record->releases;
    record->state = MemoryState::live;
    expect_first_use(s, *record);
  });
}

// An object with children counts without its bytes: its memory lives on in them.
CountedBlock as_counted_alone(const MemoryRecord& record, cl_mem memory) {
  CountedBlock block = as_counted(record, memory);
  if (record.children) block.bytes = 0;
  return block;
}

cl_int really_release(OpenclState& s, cl_mem memory, Release& release) {
  MemoryRecord& record = release.record;
  const bool counts = record.children || !record.inherited;
  record.uses.clear();  // markers hold the queue and its context: they go first
  if (counts) s.counters.block_died(as_counted_alone(record, memory));
  // The memory of one with children lives on in them.
  if (!record.children) recording::record_free(kRecorded, memory);
  if (!record.children) remember_dead(s, memory);
  // The record is dead before the real release: another thread may get the same handle immediately.
  const cl_int error = next().clReleaseMemObject(memory);
  if (is_refused(error)) {
    s.memory.with(memory, [](MemoryRecord* kept) {
      if (kept) kept->end_unknown = true;  // its uses were cleared above
    });
    take_release_back(s, memory);
    if (counts) s.counters.block_did_not_die(as_counted_alone(record, memory));
    if (!record.children) recording::record_allocation(kRecorded, memory, record.bytes, record.site);
    return error;
  }
  if (record.recyclable) s.counters.count_unpooled(release.why);
  add(s.counters.driver_frees);
  if (!record.children) parent_lost_child(s, record.parent);
  return error;
}

// Notes the call site of the last release, for the line about a second one. It is noted first: later the handle may be
// another thread's.
void note_released_site(OpenclState& s, cl_mem memory) {
  if (!s.sites_on) return;
  const SiteId site = capture_site("clReleaseMemObject");
  s.memory.with(memory, [&](MemoryRecord* record) {
    if (record) record->released_site = site;
  });
}

}  // namespace

cl_int release_memory(cl_mem memory) {
  OpenclState& s = state();
  const CountingCall call{"clReleaseMemObject", next().clReleaseMemObject};
  Release release = decide_release(s, memory);
  switch (release.what) {
    case Release::What::unknown:
      return answer_unknown(memory, call);
    case Release::What::misuse:
      return answer_released(memory, call, release.record);
    case Release::What::not_last: {
      const cl_int error = call.real(memory);
      if (is_refused(error)) take_release_back(s, memory);
      return error;
    }
    case Release::What::pool:
      note_released_site(s, memory);
      if (give_to_pool(s, memory, release)) return kSuccess;
      break;
    case Release::What::really:
      note_released_site(s, memory);
      break;
  }
  return really_release(s, memory, release);
}

namespace hook {

cl_int clRetainMemObject(cl_mem memory) {
  OpenclState& s = state();
  const CountingCall call{"clRetainMemObject", next().clRetainMemObject};
  enum class Found { no, yes, misuse } found = Found::no;
  MemoryRecord shown;
  s.memory.with(memory, [&](MemoryRecord* record) {
    if (!record) return;
    if (given_back(*record)) {
      found = Found::misuse;
      shown = *record;
      return;
    }
    found = Found::yes;
    // An orphan comes back to life: the program got it through a sub-buffer.
    if (record->state == MemoryState::orphan)
      record->state = MemoryState::live, s.counters.block_revived(as_counted(*record, memory));
    ++record->references;
    ++record->retains;
  });
  if (found == Found::no) return answer_unknown(memory, call);
  if (found == Found::misuse) return answer_released(memory, call, shown);
  return call.real(memory);
}

cl_int clReleaseMemObject(cl_mem memory) { return release_memory(memory); }

cl_int clGetMemObjectInfo(cl_mem memory, cl_uint name, size_t value_size, void* value, size_t* value_size_ret) {
  if (name == kMemReferenceCount) wait_for_order(state(), memory);
  return next().clGetMemObjectInfo(memory, name, value_size, value, value_size_ret);
}

cl_int clSetMemObjectDestructorCallback(cl_mem memory, cl_mem_notify notify, void* user_data) {
  end_order_everywhere(state(), Waited::callbacks);
  const cl_int error = next().clSetMemObjectDestructorCallback(memory, notify, user_data);
  if (error == kSuccess)
    state().memory.with(memory, [](MemoryRecord* record) {
      if (record) record->has_callback = true;
    });
  return error;
}

}  // namespace hook
}  // namespace cistern::opencl
