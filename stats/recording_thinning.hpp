// Thinning: of the oldest chunks of a recording, what must stay. Up to a moment it is the blocks that were live then:
// an allocation and its free that both came before go together, and so do copies and failed requests. A pure function
// of the chunks.
#pragma once
#include <optional>
#include <span>

#include "stats/recording_format.hpp"

namespace cistern::recording {

struct Thinned {
  std::size_t chunks;  // used of `into`, not committed yet to an epoch
  std::uint64_t dropped_events;
};

// `batch`: by their first moment; every event of the recording that is earlier than `until` is in them. They stay as
// they are. `into`: fresh chunks. Nothing: these are too few, or memory is exhausted.
std::optional<Thinned> thin(std::span<ChunkHead* const> batch, std::uint64_t until, std::span<ChunkHead* const> into);

}  // namespace cistern::recording
