// A library that calls back. Built several times: with another function name and the same code, or another frame.
#include <cstddef>

#ifndef PLUGIN_FRAME_BYTES
#define PLUGIN_FRAME_BYTES 16
#endif

extern "C" [[gnu::visibility("default"), gnu::noinline]] unsigned PLUGIN_FUNCTION(unsigned (*callback)()) {
  volatile char frame[PLUGIN_FRAME_BYTES];
  for (std::size_t i = 0; i < sizeof frame; ++i) frame[i] = 1;
  const unsigned answer = callback();
  return answer + frame[0] - 1;
}
