// How a pool's chunk is got, whatever the memory is; and what a call does that is out of memory.
//
//   acquire(pool, want, now) -> the pool's chunk with this key, else one that is a little larger
//                            -> with_room(a new chunk from the source)
//   with_room(room, call)    -> call -> out of memory: all that is kept goes back, what other threads are giving back
//                               is waited for -> call again, for as long as anything goes back
#pragma once
#include <concepts>
#include <cstdint>
#include <optional>
#include <utility>

#include "pool/source.hpp"

namespace cistern {

// What can be given back so that a call has room. `given_back()` only grows: how often memory has gone back to the
// source, by whatever thread. `make()` gives back, and waits for those that do: true when something may have come free
// that is not in that number.
template <class R, class Answer>
concept RoomFor = requires(R& room, const Answer& answer) {
  { room.out_of_memory(answer) } -> std::same_as<bool>;
  { room.given_back() } -> std::same_as<std::uint64_t>;
  { room.make() } -> std::same_as<bool>;
};

constexpr int kTriesMax = 100;  // others may put memory aside again each time

// A call is out of memory when nothing was given back since it was made, and nothing is left to give.
template <class Room, class Call>
auto with_room(Room&& room, Call call) {
  static_assert(RoomFor<Room, decltype(call())>);
  for (int tries = 0;; ++tries) {
    const std::uint64_t before = room.given_back();
    auto answer = call();
    if (!room.out_of_memory(answer) || tries == kTriesMax) [[likely]]
      return answer;
    if (!room.make() && room.given_back() == before) return answer;
  }
}

// What one allocation wants of a pool. `bytes_max()`: of the largest chunk that will do; asked when there is none with
// the key. `is_there(chunk)`: false for one whose memory went while it was kept; the want has disposed of it.
// `acquire()`: from the source, with room.
template <class W, class Pool>
concept WantOf = requires(W& want, typename Pool::Chunk chunk) {
  { want.key } -> std::convertible_to<typename Pool::Key>;
  { want.bytes_max() } -> std::same_as<std::uint64_t>;
  { want.is_there(chunk) } -> std::same_as<bool>;
  { want.acquire() } -> std::same_as<typename Pool::Answer>;
};

template <class Answer>
struct Allocated {
  Answer result;
  bool hit;
};

// Of what the pool keeps, if anything will do.
template <class Pool, class Want>
std::optional<typename Pool::Chunk> take_kept(Pool& pool, Want&& want, std::uint64_t now_ns) {
  for (;;) {
    auto chunk = pool.take(want.key, now_ns);
    if (!chunk) [[unlikely]]
      if (const std::uint64_t bytes_max = want.bytes_max(); bytes_max > want.key.bytes)
        chunk = pool.take_near(want.key, bytes_max);
    if (!chunk || want.is_there(*chunk)) [[likely]]
      return chunk;
  }
}

template <class Pool, class Want>
Allocated<typename Pool::Answer> acquire(Pool& pool, Want&& want, std::uint64_t now_ns) {
  static_assert(WantOf<Want, Pool>);
  if (const auto chunk = take_kept(pool, want, now_ns)) [[likely]]
    return {{*chunk, {}, true}, true};
  return {want.acquire(), false};
}

}  // namespace cistern
