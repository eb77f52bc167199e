// See gzip.hpp.
#include "stats/formats/gzip.hpp"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <new>

namespace cistern::formats {

std::string gzip(std::string_view text) {
  constexpr int kGzip = 16, kLargestWindow = 15, kMemory = 8;
  z_stream stream = {};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzip + kLargestWindow, kMemory, Z_DEFAULT_STRATEGY) !=
      Z_OK)
    throw std::bad_alloc();
  std::string packed;
  unsigned char part[1 << 16];
  int state = Z_OK;
  do {
    if (!stream.avail_in) {  // zlib counts in 32 bits
      const auto bytes = std::min<std::size_t>(text.size(), std::numeric_limits<uInt>::max());
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
      stream.avail_in = static_cast<uInt>(bytes);
      text.remove_prefix(bytes);
    }
    stream.next_out = part;
    stream.avail_out = sizeof part;
    state = deflate(&stream, text.empty() ? Z_FINISH : Z_NO_FLUSH);
    packed.append(reinterpret_cast<char*>(part), sizeof part - stream.avail_out);
  } while (state != Z_STREAM_END);
  deflateEnd(&stream);
  return packed;
}

}  // namespace cistern::formats
