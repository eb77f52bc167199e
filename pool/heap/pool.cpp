// See pool.hpp.
#include "pool/heap/pool.hpp"

namespace cistern::host_pool {

constinit HostPool the_pool = {};

}  // namespace cistern::host_pool
