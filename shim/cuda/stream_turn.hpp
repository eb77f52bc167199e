// A call's turn on the stream that it enqueues on (pool/staging/turns.hpp). It is empty if copies are never cut into
// pieces.
#pragma once
#include <optional>

#include "backends/cuda/api.hpp"
#include "pool/staging/turns.hpp"

namespace cistern::cuda {

struct CudaState;

enum class Zero { legacy, per_thread };  // the default stream that stream 0 means in a call

// The key of a stream among all; the legacy default stream is the same in all contexts.
const void* stream_key(CUstream stream, Zero zero);

class StreamTurn {
 public:
  StreamTurn(CudaState& s, CUstream stream, Zero zero);
  // Between the pieces of a copy, or of a batch of them.
  bool is_long() const { return turn_ && turn_->is_long(); }
  // Before the pieces of a copy; false: others use the stream.
  bool lengthen() { return turn_ && turn_->lengthen(whole_key()); }
  void shorten() {
    if (turn_) turn_->shorten(whole_key());
  }
  staging::Turn* turn() { return turn_ ? &*turn_ : nullptr; }

 private:
  staging::StreamKey whole_key() const;

  CudaState& s_;
  const CUstream stream_;
  const void* const key_;  // the stream, as in its whole key
  CUcontext context_ = nullptr;
  std::optional<staging::Turn> turn_;
};

}  // namespace cistern::cuda
