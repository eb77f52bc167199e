// See stream_turn.hpp.
#include "shim/cuda/stream_turn.hpp"

#include "shim/cuda/state.hpp"

namespace cistern::cuda {
namespace {

const void* key_of(CUstream stream, Zero zero) {
  if (stream == legacy_stream() || (!stream && zero == Zero::legacy)) return nullptr;
  return stream && stream != per_thread_stream() ? static_cast<const void*>(stream) : __builtin_thread_pointer();
}

}  // namespace

StreamTurn::StreamTurn(CudaState& s, CUstream stream, Zero zero) : s_(s), stream_(stream), key_(key_of(stream, zero)) {
  if (staging::Turns* const turns = s.staging.turns()) turn_.emplace(*turns, key_, [&] { return place(); });
}

staging::Place StreamTurn::place() const {
  CUcontext context = nullptr;
  s_.functions.context_current(&context);
  staging::Place place{context, key_, !key_};
  s_.streams.with(stream_, [&](const StreamRecord* record) {
    if (!record) return;
    place.blocks = !record->non_blocking;
    if (record->context) place.context = record->context->handle();
  });
  return place;
}

bool StreamTurn::lengthen() { return turn_ && turn_->lengthen(place()); }

}  // namespace cistern::cuda
