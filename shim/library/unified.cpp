// Unified buffers (cistern/unified.h): memory on both sides made at need, copies, and in which order they come on the
// queues that use the buffer. sides.hpp says which parts have to be copied.
//
//   unified_host   -> ready_on_host: memory (have_memory) -> wait for uploads that still read it, if the caller writes
//                     -> download the parts that it lacks, on the queue that wrote last, and wait
//   unified_device -> ready_on_device: memory (have_memory) -> the queue follows the other queues that matter
//                     -> upload the parts that it lacks, on that queue
//
// Each kind does the work on its queues by a table of functions (KindQueues in kind_memory.hpp).
#include "shim/library/unified.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "pool/base/page_size.hpp"
#include "shim/library/answers.hpp"
#include "shim/library/handles.hpp"
#include "shim/library/kind_memory.hpp"
#include "shim/library/queues.hpp"
#include "shim/library/sides.hpp"
#include "stats/counters.hpp"
#include "stats/sites.hpp"

namespace cistern::library {
namespace {

constexpr std::size_t kWorthPinning = 64 << 10, kWorthMeasuring = 8 << 20;
constexpr std::uint64_t kCopiesUntilHot = 10;

// Queues whose work may still use a side.
class QueueUses {
 public:
  void add(void* queue, bool writes) {
    for (One& use : all_)
      if (use.queue == queue) return static_cast<void>(use.writes |= writes);
    all_.push_back({queue, writes});
  }
  void forget(const void* queue) {
    std::erase_if(all_, [queue](const One& use) { return use.queue == queue; });
  }
  void clear() { all_.clear(); }

  // The queues that an access has to come after. One that writes comes after all of them, a read after those that
  // write.
  Vector<void*> before(bool writes) const {
    Vector<void*> queues;
    for (const One& use : all_)
      if (writes || use.writes) queues.push_back(use.queue);
    return queues;
  }
  void* writer(void* otherwise) const {
    const Vector<void*> writers = before(false);
    return writers.empty() ? otherwise : writers.front();
  }

 private:
  struct One {
    void* queue;
    bool writes;
  };
  Vector<One> all_;
};

struct Unified {
  static constexpr char kWhat[] = "unified buffer";
  cistern_unified_settings settings{};
  const KindMemory* memory = nullptr;  // the one for settings.kind
  void* context = nullptr;             // CISTERN_CURRENT: the one that was current when it was made
  unsigned process = process_number;
  Sides sides;
  Taken host, device;
  char* host_address = nullptr;  // the program's own memory, or host.address
  bool is_pinned = false, is_registered = false, tried_to_register = false;
  bool has_writer = false;
  QueueUses host_uses;    // uploads, and downloads that could not be waited for
  QueueUses device_uses;  // one that writes at most: a second one follows it
  cistern_unified_metrics metrics{};

