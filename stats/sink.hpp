// Where a report's bytes go. Renderers know nothing else.
#pragma once
#include <spdlog/fmt/fmt.h>

#include <string_view>

#include "pool/base/internal_memory.hpp"

namespace cistern {

class Sink {
 public:
  virtual void write(std::string_view text) = 0;
  // fmt's way of writing; floating point through format.hpp. A char pointer must not be null.
  template <class... Arguments>
  void print(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    print_any(format, fmt::make_format_args(arguments...));
  }

 protected:
  ~Sink() = default;

 private:
  void print_any(fmt::string_view format, fmt::format_args arguments);
};

class StringSink final : public Sink {
 public:
  void write(std::string_view text) override { text_.append(text); }
  const String& text() const { return text_; }

 private:
  String text_;
};

}  // namespace cistern
