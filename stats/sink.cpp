// See sink.hpp.
#include "stats/sink.hpp"

#include <cstdio>

namespace cistern {

void Sink::print(const char* format, ...) {
  char small[512];
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  const int length = std::vsnprintf(small, sizeof small, format, arguments);
  va_end(arguments);
  if (length < 0) {
    va_end(again);
    return;
  }
  const auto size = static_cast<std::size_t>(length);
  if (size < sizeof small) {
    write({small, size});
  } else {
    Vector<char> large(size + 1);
    std::vsnprintf(large.data(), large.size(), format, again);
    write({large.data(), size});
  }
  va_end(again);
}

}  // namespace cistern
