// Where a report's bytes go. Renderers know nothing else.
#pragma once
#include <cstdarg>
#include <string_view>

#include "pool/base/internal_memory.hpp"

namespace cistern {

class Sink {
 public:
  virtual void write(std::string_view text) = 0;
  // printf-style, into a bounded buffer that grows from internal memory when needed.
  [[gnu::format(printf, 2, 3)]] void print(const char* format, ...);

 protected:
  ~Sink() = default;
};

class StringSink final : public Sink {
 public:
  void write(std::string_view text) override { text_.append(text); }
  const String& text() const { return text_; }

 private:
  String text_;
};

}  // namespace cistern
