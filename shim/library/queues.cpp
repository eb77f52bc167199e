// Work on streams and queues (cistern/queue.h): host memory immediately, all other memory by its kind.
#include "shim/library/queues.hpp"

#include <errno.h>
#include <string.h>

#include <algorithm>
#include <cstddef>

#include "pool/base/internal_memory.hpp"
#include "shim/library/answers.hpp"
#include "stats/sites.hpp"

namespace cistern::library {
namespace {

// A part as the caller gave it. Memory without queues is host memory outside any driver; it is copied and filled
// immediately, without a driver call.
struct GivenPart {
  explicit GivenPart(const cistern_part* part) {
    cistern_part own{};
    if (!read_sized(own, part, offsetof(cistern_part, offset)) || !own.block) return;
    is_valid = memory_of(own.kind);
    at = {own.kind, own.block, own.offset};
  }
  bool is_valid = false;
  BlockPart at = {};
};
char* host_address(const BlockPart& part) { return static_cast<char*>(part.block) + part.offset; }

// Whether the kind takes this queue: null only if null is one of its queues.
bool accepts(const KindQueues& of, const void* queue) { return queue || !of.needs_queue; }

const KindQueues* queues_of(cistern_kind kind) {
  const KindMemory* const memory = memory_of(kind);
  return memory ? memory->queues : nullptr;
}

// Fills the rest of memory that begins with the pattern: each copy doubles the part that is filled.
template <class Copy>
cistern_status repeat(std::size_t pattern_bytes, std::size_t bytes, Copy copy) {
  cistern_status status = CISTERN_OK;
  for (std::size_t there = pattern_bytes; there < bytes && status == CISTERN_OK; there *= 2)
    status = copy(there, std::min(there, bytes - there));
  return status;
}

void fill_host(char* target, const void* pattern, std::size_t pattern_bytes, std::size_t bytes) {
  memcpy(target, pattern, std::min(pattern_bytes, bytes));
  repeat(pattern_bytes, bytes, [&](std::size_t to, std::size_t count) {
    memcpy(target + to, target, count);
    return CISTERN_OK;
  });
}

}  // namespace

// The caller may change the pattern when this returns, so the queue reads a copy of it later. If it is unknown whether
// the queue has read the copy, the copy is never freed.
cistern_status fill_by_copies(CopyAndWait by, const BlockPart& target, const void* pattern, std::size_t pattern_bytes,
                              std::size_t bytes, int device, void* queue) {
  const std::size_t first_bytes = std::min(pattern_bytes, bytes);
  void* const first = internal_try_allocate(first_bytes);
  if (!first) return refused(ENOMEM, CISTERN_NO_MEMORY);
  memcpy(first, pattern, first_bytes);
  cistern_status status = by.copy(target, {CISTERN_HOST, first, 0}, first_bytes, device, queue);
  if (status == CISTERN_OK)
    status = repeat(first_bytes, bytes, [&](std::size_t to, std::size_t count) {
      return by.copy({target.kind, target.block, target.offset + to}, target, count, device, queue);
    });
  const int code = native;
  const cistern_status waited = by.wait(device, queue);
  if (waited != CISTERN_OK) return waited;
  internal_deallocate(first, first_bytes);
  native = code;
  return status;
}

cistern_status fill_part(const BlockPart& target, const void* pattern, std::size_t pattern_bytes, std::size_t bytes,
                         int device, void* queue) {
  if (!bytes) return CISTERN_OK;
  const KindQueues* const by = queues_of(target.kind);
  if (!by) {
    fill_host(host_address(target), pattern, pattern_bytes, bytes);
    return CISTERN_OK;
  }
  if (!accepts(*by, queue)) return CISTERN_INVALID;
  return by->fill ? by->fill(target, pattern, pattern_bytes, bytes, device, queue)
                  : fill_by_copies({by->copy, by->wait}, target, pattern, pattern_bytes, bytes, device, queue);
}

cistern_status copy_part(const BlockPart& target, const BlockPart& source, std::size_t bytes, int device, void* queue) {
  if (!bytes) return CISTERN_OK;
  const KindQueues *const to = queues_of(target.kind), *const from = queues_of(source.kind);
  if (!to && !from) {
    memcpy(host_address(target), host_address(source), bytes);
    return CISTERN_OK;
  }
  if (to && from && to != from) return CISTERN_MISMATCH;
  const KindQueues& by = to ? *to : *from;
  return accepts(by, queue) ? by.copy(target, source, bytes, device, queue) : CISTERN_INVALID;
}

cistern_status enqueue_copy(const cistern_part* target, const cistern_part* source, size_t bytes, int device,
                            void* queue) {
  const CalledFrom here(__builtin_return_address(0), Calls::occasional);
  native = 0;
  const GivenPart there(target), from_there(source);
  const bool is_valid = there.is_valid && from_there.is_valid;
  return is_valid ? copy_part(there.at, from_there.at, bytes, device, queue) : CISTERN_INVALID;
}

cistern_status enqueue_fill(const cistern_part* target, const void* pattern, size_t pattern_bytes, size_t bytes,
                            int device, void* queue) {
  const CalledFrom here(__builtin_return_address(0), Calls::occasional);
  native = 0;
  const GivenPart there(target);
  if (!there.is_valid || !pattern || !pattern_bytes) return CISTERN_INVALID;
  return fill_part(there.at, pattern, pattern_bytes, bytes, device, queue);
}

cistern_status queue_follow(cistern_kind kind, int device, void* queue, void* other) {
  native = 0;
  const KindQueues* const of = queues_of(kind);
  if (!of) return CISTERN_INVALID;
  if (queue == other) return CISTERN_OK;
  return accepts(*of, queue) && accepts(*of, other) ? of->follow(device, queue, other) : CISTERN_INVALID;
}

cistern_status queue_wait(cistern_kind kind, int device, void* queue) {
  native = 0;
  const KindQueues* const of = queues_of(kind);
  return of && accepts(*of, queue) ? of->wait(device, queue) : CISTERN_INVALID;
}

}  // namespace cistern::library
