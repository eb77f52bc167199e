// See sink.hpp.
#include "stats/sink.hpp"

namespace cistern {

void Sink::print_any(fmt::string_view format, fmt::format_args arguments) {
  fmt::basic_memory_buffer<char, 512, InternalAllocator<char>> text;
  fmt::vformat_to(std::back_inserter(text), format, arguments);
  write({text.data(), text.size()});
}

}  // namespace cistern
