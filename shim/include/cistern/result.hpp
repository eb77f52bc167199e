// What calls of the C++ interface answer: a value, or why there is none. Usable with and without exceptions: value()
// throws cistern::error where the program has them, and ends it with a line where it does not.
#ifndef CISTERN_RESULT_HPP
#define CISTERN_RESULT_HPP

#include <cistern/cistern.h>

#include <optional>
#include <utility>
#if __cpp_exceptions
#include <stdexcept>
#include <string>
#else
#include <cstdio>
#include <cstdlib>
#endif

namespace cistern {

// A struct of the C interface with its size in it, and all else 0: auto figures = cistern::sized<cistern_figures>();
template <class Struct>
constexpr Struct sized() noexcept {
  Struct made{};
  made.struct_bytes = sizeof made;
  return made;
}

// Why a call failed. `call` is static, as "buffer::copy_to"; `native`: as cistern_native_error().
struct failure {
  cistern_status status = CISTERN_OK;
  const char* call = "";
  int native = 0;
};

#if __cpp_exceptions
class error : public std::runtime_error {
 public:
  explicit error(const failure& what)
      : std::runtime_error(std::string("cistern::") + what.call + ": " + cistern_status_text(what.status) +
                           (what.native ? " (" + std::to_string(what.native) + ")" : std::string())),
        what_(what) {}
  const failure& reason() const noexcept { return what_; }

 private:
  failure what_;
};
#endif

namespace detail {

[[noreturn]] inline void raise(const failure& what) {
#if __cpp_exceptions
  throw error(what);
#else
  std::fprintf(stderr, "cistern::%s: %s (%d)\n", what.call, cistern_status_text(what.status), what.native);
  std::abort();
#endif
}

// Of a call of the C interface that has just failed.
inline failure failed(const char* call, cistern_status status) noexcept {
  return {status, call, cistern_native_error()};
}

}  // namespace detail

template <class T>
class [[nodiscard]] result {
 public:
  result(T value) noexcept : value_(std::move(value)) {}
  result(const failure& why) noexcept : why_(why) {}

  explicit operator bool() const noexcept { return value_.has_value(); }
  cistern_status status() const noexcept { return why_.status; }
  const failure& why() const noexcept { return why_; }

  // Only where there is one.
  T& operator*() & noexcept { return *value_; }
  const T& operator*() const& noexcept { return *value_; }
  T&& operator*() && noexcept { return std::move(*value_); }
  T* operator->() noexcept { return &*value_; }
  const T* operator->() const noexcept { return &*value_; }

  T& value() & { return value_ ? *value_ : (detail::raise(why_), *value_); }
  T&& value() && { return std::move(value()); }

 private:
  std::optional<T> value_;
  failure why_;
};

template <>
class [[nodiscard]] result<void> {
 public:
  result() noexcept = default;
  result(const failure& why) noexcept : why_(why) {}
  // What a call of the C interface answered.
  result(const char* call, cistern_status status) noexcept
      : why_(status == CISTERN_OK ? failure{} : detail::failed(call, status)) {}

  explicit operator bool() const noexcept { return why_.status == CISTERN_OK; }
  cistern_status status() const noexcept { return why_.status; }
  const failure& why() const noexcept { return why_; }
  void value() const {
    if (why_.status != CISTERN_OK) detail::raise(why_);
  }

 private:
  failure why_;
};

}  // namespace cistern
#endif
