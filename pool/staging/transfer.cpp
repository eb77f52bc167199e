// See transfer.hpp.
#include "pool/staging/transfer.hpp"

#include <algorithm>

namespace cistern::staging {
namespace {

constexpr std::size_t kPieceBytesMin = std::size_t{256} << 10;
// How often a copy that may not wait looks at its own oldest chunk: for several times as long as a piece takes.
constexpr unsigned kLooksOfImpatient = 2000;

// The chunks of one copy, oldest first.
class ChunksInFlight {
 public:
  ChunksInFlight(Ring& ring, ChunkMaker& maker, Lane& lane) : ring_(ring), maker_(maker), lane_(lane) {}
  ChunksInFlight(const ChunksInFlight&) = delete;
  ChunksInFlight& operator=(const ChunksInFlight&) = delete;
  // Chunks that are in flight stay with the ring.
  ~ChunksInFlight() {
    for (; count_; --count_) ring_.give_marked(pop_front_only());
  }

  bool any() const { return count_ != 0; }
  bool full() const { return count_ == kChunksOfOneCopy; }
  void push(Chunk* chunk) { chunks_[(first_ + count_++) % kChunksOfOneCopy] = chunk; }
  Chunk* front() { return chunks_[first_]; }
  Chunk* pop() {
    Chunk* const chunk = pop_front_only();
    --count_;
    return chunk;
  }

  // Waits until the oldest has passed. No: the copy was interrupted, or it looked so often.
  ChunkMaker::Passed wait_for_oldest(unsigned looks_max) {
    for (unsigned looks = 0;; ++looks) {
      const ChunkMaker::Passed passed = maker_.passed(*front());
      if (passed != ChunkMaker::Passed::no) return passed;
      if (looks == looks_max || lane_.interrupted()) return passed;
      lane_.pause(looks);
    }
  }

 private:
  Chunk* pop_front_only() {
    Chunk* const chunk = chunks_[first_];
    first_ = (first_ + 1) % kChunksOfOneCopy;
    return chunk;
  }