  void begin_anew() {
    std::destroy_at(this);
    std::construct_at(this);
  }
  const KindQueues& queues() const { return *memory->queues; }
  bool is_inherited() const { return process != process_number; }
  BlockPart part_of(cistern_side side, std::size_t offset) const {
    if (side == CISTERN_HOST_SIDE) return {CISTERN_HOST, host_address, offset};
    return {settings.kind, reinterpret_cast<void*>(device.address), offset};
  }
};

constinit Handles<Unified, cistern_unified, 3> buffers;
using Used = decltype(buffers)::Use;

// --- Memory of both sides
BlockRequest host_request(const Unified& of) {
  BlockRequest request = request_for(of.settings, *memory_of(CISTERN_HOST), of.settings.bytes);
  // Whole pages, for they may be pinned later.
  const bool whole = request.bytes >= kWorthPinning && request.bytes <= PTRDIFF_MAX / 2;
  request.alignment = whole ? page_bytes() : 64;
  if (whole) request.bytes = whole_pages(request.bytes);
  return request;
}

BlockRequest pinned_request(const Unified& of) {
  BlockRequest request = request_for(of.settings, *of.queues().pinned, of.settings.bytes);
  request.flags = of.queues().pinned_for_all;
  return request;
}

cistern_status take_checked(const BlockRequest& request, Taken* taken) {
  const cistern_status status = check(request);
  return status == CISTERN_OK ? take(request, taken) : status;
}

cistern_status have_memory(Unified& of, cistern_side side) {
  // In a forked child the parent's page-locked memory may be missing.
  if (of.is_inherited() && (side == CISTERN_DEVICE_SIDE || of.is_pinned)) return CISTERN_NO_DRIVER;
  if (side == CISTERN_DEVICE_SIDE) {
    if (of.device.address) return CISTERN_OK;
    return take_checked(request_for(of.settings, *of.memory, of.settings.bytes), &of.device);
  }
  if (of.host_address) return CISTERN_OK;
  if (of.settings.pin == CISTERN_PIN_AT_ONCE && of.queues().pinned && !of.is_inherited())
    of.is_pinned = take_checked(pinned_request(of), &of.host) == CISTERN_OK;
  // Without pinned memory it works too.
  const cistern_status status = of.is_pinned ? CISTERN_OK : take_checked(host_request(of), &of.host);
  if (status == CISTERN_OK) of.host_address = reinterpret_cast<char*>(of.host.address);
  return status;
}

cistern_status unregister(Unified& of) {
  if (!of.is_registered) return CISTERN_OK;
  const cistern_status status = of.queues().unpin(of.host_address, of.settings.device);
  if (status == CISTERN_OK) of.is_registered = of.is_pinned = of.tried_to_register = false;
  return status;
}

// All known work has been waited for.
void* idle_queue(const KindMemory& memory) {
  return memory.queues && memory.queues->queue_of_idle ? memory.queues->queue_of_idle() : nullptr;
}

cistern_status give_host(Unified& of) {
  if (of.is_inherited() && of.is_pinned) return CISTERN_OK;
  if (const cistern_status status = unregister(of); status != CISTERN_OK) return status;
  if (!of.host.address) return CISTERN_OK;
  const KindMemory& memory = of.is_pinned ? *of.queues().pinned : *memory_of(CISTERN_HOST);
  const cistern_status status = memory.give(of.host, idle_queue(memory), {});
  if (status != CISTERN_OK) return status;
  of.host = {};
  of.host_address = nullptr;
  of.is_pinned = false;
  return CISTERN_OK;
}

cistern_status give_device(Unified& of) {
  if (!of.device.address || of.is_inherited()) return CISTERN_OK;
  const cistern_status status = of.memory->give(of.device, idle_queue(*of.memory), {});
  if (status == CISTERN_OK) of.device = {};
  return status;
}

// Page-locks the host's side where it lies, so that the program's addresses stay valid. It is tried once.
void pin_if_hot(Unified& of) {
  if (of.is_inherited()) return;
  const bool is_hot = of.metrics.copies_to_device + of.metrics.copies_to_host > kCopiesUntilHot;
  if (!is_hot || of.tried_to_register || of.is_pinned || !of.queues().pin || of.settings.pin == CISTERN_PIN_NEVER)
    return;
  if (of.settings.bytes < kWorthPinning || !of.host_address) return;
  of.tried_to_register = true;
  const auto bytes = of.host.address ? host_request(of).bytes : of.settings.bytes;
  of.is_registered = of.queues().pin(of.host_address, bytes, of.settings.device);
  of.is_pinned = of.is_registered;
}

// --- Order
void* queue_or_own(const Unified& of, void* queue) { return queue ? queue : of.settings.queue; }

// The queue has done all its work: the buffer knows it no more.
void forget(Unified& of, const void* queue) {
  of.host_uses.forget(queue);
  of.device_uses.forget(queue);
}

// Whether the driver's code of the last call says that the queue is not valid, or not any more.
bool was_no_queue(const Unified& of) { return of.queues().is_no_queue && of.queues().is_no_queue(native); }

cistern_status wait_for(Unified& of, void* queue) {
  cistern_status status = queue_wait(of.settings.kind, of.settings.device, queue);
  if (status != CISTERN_OK && was_no_queue(of)) status = of.queues().wait_for_context(of.settings.device);
  if (status == CISTERN_OK) forget(of, queue);
  return status;
}

// Waits for all of them, even if one fails. Returns the first failure.
cistern_status wait_for(Unified& of, const Vector<void*>& queues) {
  cistern_status first = CISTERN_OK;
  for (void* const queue : queues) {
    const cistern_status status = wait_for(of, queue);
    if (first == CISTERN_OK) first = status;
  }
  return first;
}

cistern_status wait_for_all(Unified& of) {
  if (of.is_inherited()) return CISTERN_OK;
  const cistern_status on_host = wait_for(of, of.host_uses.before(true));
  const cistern_status on_device = wait_for(of, of.device_uses.before(true));
  return on_host == CISTERN_OK ? on_device : on_host;
}

cistern_status follow_others(Unified& of, void* queue, bool writes) {
  for (void* const other : of.device_uses.before(writes))
    if (const cistern_status status = queue_follow(of.settings.kind, of.settings.device, queue, other);
        status != CISTERN_OK)
      return status;
  return CISTERN_OK;
}

// The queue uses the device's side from now on. If it writes, it follows all other queues, so they are forgotten.
void note_use(Unified& of, void* queue, bool writes) {
  if (writes) of.device_uses.clear();
  of.device_uses.add(queue, writes);
}

// --- Copies
void note_copy(Unified& of, cistern_side to, Range part, cistern_status status) {
  const std::size_t bytes = part.end - part.begin;
  if (status != CISTERN_OK) {
    ++of.metrics.failed_copies;
  } else if (to == CISTERN_HOST_SIDE) {
    ++of.metrics.copies_to_host;
    of.metrics.bytes_to_host += bytes;
  } else {
    ++of.metrics.copies_to_device;
    of.metrics.bytes_to_device += bytes;
  }
}

cistern_status enqueue(Unified& of, cistern_side to, Range part, void* queue) {
  const BlockPart target = of.part_of(to, part.begin), source = of.part_of(other(to), part.begin);
  const cistern_status status = copy_part(target, source, part.end - part.begin, of.settings.device, queue);
  note_copy(of, to, part, status);
  return status;
}

std::size_t bytes_in(const Parts& parts) {
  std::size_t bytes = 0;
  for (const Range& part : parts) bytes += part.end - part.begin;
  return bytes;
}

void note_measured(Unified& of, std::size_t bytes, std::uint64_t since_ns) {
  cistern_unified_metrics& metrics = of.metrics;
  const double seconds = static_cast<double>(nanoseconds_since_start() - since_ns) / 1e9;
  const double bytes_before = metrics.bytes_per_second * metrics.seconds;
  metrics.seconds += seconds;
  if (metrics.seconds > 0) metrics.bytes_per_second = (bytes_before + static_cast<double>(bytes)) / metrics.seconds;
}

// A copy that fails may still be in flight: it was enqueued, and the wait for it failed.
cistern_status upload(Unified& of, const Parts& parts, void* queue) {
  for (const Range& part : parts) {
    const cistern_status status = enqueue(of, CISTERN_DEVICE_SIDE, part, queue);
    // The queue may read the host's side later. If the device reaches pageable memory, that holds for such memory too.
    if (queue || status != CISTERN_OK) of.host_uses.add(queue, false);
    if (status != CISTERN_OK) return status;
    of.sides.given(CISTERN_DEVICE_SIDE, part);
  }
  return CISTERN_OK;
}

// Enqueues all parts and waits for the last one: then all parts are there, and the queue has done all its work.
cistern_status read_parts(Unified& of, const Parts& parts, void* queue, Parts* enqueued, bool* waited) {
  const Range last = *(parts.end() - 1);
  for (const Range& part : parts) {
    cistern_status status = CISTERN_OK;
    if (part == last) {
      const BlockPart target = of.part_of(CISTERN_HOST_SIDE, part.begin);
      const BlockPart source = of.part_of(CISTERN_DEVICE_SIDE, part.begin);
      status = of.queues().read_and_wait(target, source, part.end - part.begin, of.settings.device, queue);
      note_copy(of, CISTERN_HOST_SIDE, part, status);
      *waited = status == CISTERN_OK;
    } else {
      status = enqueue(of, CISTERN_HOST_SIDE, part, queue);
    }
    if (status != CISTERN_OK) return status;
    enqueued->add(part);
  }
  return CISTERN_OK;
}

// Only large copies are timed, because the queue has to be idle before.
cistern_status download(Unified& of, const Parts& parts) {
  void* const queue = of.device_uses.writer(of.settings.queue);
  const std::size_t bytes = bytes_in(parts);
  const bool is_measured = bytes >= kWorthMeasuring;
  if (is_measured)
    if (const cistern_status status = wait_for(of, queue); status != CISTERN_OK) return status;
  const std::uint64_t since_ns = nanoseconds_since_start();
  Parts enqueued;
  bool waited = false;
  const cistern_status status = read_parts(of, parts, queue, &enqueued, &waited);
  const int code = native;
  if (waited) {
    forget(of, queue);
  } else {
    of.host_uses.add(queue, true);
    if (wait_for(of, queue) != CISTERN_OK) return status;
  }
  for (const Range& part : enqueued) of.sides.given(CISTERN_HOST_SIDE, part);
  if (status == CISTERN_OK && is_measured) note_measured(of, bytes, since_ns);
  native = code;
  return status;
}

// --- Accesses
cistern_status range_of(const Unified& of, std::size_t offset, std::size_t bytes, Range* part) {
  if (offset > of.settings.bytes) return CISTERN_BOUNDS;
  const std::size_t rest = of.settings.bytes - offset;
  if (bytes == CISTERN_TO_THE_END) bytes = rest;
  if (bytes > rest) return CISTERN_BOUNDS;
  if (!bytes) return CISTERN_INVALID;
  *part = {offset, offset + bytes};
  return CISTERN_OK;
}

bool is_access(cistern_access access) { return access >= CISTERN_READ && access <= CISTERN_OVERWRITE; }

void note_access(Unified& of, bool is_hit) {
  ++of.metrics.accesses;
  of.metrics.hits += is_hit;
  of.metrics.last_access_seconds = static_cast<double>(nanoseconds_since_start()) / 1e9;
}

cistern_status ready_on_host(Unified& of, cistern_access access, Range part) {
  const InContext there(of.queues(), of.context);
  if (const cistern_status status = of.sides.check(access); status != CISTERN_OK) return status;
  if (const cistern_status status = have_memory(of, CISTERN_HOST_SIDE); status != CISTERN_OK) return status;
  const bool writes = access != CISTERN_READ;
  if (of.is_inherited()) of.host_uses.clear();  // a parent's queues do not exist here
  if (const cistern_status status = wait_for(of, of.host_uses.before(writes)); status != CISTERN_OK) return status;
  const Parts parts = of.sides.lacks(CISTERN_HOST_SIDE, access, part);
  if (!parts.empty() && of.is_inherited()) return CISTERN_NO_DRIVER;
  if (!parts.empty())
    if (const cistern_status status = download(of, parts); status != CISTERN_OK) return status;
  if (writes) {
    of.sides.begin_write(CISTERN_HOST_SIDE, part);
    of.has_writer = of.settings.checked;
  }
  note_access(of, parts.empty());
  pin_if_hot(of);
  return CISTERN_OK;
}

cistern_status ready_on_device(Unified& of, cistern_access access, Range part, void* queue) {
  const InContext there(of.queues(), of.context);
  if (!is_for_all_threads(of.queues(), queue)) return CISTERN_INVALID;
  if (const cistern_status status = of.sides.check(access); status != CISTERN_OK) return status;
  if (const cistern_status status = have_memory(of, CISTERN_DEVICE_SIDE); status != CISTERN_OK) return status;
  const Parts parts = of.sides.lacks(CISTERN_DEVICE_SIDE, access, part);
  const bool writes = access != CISTERN_READ || !parts.empty();
  if (const cistern_status status = follow_others(of, queue, writes); status != CISTERN_OK) return status;
  note_use(of, queue, writes);
  if (const cistern_status status = upload(of, parts, queue); status != CISTERN_OK) {
    // On a queue that is not valid nothing is in flight, and it followed no queue.
    if (was_no_queue(of)) forget(of, queue);
    return status;
  }
  if (access != CISTERN_READ) of.sides.begin_write(CISTERN_DEVICE_SIDE, part);
  note_access(of, parts.empty());
  pin_if_hot(of);
  return CISTERN_OK;
}

bool are_valid(const cistern_unified_settings& settings) {
  if (!settings.bytes || settings.device < CISTERN_CURRENT) return false;
  if (settings.pin < CISTERN_PIN_WHEN_HOT || settings.pin > CISTERN_PIN_NEVER) return false;
  const KindMemory* const memory = memory_of(settings.kind);
  if (!memory || !memory->is_device) return false;
  if ((memory->of_context && !settings.context) || (memory->queues->needs_queue && !settings.queue)) return false;
  return is_for_all_threads(*memory->queues, settings.queue);
}

}  // namespace

cistern_status unified_create(const cistern_unified_settings* settings, cistern_unified** buffer) {
  native = 0;
  if (buffer) *buffer = nullptr;
  cistern_unified_settings own{};
  if (!buffer || !read_sized(own, settings, offsetof(cistern_unified_settings, context)) || !are_valid(own))
    return CISTERN_INVALID;
  const KindMemory* const memory = memory_of(own.kind);
  void* context = nullptr;
  if (own.device == CISTERN_CURRENT)
    if (const cistern_status status = find_current_context(*memory->queues, &context); status != CISTERN_OK)
      return status;
  *buffer = buffers.make([&](Unified& of) {
    of.settings = own;
    of.memory = memory;
    of.context = context;
    of.process = process_number;
    of.host_address = static_cast<char*>(own.host);
    of.sides = Sides(own.bytes, own.host ? CISTERN_HOST_ONLY : CISTERN_UNINITIALISED);
  });
  return *buffer ? CISTERN_OK : CISTERN_NO_MEMORY;
}

cistern_status unified_destroy(cistern_unified* handle) {
  const CalledFrom here(__builtin_return_address(0), Calls::occasional);
  native = 0;
  Used buffer(buffers, "cistern_unified_destroy", handle);
  if (!buffer) return CISTERN_INVALID;
  const InContext there(buffer->queues(), buffer->context);
  cistern_status status = wait_for_all(*buffer);
  if (status == CISTERN_OK) status = give_device(*buffer);
  if (status == CISTERN_OK) status = give_host(*buffer);
  if (status != CISTERN_OK) {
    if (!buffer->device.address) buffer->sides.become(CISTERN_UNINITIALISED);
    return status;
  }
  buffer.end();
  return CISTERN_OK;
}

cistern_status unified_host(cistern_unified* handle, size_t offset, size_t bytes, cistern_access access,
                            void** address) {
  const CalledFrom here(__builtin_return_address(0), Calls::occasional);
  native = 0;
  if (address) *address = nullptr;
  if (!address || !is_access(access)) return CISTERN_INVALID;
  const Used buffer(buffers, "cistern_unified_host", handle);
  if (!buffer) return CISTERN_INVALID;
  Range part;
  if (const cistern_status status = range_of(*buffer, offset, bytes, &part); status != CISTERN_OK) return status;
  if (buffer->has_writer) return CISTERN_BUSY;
  const cistern_status status = ready_on_host(*buffer, access, part);
  if (status == CISTERN_OK) *address = buffer->host_address + offset;
  return status;
}

cistern_status unified_end_write(cistern_unified* handle) {
  native = 0;
  const Used buffer(buffers, "cistern_unified_end_write", handle);
  if (!buffer) return CISTERN_INVALID;
  buffer->has_writer = false;
  return CISTERN_OK;
}

cistern_status unified_device(cistern_unified* handle, size_t offset, size_t bytes, cistern_access access, void* queue,
                              void** address) {
  const CalledFrom here(__builtin_return_address(0), Calls::occasional);
  native = 0;
  if (address) *address = nullptr;
  if (!address || !is_access(access)) return CISTERN_INVALID;
  const Used buffer(buffers, "cistern_unified_device", handle);
  if (!buffer) return CISTERN_INVALID;
  Range part;
  if (const cistern_status status = range_of(*buffer, offset, bytes, &part); status != CISTERN_OK) return status;
  if (buffer->has_writer) return CISTERN_BUSY;
  const cistern_status status = ready_on_device(*buffer, access, part, queue_or_own(*buffer, queue));
  const std::uintptr_t shift = buffer->memory->is_handle ? 0 : offset;
  if (status == CISTERN_OK) *address = reinterpret_cast<void*>(buffer->device.address + shift);
  return status;
}

cistern_status unified_mark(cistern_unified* handle, cistern_side side, size_t offset, size_t bytes) {
  native = 0;
  if (side != CISTERN_HOST_SIDE && side != CISTERN_DEVICE_SIDE) return CISTERN_INVALID;
  const Used buffer(buffers, "cistern_unified_mark", handle);
  if (!buffer) return CISTERN_INVALID;
  Range part;
  if (const cistern_status status = range_of(*buffer, offset, bytes, &part); status != CISTERN_OK) return status;
  return buffer->has_writer ? CISTERN_BUSY : buffer->sides.mark(side, part);
}

cistern_status unified_synchronize(cistern_unified* handle, size_t offset, size_t bytes, void* queue) {
  const CalledFrom here(__builtin_return_address(0), Calls::occasional);
  native = 0;
  const Used buffer(buffers, "cistern_unified_synchronize", handle);
  if (!buffer) return CISTERN_INVALID;
  Range part;
  if (const cistern_status status = range_of(*buffer, offset, bytes, &part); status != CISTERN_OK) return status;
  if (buffer->has_writer) return CISTERN_BUSY;
  const cistern_state state = buffer->sides.state();
  if (state == CISTERN_DEVICE_ONLY || state == CISTERN_DEVICE_DIRTY) return ready_on_host(*buffer, CISTERN_READ, part);
  void* const on = queue_or_own(*buffer, queue);
  if (const cistern_status status = ready_on_device(*buffer, CISTERN_READ, part, on); status != CISTERN_OK)
    return status;
  const InContext there(buffer->queues(), buffer->context);
  return wait_for(*buffer, on);
}

cistern_status unified_fill(cistern_unified* handle, const void* pattern, size_t pattern_bytes, void* queue) {
  const CalledFrom here(__builtin_return_address(0), Calls::occasional);
  native = 0;
  const Used buffer(buffers, "cistern_unified_fill", handle);
  if (!buffer || !pattern || !pattern_bytes) return CISTERN_INVALID;
  if (buffer->has_writer) return CISTERN_BUSY;
  if (buffer->sides.state() == CISTERN_HOST_DIRTY) return CISTERN_CONFLICT;
  const InContext there(buffer->queues(), buffer->context);
  void* const on = queue_or_own(*buffer, queue);
  if (!is_for_all_threads(buffer->queues(), on)) return CISTERN_INVALID;
  if (const cistern_status status = have_memory(*buffer, CISTERN_DEVICE_SIDE); status != CISTERN_OK) return status;
  if (const cistern_status status = follow_others(*buffer, on, true); status != CISTERN_OK) return status;
  note_use(*buffer, on, true);
  const BlockPart all = buffer->part_of(CISTERN_DEVICE_SIDE, 0);
  const auto& settings = buffer->settings;
  const cistern_status status = fill_part(all, pattern, pattern_bytes, settings.bytes, settings.device, on);
  const cistern_state state = buffer->sides.state();
  const bool host_has_all = state == CISTERN_SYNCHRONISED || state == CISTERN_HOST_ONLY;
  if (status == CISTERN_OK)
    buffer->sides.become(CISTERN_DEVICE_ONLY);
  else if (state != CISTERN_UNINITIALISED)  // parts of the device's side may be filled
    buffer->sides.become(host_has_all ? CISTERN_HOST_ONLY : CISTERN_DEVICE_ONLY);
  return status;
}

cistern_status unified_drop(cistern_unified* handle, cistern_side side) {
  const CalledFrom here(__builtin_return_address(0), Calls::occasional);
  native = 0;
  if (side != CISTERN_HOST_SIDE && side != CISTERN_DEVICE_SIDE) return CISTERN_INVALID;
  const Used buffer(buffers, "cistern_unified_drop", handle);
  if (!buffer) return CISTERN_INVALID;
  if (buffer->has_writer) return CISTERN_BUSY;
  const InContext there(buffer->queues(), buffer->context);
  Sides after = buffer->sides;
  cistern_status status = after.drop(side);
  if (status == CISTERN_OK)
    status = side == CISTERN_HOST_SIDE ? wait_for(*buffer, buffer->host_uses.before(true)) : wait_for_all(*buffer);
  if (status == CISTERN_OK) status = side == CISTERN_HOST_SIDE ? give_host(*buffer) : give_device(*buffer);
  if (status == CISTERN_OK) buffer->sides = after;
  return status;
}

cistern_status unified_wait(cistern_unified* handle) {
  native = 0;
  const Used buffer(buffers, "cistern_unified_wait", handle);
  if (!buffer) return CISTERN_INVALID;
  const InContext there(buffer->queues(), buffer->context);
  return wait_for_all(*buffer);
}

cistern_status unified_get_state(cistern_unified* handle, cistern_state* state) {
  native = 0;
  if (state) *state = CISTERN_UNINITIALISED;
  const Used buffer(buffers, "cistern_unified_get_state", handle);
  if (!buffer || !state) return CISTERN_INVALID;
  *state = buffer->sides.state();
  return CISTERN_OK;
}

cistern_status unified_next_dirty(cistern_unified* handle, size_t* offset, size_t* bytes) {
  native = 0;
  if (bytes) *bytes = 0;
  const Used buffer(buffers, "cistern_unified_next_dirty", handle);
  if (!buffer || !offset || !bytes) return CISTERN_INVALID;
  const Range next = buffer->sides.dirty_parts().next(*offset);
  if (next.begin == next.end) return CISTERN_EMPTY;
  *offset = next.begin;
  *bytes = next.end - next.begin;
  return CISTERN_OK;
}

cistern_status unified_get_metrics(cistern_unified* handle, cistern_unified_metrics* metrics) {
  native = 0;
  const bool has_room = clear_sized(metrics);
  const Used buffer(buffers, "cistern_unified_get_metrics", handle);
  if (!buffer || !has_room) return CISTERN_INVALID;
  cistern_unified_metrics all = buffer->metrics;
  all.hit_rate = all.accesses ? static_cast<double>(all.hits) / static_cast<double>(all.accesses) : 0;
  all.is_pinned = buffer->is_pinned;
  write_sized(metrics, all);
  return CISTERN_OK;
}

void unified_before_fork() { buffers.before_fork(); }
void unified_after_fork_in_parent() { buffers.after_fork_in_parent(); }
void unified_after_fork_in_child() { buffers.after_fork_in_child(); }

}  // namespace cistern::library
