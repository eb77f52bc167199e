// A text as gzip (RFC 1952), by zlib.
#pragma once
#include <string>
#include <string_view>

namespace cistern::formats {

// The same bytes for the same text: its header names no time.
std::string gzip(std::string_view text);

}  // namespace cistern::formats
