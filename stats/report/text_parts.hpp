// The elements of all parts of the text report: times, shares, and the frames of a site.
#pragma once
#include <cstddef>

#include "stats/sink.hpp"
#include "stats/snapshot.hpp"

namespace cistern {

inline constexpr std::size_t kFramesFull = 8, kFramesShort = 3;
inline constexpr std::size_t kPathBytesShown = 160;

// "2.50 s"
String seconds(double value);
// "12.5 ms", "2.50 s"
String duration(double value);
// "12.5 %"
String percent(double ratio);
// "48.0 MiB in 3"; "-" without blocks.
String blocks_and_bytes(std::uint64_t blocks, std::uint64_t bytes);
String bytes_in_blocks(std::uint64_t blocks, std::uint64_t bytes);  // "2.0 MiB in 1 block"
// "97.0", of a hundred; "-" where nothing was asked for.
String hit_rate(std::uint64_t hits, std::uint64_t allocations);

// One line a frame, leaf first, not further out than main; one line for all that are folded. If there are several
// `stacks`, these are the frames of one.
void write_frames(const Vector<FrameFigures>& all, std::size_t frames_max, Sink& sink, std::size_t stacks = 1);
// The same lines without the counts of frames that are left out. If they are equal, a reader cannot tell two stacks
// apart.
String shown_frames(const Vector<FrameFigures>& all, std::size_t frames_max);

}  // namespace cistern
