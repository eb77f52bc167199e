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
  explicit Output(T* target) : target_(target), value_(target ? *target : T{}) {}
  void restore() const {
    if (target_) *target_ = value_;
  }

 private:
  T* target_;
  T value_;
};

class OutputBytes {
 public:
  OutputBytes(void* target, std::size_t bytes) : target_(target) {
    if (!target || !bytes) return;
    kept_.resize(bytes);
    memcpy(kept_.data(), target, bytes);
  }
  void restore() const {
    if (!kept_.empty()) memcpy(target_, kept_.data(), kept_.size());
  }

 private:
  void* target_;
  Vector<char> kept_;
};

template <class T>
Output<T> output(T* target) {
  return Output<T>(target);
}
template <class T>
OutputBytes array(T* first, std::size_t count) {
  return {first, count * sizeof(T)};
}
// An executable graph, and what it is made of.
struct ExecutableOf {
  CUgraphExec* executable;
  CUgraph graph;
  explicit operator bool() const { return executable != nullptr; }
};
inline Output<CUgraphExec> output(const ExecutableOf& of) { return output(of.executable); }
inline OutputBytes output(OutputBytes&& bytes) { return std::move(bytes); }

template <class Pass, class... Outputs>
CUresult with_room_restoring(Pass pass, const Outputs&... outputs) {
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
