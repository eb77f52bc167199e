// How a request gets a chunk, whatever the memory is, and what a call does that is out of memory.
//
//   acquire(pool, request, now) -> take_kept -> the pool's chunk with this key, else one that is a little larger
//                               -> request.acquire_new(): a new chunk from the source, by with_room
//   with_room(room, call)    -> call -> out of memory: room.make() gives all kept chunks back to the source, and waits
//                               for threads that give some back -> call again, as long as anything went back
#pragma once
#include <concepts>
#include <cstdint>
#include <optional>
#include <utility>

#include "pool/source.hpp"

namespace cistern {

// The kept memory that can go back so that a call has room. `given_back()` is how often memory went back to the source,
// by any thread; it only grows. `make()` gives memory back, and waits for other threads that do. It returns true if
// memory may have come free that this number does not count.
template <class R, class Answer>
concept RoomFor = requires(R& room, const Answer& answer) {
  { room.out_of_memory(answer) } -> std::same_as<bool>;
  { room.given_back() } -> std::same_as<std::uint64_t>;
  { room.make() } -> std::same_as<bool>;
};

constexpr int kTriesMax = 100;  // others may put memory aside again each time

// A call has really failed only if no memory went back to the source since it began, and none is left to give back.
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

// One request to a pool. `bytes_max()` is the size of the largest chunk that may serve it, asked if there is none with
// the key. `is_there(chunk)` is false if the chunk's memory is gone, with its context for example; the request has
// disposed of the chunk then. `acquire_new()` gets a new chunk from the source, by with_room.
template <class R, class Pool>
concept PoolRequest = requires(R& request, typename Pool::Chunk chunk) {
  { request.key } -> std::convertible_to<typename Pool::Key>;
  { request.bytes_max() } -> std::same_as<std::uint64_t>;
  { request.is_there(chunk) } -> std::same_as<bool>;
  { request.acquire_new() } -> std::same_as<typename Pool::Answer>;
};

template <class Answer>
struct Allocated {
  Answer result;
  bool hit;
};

// A kept chunk for the request; nothing: none fits.
template <class Pool, class Request>
std::optional<typename Pool::Chunk> take_kept(Pool& pool, Request&& request, std::uint64_t now_ns) {
  for (;;) {
    auto chunk = pool.take(request.key, now_ns);
    if (!chunk) [[unlikely]]
      if (const std::uint64_t bytes_max = request.bytes_max(); bytes_max > request.key.bytes)
        chunk = pool.take_near(request.key, bytes_max);
    if (!chunk || request.is_there(*chunk)) [[likely]]
      return chunk;
  }
}

template <class Pool, class Request>
Allocated<typename Pool::Answer> acquire(Pool& pool, Request&& request, std::uint64_t now_ns) {
  static_assert(PoolRequest<Request, Pool>);
  if (const auto chunk = take_kept(pool, request, now_ns)) [[likely]]
    return {{*chunk, {}, true}, true};
  return {request.acquire_new(), false};
}

}  // namespace cistern
