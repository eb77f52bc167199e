// See ring.hpp.
#include "pool/staging/ring.hpp"

#include <algorithm>
#include <new>

namespace cistern::staging {

Chunk* Ring::take_idle() {
  Locked hold(lock_);
  if (idle_.empty()) return nullptr;
  Chunk* const chunk = idle_.back();
  idle_.pop_back();
  return chunk;
}

// False: it is forgotten, and gone now.
bool Ring::put_back(Vector<Chunk*>& where, std::size_t at, Chunk* chunk) {
  Locked hold(lock_);
  if (chunk->epoch == epoch_.load()) {
    where.insert(where.begin() + static_cast<std::ptrdiff_t>(std::min(at, where.size())), chunk);
    return true;
  }
  internal_deallocate(chunk, sizeof(Chunk));
  return false;
}

// One stream may be far behind another, so all are looked at; each is out of the list meanwhile.
Chunk* Ring::take_passed(ChunkMaker& maker) {
  for (std::size_t at = 0;;) {
    Chunk* chunk = nullptr;
    {
      Locked hold(lock_);
      if (at >= marked_.size()) return nullptr;
      chunk = marked_[at];
      marked_.erase(marked_.begin() + static_cast<std::ptrdiff_t>(at));
    }
    const ChunkMaker::Passed passed = maker.passed(*chunk);
    if (passed == ChunkMaker::Passed::yes && chunk->epoch == epoch_.load()) return chunk;
    if (passed == ChunkMaker::Passed::failed)
      unmake(maker, chunk, false);
    else if (put_back(marked_, at, chunk))
      ++at;
  }
}

Chunk* Ring::make(ChunkMaker& maker) {
  {
    Locked hold(lock_);
    if (count_ == kChunksMax) return nullptr;
    ++count_;
  }
  auto* const chunk = new (internal_allocate(sizeof(Chunk))) Chunk;
  chunk->epoch = epoch_.load();
  if (maker.make(*chunk)) return chunk;
  internal_deallocate(chunk, sizeof(Chunk));
  Locked hold(lock_);
  if (count_) --count_;
  return nullptr;
}

void Ring::unmake(ChunkMaker& maker, Chunk* chunk, bool passed) {
  const bool known = chunk->epoch == epoch_.load();
  if (known) maker.unmake(*chunk, passed);
  internal_deallocate(chunk, sizeof(Chunk));
  if (!known) return;
  Locked hold(lock_);
  if (count_) --count_;
}

Chunk* Ring::take(ChunkMaker& maker) {
  if (Chunk* const chunk = take_idle()) return chunk;
  if (Chunk* const chunk = take_passed(maker)) return chunk;
  return make(maker);
}

void Ring::give(Chunk* chunk) { put_back(idle_, SIZE_MAX, chunk); }
void Ring::give_marked(Chunk* chunk) { put_back(marked_, SIZE_MAX, chunk); }
void Ring::give_up(ChunkMaker& maker, Chunk* chunk) { unmake(maker, chunk, false); }

std::size_t Ring::trim(ChunkMaker& maker) {
  while (Chunk* const chunk = take_passed(maker)) give(chunk);
  std::size_t bytes = 0;
  for (; Chunk* const chunk = take_idle(); bytes += kChunkBytes) unmake(maker, chunk, true);
  return bytes;
}

void Ring::empty(ChunkMaker& maker) {
  trim(maker);
  Vector<Chunk*> marked;
  {
    Locked hold(lock_);
    marked.swap(marked_);
  }
  for (Chunk* chunk : marked) unmake(maker, chunk, false);
}

void Ring::forget() {
  Locked hold(lock_);
  epoch_.fetch_add(1);
  for (Vector<Chunk*>* const chunks : {&idle_, &marked_}) {
    for (Chunk* const chunk : *chunks) internal_deallocate(chunk, sizeof(Chunk));
    chunks->clear();
  }
  count_ = 0;
}

// Another thread may have been in the middle of a change: its chunks are left where they are.
void Ring::forget_in_child() {
  new (&lock_) Lock;
  for (Vector<Chunk*>* const chunks : {&idle_, &marked_}) new (chunks) Vector<Chunk*>;
  forget();
}

Ring::Figures Ring::figures() {
  Locked hold(lock_);
  return {count_, static_cast<unsigned>(idle_.size()), static_cast<unsigned>(marked_.size())};
}

}  // namespace cistern::staging
