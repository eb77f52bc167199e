// Numbers and strings as reports write them. Independent of the program's locale, which would put commas into JSON.
#pragma once
#include <cstdint>
#include <string_view>

#include "pool/base/internal_memory.hpp"

namespace cistern {

// "12.50": rounded to `digits` places.
String decimal(double value, int digits);
// "1,234,567".
String grouped(std::uint64_t count);
// "512 B", "48.0 MiB".
String human_bytes(std::uint64_t bytes);
// "1 block", "3 blocks".
String counted(std::uint64_t count, std::string_view noun);

// A JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD.
String json_string(std::string_view text);
// For a terminal: control characters become '?', and text longer than `bytes_max` ends in "...".
String printable(std::string_view text, std::size_t bytes_max = SIZE_MAX);

}  // namespace cistern
