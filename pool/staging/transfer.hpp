// One copy through the ring: the order of its steps, in both directions.
//
//   to the device  piece by piece: copied into a chunk, enqueued on the caller's stream, marked. The source was read
//                  when the call returns.
//   to the host    pieces are enqueued ahead, and copied out of their chunks in order, each when its mark has passed
//
// In four cases (Rest) the lane makes the rest of the copy by the driver's own call, on the same stream and in its
// place. There is no chunk, or the memory may not be touched or goes meanwhile, or another thread interrupts, or a
// piece could not be enqueued or marked. A copy waits for its own chunks only. If it may not wait for the device, it
// waits only while its own earlier pieces come through.
#pragma once
#include "pool/staging/cutter.hpp"
#include "pool/staging/ring.hpp"

namespace cistern::staging {

enum class Error : int { none = 0 };  // else the driver's

// One copy's part that knows the driver: the caller's stream, the host's memory and the device's.
class Lane {
 public:
  // Copies between the chunk and the device's part of the piece, asynchronously.
  virtual Error enqueue(const Piece& piece, char* chunk) = 0;
  // Sets the chunk's mark behind what was enqueued.
  virtual Error mark(Chunk& chunk) = 0;
  // The native copy of a piece; or nothing if the piece is the whole copy, which the caller then makes.
  virtual Error pass_on(const Piece& piece) = 0;
  // Whether the host's part may be touched as the copy will touch it.
  virtual bool may_touch(const Side& side, const Box& box) = 0;
  // Whether another thread, or the end of the process, waits for the copy to end: the rest is passed on then.
  virtual bool interrupted() = 0;
  // Copies by the processor, between the host's memory and a chunk. False: some of the host's part is not mapped any
  // more.
  virtual bool copy(const Side& to, const Side& from, const Box& box) = 0;
  // Between two looks at a mark.
  virtual void pause(unsigned looks) = 0;

 protected:
  ~Lane() = default;
};

// The reason why a part of the copy did not go through chunks.
enum class Rest : unsigned char { none, no_chunk, untouchable, interrupted, failed };

struct Outcome {
  Error error = Error::none;
  std::size_t staged_bytes = 0;
  Rest rest = Rest::none;
};

// Whether the copy may wait until the device has done its part.
enum class Waits : bool { no, yes };

Outcome copy_to_device(Ring& ring, ChunkMaker& maker, Lane& lane, const Side& source, const Box& box, Waits waits);
Outcome copy_to_host(Ring& ring, ChunkMaker& maker, Lane& lane, const Side& target, const Box& box);

}  // namespace cistern::staging
