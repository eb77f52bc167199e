// The chunks of this process's recording: taken, given back, thinned; the file behind them grows as they are needed.
#pragma once
#include <span>

#include "stats/recording.hpp"

namespace cistern::recording {

// A fresh chunk, which counts as soon as its kind is set. Null: there is none. Takes the locks of chunks and slots.
ChunkHead* take_chunk();
// One that was taken in vain.
void give_back_chunk(ChunkHead& chunk);
// Its first event or definition comes next.
void begin_chunk(ChunkHead& chunk, ChunkKind kind, std::uint64_t now);

// Nothing was recorded that should have been.
void count_lost();
// Nothing is recorded from now on.
void note_stopped();

void plan_chunks(const Plan* plan);
void forget_chunks_in_child(const Plan& plan);
void leave_chunks_in_child();

// --- What the slots do for it (recording.cpp)
// Both false: a signal handler forks that interrupted a thread with a slot, which is not waited for.
// No slot is in the middle of an event that it began earlier.
bool pass_all_slots();
// Slots with one of these chunks let go of it.
bool detach_slots_from(std::span<ChunkHead* const> chunks);

}  // namespace cistern::recording
