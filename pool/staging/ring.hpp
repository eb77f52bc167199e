// The ring: chunks of pinned memory that copies go through, shared by all streams of a context.
//
//   take  -> a chunk that nobody uses -> one whose mark has passed, oldest first -> a new one, up to a limit -> none
//   give         back, unused
//   give_marked  back, once its mark has passed: work that was enqueued with it before the mark may still be in flight
//
// No thread waits here. The device is never called under the lock.
//
// Room: copies through bounce buffers: the ring, the order of a copy, which way pays, the processor's part.
// May include: pool/base.
#pragma once
#include <cstdint>

#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"

namespace cistern::staging {

constexpr std::size_t kChunkBytes = std::size_t{2} << 20;
constexpr unsigned kChunksMax = 32, kChunksOfOneCopy = 8;

struct Chunk {
  char* memory = nullptr;
  // The device's own: its object for the memory, and the mark.
  void* block = nullptr;
  void* event = nullptr;
  unsigned epoch = 0;  // the ring's epoch when the chunk was made
};

// The ring's demands on a device: its chunks, made in the context that the ring belongs to.
class ChunkMaker {
 public:
  // Memory of kChunkBytes and a mark that can be set; false: not to be had now.
  virtual bool make(Chunk& chunk) = 0;
  // `passed`: no work uses the chunk any more; else that is not known.
  virtual void unmake(Chunk& chunk, bool passed) = 0;
  enum class Passed { yes, no, failed };  // failed: it will not be told, the context may be broken
  virtual Passed passed(const Chunk& chunk) = 0;

 protected:
  ~ChunkMaker() = default;
};

class Ring {
 public:
  Ring() = default;
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  Chunk* take(ChunkMaker& maker);
  void give(Chunk* chunk);
  void give_marked(Chunk* chunk);
  // Its end will never be known: it leaves the ring.
  void give_up(ChunkMaker& maker, Chunk* chunk);

  // Chunks that no copy or work uses go back; those in a copy's hands stay.
  // Returns their bytes.
  std::size_t trim(ChunkMaker& maker);
  // All but those in a copy's hands leave the ring: the context ends.
  void empty(ChunkMaker& maker);
  // The memory went with its context, or is another process's: nothing is called, for those in a copy's hands neither.
  void forget();
  // In a forked child: another thread may have been in here.
  void forget_in_child();

  // By the caller's clock: when a copy went through it last.
  void note_use(std::uint64_t now_ns) { used_ns_.store(now_ns, std::memory_order_relaxed); }
  std::uint64_t used_ns() const { return used_ns_.load(std::memory_order_relaxed); }

  struct Figures {
    unsigned chunks, idle, marked;
  };
  Figures figures();

 private:
  Chunk* take_idle();
  Chunk* take_passed(ChunkMaker& maker);
  Chunk* make(ChunkMaker& maker);
  void unmake(ChunkMaker& maker, Chunk* chunk, bool passed);
  bool put_back(Vector<Chunk*>& where, std::size_t at, Chunk* chunk);

  Lock lock_;
  Vector<Chunk*> idle_;
  Vector<Chunk*> marked_;  // oldest first
  unsigned count_ = 0;
  std::atomic<std::uint64_t> used_ns_{0};
  std::atomic<unsigned> epoch_{0};  // changes when all is forgotten
};

}  // namespace cistern::staging
