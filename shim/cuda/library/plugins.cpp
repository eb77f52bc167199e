// The allocators of frameworks (cistern/plugins.h), over the pools that any program can make.
//
// PyTorch has no answer for an allocator that is "out of memory": it uses the null pointer, except for segments of a
// MemPool. But it exports a function that throws one of its errors (c10::detail::torchCheckFail), and the error passes
// through here. So nothing may be left to be undone when it is called.
#include <string.h>

#include <algorithm>
#include <atomic>

#include "shim/cuda/device_memory.hpp"
#include "shim/cuda/library/devices.hpp"
#include "shim/cuda/library/plugins.hpp"
#include "shim/library/answers.hpp"
#include "shim/library/library.hpp"
#include "shim/library/pool_blocks.hpp"
#include "shim/process/environment.hpp"
#include "shim/process/lookup.hpp"
#include "shim/process/process.hpp"
#include "stats/format.hpp"
#include "stats/sink.hpp"

namespace cistern::library {
namespace {

// The pool of the first thread that makes one stays.
cistern_pool* pool_named(std::atomic<cistern_pool*>& slot, const char* name, cistern_kind kind,
                         cistern_pool_memory memory) {
  cistern_pool* known = slot.load(std::memory_order_acquire);
  if (known) [[likely]]
    return known;
  cistern_pool_settings settings{};
  settings.struct_bytes = sizeof settings;
  settings.name = name;
  settings.kind = kind;
  settings.memory = memory;
  cistern_pool* made = nullptr;
  if (pool_create(&settings, &made) != CISTERN_OK) return nullptr;
  if (slot.compare_exchange_strong(known, made)) return made;
  pool_destroy(made);
  return known;
}

using TorchFails = void (*)(const char* function, const char* file, unsigned line, const char* text);

TorchFails torch_fails() {
  const LoadedLibrary torch("libc10.so");
  return torch ? reinterpret_cast<TorchFails>(torch.find("_ZN3c106detail14torchCheckFailEPKcS2_jS2_")) : nullptr;
}

struct Refused {
  cistern_status status;
  std::size_t bytes;
  int device;
};

void describe(const Refused& refused, char* text, std::size_t room) {
  StringSink line;
  const char* const why = refused.status == CISTERN_NO_MEMORY   ? "CUDA out of memory"
                          : refused.status == CISTERN_LIMIT     ? "CUDA out of memory: the limit of the pool"
                          : refused.status == CISTERN_NO_DRIVER ? "no CUDA driver"
                                                                : "the CUDA driver refused";
  line.print("Cistern: {}: tried to allocate {} on device {}", why, human_bytes(refused.bytes), refused.device);
  if (native) line.print(" (CUresult {})", native);
  const std::size_t bytes = std::min(line.text().size(), room - 1);
  memcpy(text, line.text().data(), bytes);
  text[bytes] = 0;
}

[[gnu::cold, gnu::noinline]] void* fail_in_torch(const Refused& refused) {
  char text[200];
  describe(refused, text, sizeof text);
  if (const TorchFails fails = torch_fails()) fails("cistern_torch_alloc", "cistern", 0, text);
  return nullptr;
}

// Pinned memory is every context's; a thread without one gets the first device's.
int device_for_pinned() { return cuda::any_context_is_current() ? CISTERN_CURRENT : 0; }

cistern_pool* pinned_pool(void* chosen) {
  static constinit std::atomic<cistern_pool*> pool{nullptr};
  return chosen ? static_cast<cistern_pool*>(chosen) : pool_named(pool, "numpy", CISTERN_PINNED, CISTERN_WHOLE_BLOCKS);
}

// A copy of Cistern that was linked or loaded later does not see the program's streams.
bool sees_all_streams() { return preloaded.load(std::memory_order_relaxed) && !switched_off(); }

// Work of any stream may use an array. Where all are known, a free leaves it to the next owner to wait for them; else
// it waits itself.
void* queue_for_free() { return sees_all_streams() ? cuda::legacy_stream() : nullptr; }

constinit std::atomic<cistern_pool*> torchs_pool{nullptr};
cistern_pool* pool_of_torch(cistern_pool_memory memory = CISTERN_SEGMENTS) {
  return pool_named(torchs_pool, "torch", CISTERN_DEVICE, memory);
}

// No bytes are no block.
cistern_status allocate_for_torch(ssize_t size, int device, void* stream, void** block) {
  if (size <= 0) return CISTERN_OK;
  torch_allocates_here.store(true, std::memory_order_relaxed);
  return pool_allocate_on(pool_of_torch(), static_cast<std::size_t>(size), device, stream, block);
}

}  // namespace

// --- PyTorch
cistern_status torch_use_whole_blocks() {
  native = 0;
  const cistern_pool* const pool = pool_of_torch(CISTERN_WHOLE_BLOCKS);
  const Account* const account = pool ? account_of("cistern_torch_use_whole_blocks", pool) : nullptr;
  if (!account) return CISTERN_NO_MEMORY;
  return account->settings.memory == CISTERN_WHOLE_BLOCKS ? CISTERN_OK : CISTERN_TOO_LATE;
}

cistern_status torch_pool(cistern_pool** pool) {
  native = 0;
  if (!pool) return CISTERN_INVALID;
  *pool = pool_of_torch();
  return *pool ? CISTERN_OK : CISTERN_NO_MEMORY;
}

void* torch_alloc(ssize_t size, int device, void* stream) {
  void* block = nullptr;
  const cistern_status status = allocate_for_torch(size, device, stream, &block);
  return status == CISTERN_OK ? block : fail_in_torch({status, static_cast<std::size_t>(size), device});
}

void* torch_alloc_or_null(ssize_t size, int device, void* stream) {
  void* block = nullptr;
  allocate_for_torch(size, device, stream, &block);
  return block;
}

void torch_free(void* block, ssize_t, int, void* stream) {
  if (block) pool_deallocate_on(pool_of_torch(), block, stream);
}

void torch_record_stream(void* block, void* stream) {
  if (block) block_used_on(block, stream);
}

// --- NumPy
void* numpy_malloc(void* pool, size_t bytes) {
  cistern_request request{};
  request.struct_bytes = sizeof request;
  request.bytes = bytes ? bytes : 1;
  if (const int device = device_for_pinned(); device != CISTERN_CURRENT)
    request.where = CISTERN_ON_DEVICE, request.device = device;
  void* block = nullptr;
  pool_allocate_as(pinned_pool(pool), &request, &block);
  return block;
}

void* numpy_calloc(void* pool, size_t count, size_t bytes) {
  std::size_t all = 0;
  if (__builtin_mul_overflow(count, bytes, &all)) return nullptr;
  void* const block = numpy_malloc(pool, all);
  if (block) memset(block, 0, all);
  return block;
}

void numpy_free(void* pool, void* block, size_t) {
  if (block) pool_deallocate(pinned_pool(pool), block, queue_for_free());
}

// Not as pool_reallocate: this thread may have no context, and the block's may be gone.
void* numpy_realloc(void* pool, void* block, size_t bytes) {
  void* const moved = numpy_malloc(pool, bytes);
  if (!moved || !block) return moved;
  const SeenBlock before = see_block(reinterpret_cast<std::uintptr_t>(block));
  if (before.record) memcpy(moved, block, std::min<std::uint64_t>(bytes, before.record->bytes));
  numpy_free(pool, block, 0);
  return moved;
}

}  // namespace cistern::library
