// A call's turn on the stream that it enqueues on (pool/staging/turns.hpp). None where copies are never cut in pieces.
#pragma once
#include <optional>

#include "backends/cuda/api.hpp"
#include "pool/staging/turns.hpp"

namespace cistern::cuda {

struct CudaState;

enum class Zero { legacy, per_thread };  // which default stream the stream 0 is in a call

class StreamTurn {
 public:
  StreamTurn(CudaState& s, CUstream stream, Zero zero);
  // Before the pieces of a copy; false: others are enqueueing.
  bool lengthen();

 private:
  staging::Place place() const;

  CudaState& s_;
  const CUstream stream_;
  const void* const key_;  // of the stream among all; null: the legacy default stream
  std::optional<staging::Turn> turn_;
};

}  // namespace cistern::cuda
