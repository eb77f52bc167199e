// The tables of the text report: device memory, pools, fragmentation, transfers. Each writes nothing where it has
// nothing.
#pragma once
#include "stats/sink.hpp"
#include "stats/snapshot.hpp"

namespace cistern {

void write_device_memory(const Snapshot& snapshot, Sink& sink);
void write_device_ranges(const Snapshot& snapshot, Sink& sink);
void write_contexts(const Snapshot& snapshot, Sink& sink);
void write_pools(const Snapshot& snapshot, Sink& sink);
void write_library_pools(const Snapshot& snapshot, Sink& sink);
void write_sizes(const Snapshot& snapshot, Sink& sink);
void write_fragmentation(const Snapshot& snapshot, Sink& sink);
void write_waits(const Snapshot& snapshot, Sink& sink);
void write_staging(const Snapshot& snapshot, Sink& sink);
void write_gathered(const Snapshot& snapshot, Sink& sink);
void write_transfers(const Snapshot& snapshot, Sink& sink);

}  // namespace cistern