  Ring& ring_;
  ChunkMaker& maker_;
  Lane& lane_;
  Chunk* chunks_[kChunksOfOneCopy] = {};
  unsigned first_ = 0, count_ = 0;
};

// The lane copies all that is left, from where the cutter is.
void pass_on_rest(Lane& lane, Cutter& cutter, Outcome& outcome, Rest why) {
  outcome.rest = why;
  while (cutter.left() && outcome.error == Error::none) outcome.error = lane.pass_on(cutter.next(SIZE_MAX));
}

// The chunk for the next piece on the way to the device.
Chunk* chunk_to_device(Ring& ring, ChunkMaker& maker, ChunksInFlight& chunks, Waits waits, bool& coming_through) {
  if (chunks.any() && chunks.wait_for_oldest(0) == ChunkMaker::Passed::yes) {
    coming_through = true;
    return chunks.pop();
  }
  if (!chunks.full())
    if (Chunk* const chunk = ring.take(maker)) return chunk;
  if (!chunks.any() || (waits == Waits::no && !coming_through)) return nullptr;
  const unsigned looks_max = waits == Waits::yes ? ~0u : kLooksOfImpatient;
  return chunks.wait_for_oldest(looks_max) == ChunkMaker::Passed::yes ? chunks.pop() : nullptr;
}

// Pieces are small at first: no piece is in flight while the first one is copied.
std::size_t growing(std::size_t done) { return std::clamp(done, kPieceBytesMin, kChunkBytes); }
// Pieces are small at last: no piece is in flight while the last one is copied.
std::size_t shrinking(std::size_t left) { return std::clamp(left / 4, kPieceBytesMin, kChunkBytes); }

// A piece lies in its chunk without gaps.
Side packed(char* memory, const Box& box) { return {memory, box.row_bytes, box.row_bytes * box.rows}; }

// False: the piece was not enqueued, or its end will not be known. Then it is copied once more, which does no harm.
bool send(Ring& ring, ChunkMaker& maker, Lane& lane, ChunksInFlight& chunks, Chunk* chunk, const Piece& piece) {
  if (lane.enqueue(piece, chunk->memory) != Error::none) {
    ring.give(chunk);
    return false;
  }
  if (lane.mark(*chunk) != Error::none) {
    ring.give_up(maker, chunk);
    return false;
  }
  chunks.push(chunk);
  return true;
}

// Enqueues the device's part of a piece to the host. Returns the reason if it does not.
Rest send_for_host(Ring& ring, ChunkMaker& maker, Lane& lane, ChunksInFlight& chunks, const Side& target,
                   const Piece& piece) {
  if (lane.interrupted()) return Rest::interrupted;
  if (!lane.may_touch(piece.of(target), piece.box)) return Rest::untouchable;
  Chunk* const chunk = ring.take(maker);
  if (!chunk) return Rest::no_chunk;
  return send(ring, maker, lane, chunks, chunk, piece) ? Rest::none : Rest::failed;
}

}  // namespace

Outcome copy_to_device(Ring& ring, ChunkMaker& maker, Lane& lane, const Side& source, const Box& box, Waits waits) {
  Outcome outcome;
  ChunksInFlight chunks(ring, maker, lane);
  Cutter cutter(box);
  bool coming_through = false;
  while (cutter.left()) {
    const Piece piece = cutter.next(growing(outcome.staged_bytes));
    const auto rest = [&](Rest why) {
      cutter.back_to(piece);
      pass_on_rest(lane, cutter, outcome, why);
      return outcome;
    };
    if (lane.interrupted()) return rest(Rest::interrupted);
    if (!lane.may_touch(piece.of(source), piece.box)) return rest(Rest::untouchable);
    Chunk* const chunk = chunk_to_device(ring, maker, chunks, waits, coming_through);
    if (!chunk) return rest(lane.interrupted() ? Rest::interrupted : Rest::no_chunk);
    if (!lane.copy(packed(chunk->memory, piece.box), piece.of(source), piece.box)) {
      ring.give(chunk);
      return rest(Rest::untouchable);
    }
    if (!send(ring, maker, lane, chunks, chunk, piece)) return rest(Rest::failed);
    outcome.staged_bytes += piece.box.bytes();
  }
  if (waits == Waits::yes)
    while (chunks.any() && chunks.wait_for_oldest(~0u) == ChunkMaker::Passed::yes) ring.give(chunks.pop());
  return outcome;
}

Outcome copy_to_host(Ring& ring, ChunkMaker& maker, Lane& lane, const Side& target, const Box& box) {
  Outcome outcome;
  ChunksInFlight chunks(ring, maker, lane);
  Cutter ahead(box), behind(box);  // cut alike: what is enqueued, and what was copied out
  Rest why = Rest::none;           // else no further piece is enqueued
  while (behind.left()) {
    while (why == Rest::none && ahead.left() && !chunks.full()) {
      const Piece piece = ahead.next(shrinking(ahead.left()));
      why = send_for_host(ring, maker, lane, chunks, target, piece);
      if (why != Rest::none) ahead.back_to(piece);
    }
    if (!chunks.any()) break;
    if (why == Rest::no_chunk) why = Rest::none;  // one of its own chunks comes back now
    const ChunkMaker::Passed passed = chunks.wait_for_oldest(~0u);
    if (passed != ChunkMaker::Passed::yes) {
      why = passed == ChunkMaker::Passed::no ? Rest::interrupted : Rest::failed;
      break;
    }
    const Piece piece = behind.next(shrinking(behind.left()));
    Chunk* const chunk = chunks.pop();
    const bool copied = lane.copy(piece.of(target), packed(chunk->memory, piece.box), piece.box);
    ring.give(chunk);
    if (!copied) {
      behind.back_to(piece);
      why = Rest::untouchable;
      break;
    }
    outcome.staged_bytes += piece.box.bytes();
  }
  pass_on_rest(lane, behind, outcome, why);
  return outcome;
}

}  // namespace cistern::staging
