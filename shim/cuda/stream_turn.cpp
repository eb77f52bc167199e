// See stream_turn.hpp.
#include "shim/cuda/stream_turn.hpp"

#include "shim/cuda/state.hpp"

namespace cistern::cuda {
const void* stream_key(CUstream stream, Zero zero) {
  if (stream == legacy_stream() || (!stream && zero == Zero::legacy)) return legacy_stream();
  return stream && stream != per_thread_stream() ? static_cast<const void*>(stream) : __builtin_thread_pointer();
}

namespace {

// The stream in the keys of turns: the legacy default stream of any context is null there.
const void* stream_in_turns(CUstream stream, Zero zero) {
  const void* const key = stream_key(stream, zero);
  return key == legacy_stream() ? nullptr : key;
}

}  // namespace

StreamTurn::StreamTurn(CudaState& s, CUstream stream, Zero zero)
    : s_(s), stream_(stream), key_(stream_in_turns(stream, zero)) {
  staging::Turns* const turns = s.staging.turns();
  if (!turns) return;
  s.functions.context_current(&context_);
  turn_.emplace(*turns, context_, key_, [&] { return whole_key(); });
}

staging::StreamKey StreamTurn::whole_key() const {
  staging::StreamKey key{context_, key_, !key_};
  s_.objects.with_stream(stream_, [&](const StreamRecord* record) {
    if (record) key.blocks = !record->non_blocking;
  });
  return key;
}

}  // namespace cistern::cuda
