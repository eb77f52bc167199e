// Actor: host blocks of all sizes, made by one thread and often freed by another. A block's first words are what a walk
// over free lists must not believe: pointers to live, freed and inner blocks, to no memory, and garbage. Its last word
// must be unchanged when it is freed.
#include <malloc.h>
#include <sys/mman.h>

#include <cstring>
#include <new>

#include "tests/storm/storm.hpp"

namespace storm {
namespace {

constexpr unsigned kPlaces = 6000;

// A place holds a whole block or nothing at any moment, so at that of a fork too. The size lies apart from the block.
struct Held {
  char* start;
  size_t bytes;
};
std::atomic<Held*> places[kPlaces];
std::atomic<void*> recent[64];  // addresses of blocks, freed meanwhile or not

// There before threads are: a child of a thread that forks beside a first use would wait for it.
void* const unreadable_page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

uintptr_t misleading_word(Random& random, const void* own) {
  const auto near = reinterpret_cast<uintptr_t>(random.below(3) ? recent[random.below(64)].load() : own);
  switch (random.below(9)) {
    case 0:
      return near;
    case 1:
      return near + 16 * random.below(64);
    case 2:
      return near + random.below(64);
    case 3:
      return near & ~uintptr_t{0xffff};
    case 4:
      return reinterpret_cast<uintptr_t>(own);  // a list that never ends
    case 5:
      return reinterpret_cast<uintptr_t>(unreadable_page) + 8 * random.below(512);
    case 6:
      return random.next();
    case 7:
      return random.below(5000);
    default:
      return near ^ (uintptr_t{1} << random.below(64));
  }
}

size_t random_size(Random& random) {
  const uint32_t draw = random.below(1000);
  if (draw < 750) return 16 + random.below(400);
  if (draw < 950) return 16 + random.below(8000);
  if (draw < 995) return 16 + random.below(100000);
  return 16 + random.below(3000000);
}

size_t mark_of(const Held& held) { return held.bytes * 0x9e3779b97f4a7c15u; }

void fill(const Held& held, Random& random) {
  const uintptr_t words[2] = {misleading_word(random, held.start), misleading_word(random, held.start)};
  memcpy(held.start, words, random.below(2) && held.bytes >= 24 ? 16 : 8);
  const size_t mark = mark_of(held);
  memcpy(held.start + held.bytes - sizeof mark, &mark, sizeof mark);
  recent[random.below(64)].store(held.start);
}

void require_whole(const Held& held) {
  size_t mark;
  memcpy(&mark, held.start + held.bytes - sizeof mark, sizeof mark);
  if (mark != mark_of(held)) fail("the block %p of %zu bytes changed", static_cast<void*>(held.start), held.bytes);
}

void* allocated(size_t bytes, Random& random) {
  switch (random.below(10)) {
    case 0:
      return calloc(1, bytes);
    case 1:
      return aligned_alloc(size_t{16} << random.below(9), bytes);
    case 2:
      return reallocarray(nullptr, bytes, 1);
    case 3: {
      void* block = nullptr;
      return posix_memalign(&block, 64, bytes) ? nullptr : block;
    }
    default:
      return malloc(bytes);
  }
}

Held* make(Random& random) {
  const size_t bytes = random_size(random);
  Held* const held = new Held{static_cast<char*>(allocated(bytes, random)), bytes};
  if (!held->start) fail("no block of %zu bytes", bytes);
  fill(*held, random);
  return held;
}

// Freed blocks keep a misleading first word where the allocator does not put one of its own.
void end(Held* held, Random& random) {
  if (!held) return;
  require_whole(*held);
  const uintptr_t word = misleading_word(random, held->start);
  memcpy(held->start, &word, sizeof word);
  free(held->start);
  delete held;
}

void resize(Held* held, Random& random) {
  require_whole(*held);
  const size_t bytes = random_size(random);
  void* const moved = realloc(held->start, bytes);
  if (!moved) fail("no block of %zu bytes", bytes);
  *held = {static_cast<char*>(moved), bytes};
  fill(*held, random);
}

void step(Random& random) {
  std::atomic<Held*>& place = places[random.below(kPlaces)];
  Held* held = place.exchange(nullptr);
  if (held && random.below(8) == 0) {
    if (malloc_usable_size(held->start) < held->bytes) fail("%p has not its size", static_cast<void*>(held->start));
    resize(held, random);
  } else {
    end(held, random);
    held = random.below(8) ? make(random) : nullptr;
  }
  end(place.exchange(held), random);
}

void turn(Random& random) { churn_blocks(random, 500); }

void end_all() { free_inherited_blocks(); }

const Registered blocks({"blocks", 4, turn, nullptr, end_all});

}  // namespace

void churn_blocks(Random& random, int steps) {
  for (int i = 0; i < steps; ++i) step(random);
}

void free_inherited_blocks() {
  Random random(1);
  for (std::atomic<Held*>& place : places) end(place.exchange(nullptr), random);
}

}  // namespace storm
