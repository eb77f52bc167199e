// memcpy whose stores may pass the caches by. Data that a device is about to read then does not push out the data that
// the program works with, and a line that is written whole is not read first. The caller measures which of the two is
// faster, since that depends on the machine.
#pragma once
#include <cstddef>

namespace cistern::staging {

enum class Stores : unsigned char { cached, streaming };

// Any alignment, any size. The stores are ordered before all later ones of the thread, as a driver's doorbell is.
void streaming_copy(void* to, const void* from, std::size_t bytes, Stores stores);

}  // namespace cistern::staging
