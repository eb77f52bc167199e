// memcpy whose stores may pass the caches by: what a device is about to read need not push out what the program works
// with, and a line that is written whole need not be read first. Which of the two is faster is for whoever copies to
// measure: it depends on the machine.
#pragma once
#include <cstddef>

namespace cistern::staging {

enum class Stores : unsigned char { cached, streaming };

// Any alignment, any size. The stores are ordered before all later ones of the thread, as a driver's doorbell is.
void streaming_copy(void* to, const void* from, std::size_t bytes, Stores stores);

}  // namespace cistern::staging
