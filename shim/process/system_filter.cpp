// See system_filter.hpp.
#include "shim/process/system_filter.hpp"

#include "pool/heap/region.hpp"
#include "stats/recording.hpp"
#include "stats/sites.hpp"

namespace cistern {

void note_system_filter() {
  if (system_filter::set.exchange(true)) return;
  host_pool::use_few_system_calls();
  sites_use_few_system_calls();
  recording::stop();
}

}  // namespace cistern
