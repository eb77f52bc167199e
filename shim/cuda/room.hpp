// A program's call that takes device memory besides: passed on, and made again when it was out of memory and what the
// pools keep has gone back. A call that fails may write its outputs, and one that reads them may follow: they are as
// the program left them each time.
#pragma once
#include <string.h>

#include "shim/cuda/state.hpp"

namespace cistern::cuda {

template <class T>
class Output {
 public:
  explicit Output(T* place) : place_(place), value_(place ? *place : T{}) {}
  void restore() const {
    if (place_) *place_ = value_;
  }

 private:
  T* place_;
  T value_;
};

class OutputBytes {
 public:
  OutputBytes(void* place, std::size_t bytes) : place_(place) {
    if (!place || !bytes) return;
    kept_.resize(bytes);
    memcpy(kept_.data(), place, bytes);
  }
  void restore() const {
    if (!kept_.empty()) memcpy(place_, kept_.data(), kept_.size());
  }

 private:
  void* place_;
  Vector<char> kept_;
};

template <class T>
Output<T> output(T* place) {
  return Output<T>(place);
}
template <class T>
OutputBytes array(T* first, std::size_t count) {
  return {first, count * sizeof(T)};
}
// An executable graph, and what it is made of.
struct ExecutableOf {
  CUgraphExec* place;
  CUgraph graph;
  explicit operator bool() const { return place != nullptr; }
};
inline Output<CUgraphExec> output(const ExecutableOf& executable) { return output(executable.place); }
inline OutputBytes output(OutputBytes&& bytes) { return std::move(bytes); }

template <class Pass, class... Outputs>
CUresult with_room_again(Pass pass, const Outputs&... outputs) {
  CudaState* s = state_if_used();
  if (!s) return pass();
  bool again = false;
  return with_room(*s, nullptr, 0, [&] {
    if (again) (outputs.restore(), ...);
    again = true;
    return pass();
  });
}

}  // namespace cistern::cuda
