// See system_filter.hpp.
#include "shim/core/system_filter.hpp"

#include "pool/host_region.hpp"

namespace cistern {

void note_system_filter() {
  if (!system_filter::set.exchange(true)) host_pool::use_few_system_calls();
}

}  // namespace cistern
