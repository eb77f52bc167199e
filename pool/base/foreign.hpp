// A function of a driver or another library, found by name. Where assertions are on, each call says when this thread
// holds a lock (pool/base/lock.hpp).
#pragma once
#include <type_traits>

#include "pool/base/lock.hpp"

namespace cistern {

template <class Signature>
class Foreign;
template <class Result, class... Arguments>
class Foreign<Result(Arguments...)> {
 public:
  using Pointer = Result (*)(Arguments...);
  constexpr Foreign() = default;
  // A function, a lambda without a closure, or none.
  template <class Function>
  requires std::is_convertible_v<Function, Pointer>
  constexpr Foreign(Function function) : function_(function) {}
  Result operator()(Arguments... arguments) const {
    assert_no_lock_held();
    return function_(arguments...);
  }
  constexpr operator Pointer() const { return function_; }

 private:
  Pointer function_ = nullptr;
};

}  // namespace cistern
