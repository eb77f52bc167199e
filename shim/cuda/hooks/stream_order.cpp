// See stream_order.hpp.
#include "shim/cuda/hooks/stream_order.hpp"

#include "shim/cuda/device_memory.hpp"
#include "shim/process/process.hpp"

namespace cistern::cuda {
namespace {

constexpr int kNumberShift = 34;  // above all traits of memory
constexpr std::uint64_t kNumbersMax = std::uint64_t{1} << (64 - kNumberShift);
static_assert(kDeviceTraits < std::uint64_t{1} << kNumberShift);

bool is_default(CUstream stream) { return !stream || stream == legacy_stream(); }

// The default stream has the first number, which none that was made has: they begin at 1.
std::uint64_t traits_of(std::uint64_t stream_number) {
  const std::uint64_t number = stream_number + 1;
  return number < kNumbersMax ? kDeviceTraits | number << kNumberShift : 0;
}

// Whether a marker of the block's context comes after this stream's work.
bool is_known(CudaState& s, const Block& block, CUstream stream) {
  return stream == per_thread_stream() || stream_traits(s, block.context, stream);
}

// The context of a stream whose work uses a block. If it is another one than the block's, contexts share memory, and
// blocks wait for the work of all of them.
Context* context_of_work(CudaState& s, const Block& block, CUstream stream) {
  Context* of = nullptr;
  s.objects.with_stream(stream, [&](const StreamRecord* record) { of = record ? record->context : nullptr; });
  if (!of && s.gate.open()) {
    CUcontext handle = nullptr;
    if (driver().cuStreamGetCtx(stream, &handle) == kSuccess && !(of = s.contexts.known(handle)))
      if (const Entered entered(s.functions, handle); entered) of = s.contexts.current();
  }
  if (!of || !of->alive.load()) return block.context;
  if (of != block.context) s.contexts.note_peer_access();
  return of;
}

}  // namespace

std::uint64_t stream_traits(CudaState& s, const Context* context, CUstream stream) {
  if (is_default(stream)) return traits_of(0);
  std::uint64_t traits = 0;
  s.objects.with_stream(stream, [&](const StreamRecord* record) {
    if (record && record->context == context) traits = traits_of(record->number);
  });
  return traits;
}

bool is_gone(CudaState& s, CUstream stream) {
  if (is_default(stream) || stream == per_thread_stream() || !preloaded.load(std::memory_order_relaxed)) return false;
  bool is_there = false;
  s.objects.with_stream(stream, [&](const StreamRecord* record) { is_there = record; });
  return !is_there;
}

void end_stream_order(CudaState& s, Context& context, std::uint64_t stream_number) {
  const std::uint64_t traits = traits_of(stream_number);
  if (!traits || !context.alive.load()) return;
  constexpr std::uint64_t kEverything = ~std::uint64_t{0};
  s.pools.device().give_up({reinterpret_cast<std::uintptr_t>(&context), traits, 0}, kEverything,
                           [&](Block* block) { s.pools.give(block, s.pools.fence_for(block, true)); });
}

void note_unseen_work(CudaState& s, const Block& block, CUstream stream) {
  if (!block.context_is_there() || is_known(s, block, stream)) return;
  Context& of = *context_of_work(s, block, stream);
  Inside inside(of);
  of.clock.note_work(of.handle(), stream, of.device->calls);
}

bool note_further_stream(CUdeviceptr pointer, CUstream stream) {
  CudaState& s = state();
  Block* const block = pointer ? s.blocks.table.find(pointer) : nullptr;
  if (!block || block->kind != BlockKind::device || block->state.load() != BlockState::live) return false;
  std::uint8_t before = block->further_streams.load();
  const bool known = is_known(s, *block, stream);
  if (!known && block->context_is_there()) context_of_work(s, *block, stream);
  const std::uint8_t now = known ? 1 : 2;
  while (before < now && !block->further_streams.compare_exchange_weak(before, now)) {
  }
  return true;
}

}  // namespace cistern::cuda
