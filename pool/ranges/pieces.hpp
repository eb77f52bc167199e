// The pieces of physical memory that are mapped into a range, by address, and the calls that map and unmap them.
//
// A piece is unmapped as a whole.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <utility>

#include "pool/base/internal_memory.hpp"
#include "pool/ranges/extents.hpp"
#include "pool/ranges/range_source.hpp"

namespace cistern::ranges {

template <class Handle>
struct Piece {
  std::uint64_t bytes;
  Handle handle;
  bool is_retiring = false;  // a part of it was retired
};

// Guarded by the pool's lock.
template <class Handle>
class Pieces {
 public:
  using Entry = std::pair<const std::uint64_t, Piece<Handle>>;
  using Taken = Vector<std::pair<std::uint64_t, Piece<Handle>>>;

  void insert(const Taken& pieces) { all_.insert(pieces.begin(), pieces.end()); }

  // Calls visit(address, piece) for those that have a part of these addresses.
  template <class Visit>
  void for_each_in(std::uint64_t first, std::uint64_t end, Visit visit) {
    auto at = all_.upper_bound(first);
    if (at != all_.begin() && std::prev(at)->first + std::prev(at)->second.bytes > first) --at;
    for (; at != all_.end() && at->first < end; ++at) visit(at->first, at->second);
  }
  Piece<Handle>* find(std::uint64_t first) {
    const auto found = all_.find(first);
    return found == all_.end() ? nullptr : &found->second;
  }
  void erase(std::uint64_t first) { all_.erase(first); }
  // The bytes of pieces that lie between these addresses. Memory is mapped there without a gap.
  std::uint64_t bytes_within(std::uint64_t first, std::uint64_t end) const {
    const auto from = all_.lower_bound(first);
    auto last = all_.lower_bound(end);
    while (last != from && std::prev(last)->first + std::prev(last)->second.bytes > end) --last;
    return last == from ? 0 : std::prev(last)->first + std::prev(last)->second.bytes - from->first;
  }

  // Takes pieces side by side that lie between these addresses, until they have so many bytes.
  Taken take(std::uint64_t first, std::uint64_t end, std::uint64_t bytes) {
    Taken taken;
    auto at = all_.lower_bound(first);
    const auto fits = [&] { return at != all_.end() && at->first + at->second.bytes <= end; };
    for (std::uint64_t found = 0; fits() && found < bytes; at = all_.erase(at)) {
      taken.push_back(*at);
      found += at->second.bytes;
    }
    return taken;
  }

 private:
  std::map<std::uint64_t, Piece<Handle>, std::less<>, InternalAllocator<Entry>> all_;
};

struct MapFigures {
  std::uint64_t moved, creates, maps, accesses, unmaps, destroys, lost_bytes;
  std::uint64_t driver_calls() const { return creates + maps + accesses + unmaps + destroys; }
  void operator+=(const MapFigures& more) {
    moved += more.moved;
    creates += more.creates;
    maps += more.maps;
    accesses += more.accesses;
    unmaps += more.unmaps;
    destroys += more.destroys;
    lost_bytes += more.lost_bytes;
  }
};

// The work of one thread that moves out, creates and maps pieces, without the pool's lock. Its extents are busy
// meanwhile.
template <RangeSource S>
class Mapping {
 public:
  using Error = typename S::Error;
  using Taken = typename Pieces<typename S::Handle>::Taken;
  explicit Mapping(S& source) : source_(source) {}

  // Pieces side by side that are to be unmapped, and the extent they fill.
  struct Run {
    Extent* extent;
    Taken pieces;
    bool unmapped = false;
  };
  Vector<Run> runs;
  Taken mapped;  // by fill()
  MapFigures figures{};

  // Their pieces are spare then. Returns the bytes.
  std::uint64_t unmap_runs() {
    std::uint64_t bytes = 0;
    for (Run& run : runs) {
      ++figures.unmaps;
      run.unmapped = !source_.failed(source_.unmap(run.extent->first, run.extent->bytes));
      if (!run.unmapped) continue;
      spare_.insert(spare_.end(), run.pieces.begin(), run.pieces.end());
      bytes += run.extent->bytes;
    }
    return bytes;
  }

  // Maps memory at all these addresses: spare pieces that fit, and new ones of at most so many bytes. If it takes
  // several new ones, and there is no room for all, none is made: whoever asks the driver meanwhile would find no
  // memory.
  Error fill(std::uint64_t first, std::uint64_t end, std::uint64_t piece_bytes_max) {
    std::uint64_t missing = end - first;
    for (const auto& [at, piece] : spare_) missing -= std::min(missing, piece.bytes);
    if (missing > piece_bytes_max && !source_.has_room(missing)) return source_.no_room();
    for (std::uint64_t at = first; at < end;) {
      const auto piece = next(end - at, piece_bytes_max);
      if (!piece.ok) return piece.error;
      ++figures.maps;
      if (const Error error = source_.map(at, piece.chunk.bytes, piece.chunk.handle); source_.failed(error)) {
        spare_.push_back({at, piece.chunk});
        return error;
      }
      mapped.push_back({at, piece.chunk});
      at += piece.chunk.bytes;
    }
    ++figures.accesses;
    return source_.allow_access(first, end - first);
  }

  // Memory that could not be unmapped stays as it is, and is lost. Returns its bytes.
  std::uint64_t undo() {
    std::uint64_t lost = 0;
    for (const auto& [first, piece] : mapped) {
      ++figures.unmaps;
      if (source_.failed(source_.unmap(first, piece.bytes)))
        lost += piece.bytes;
      else
        spare_.push_back({first, piece});
    }
    mapped.clear();
    figures.lost_bytes += lost;
    return lost;
  }
  // Unmaps these pieces, which fill no extent of the pool any more.
  std::uint64_t undo(Taken pieces) {
    mapped = std::move(pieces);
    return undo();
  }

  void destroy_spare() {
    for (const auto& [first, piece] : spare_) source_.destroy(piece.handle);
    figures.destroys += spare_.size();
    spare_.clear();
  }

 private:
  // The largest spare one that fits, or a new one.
  Acquired<Piece<typename S::Handle>, Error> next(std::uint64_t bytes, std::uint64_t piece_bytes_max) {
    auto best = spare_.end();
    for (auto at = spare_.begin(); at != spare_.end(); ++at)
      if (at->second.bytes <= bytes && (best == spare_.end() || at->second.bytes > best->second.bytes)) best = at;
    if (best != spare_.end()) {
      const auto piece = best->second;
      spare_.erase(best);
      ++figures.moved;
      return {piece, {}, true};
    }
    const std::uint64_t most = std::min(bytes, piece_bytes_max);
    ++figures.creates;
    const auto made = source_.create(most);
    return {{most, made.chunk}, made.error, made.ok};
  }

  S& source_;
  Taken spare_;
};

}  // namespace cistern::ranges
