// A kind of memory in one folder: what is known of the toy driver's blocks, its pool, and its hooks.
#pragma once
#include <atomic>

#include "pool/base/handle_table.hpp"
#include "pool/recycle_pool.hpp"
#include "shim/library/kind_memory.hpp"
#include "stats/counters.hpp"
#include "stats/sites.hpp"
#include "tests/toy/toy.h"

namespace cistern::toy {

constexpr auto kKind = static_cast<cistern_kind>(100);  // for the C interface
extern const library::KindMemory memory;
extern const library::KindSegments segments;

// The answer of a function that the process does not have: no toy driver is loaded.
constexpr int kNoDriver = -1;
// The driver's answer as one of the library.
cistern_status status_of(int code);

// The real functions.
struct Table {
#define TOY_CALL(name, parameters, arguments) int(*name) parameters = nullptr;
#include "tests/toy/kind/symbols.def"
};
const Table& next();

struct Chunk {
  toy_context* context;
  void* memory;
};

// The driver's calls wait for the work that they follow: a chunk has no fence.
class ToySource {
 public:
  struct Request {
    toy_context* context;
    std::size_t bytes;
  };
  struct Fence {};
  using Chunk = toy::Chunk;
  using Error = int;

  Acquired<Chunk, int> acquire(const Request& request) {
    void* memory = nullptr;
    const int error = next().toy_allocate(request.context, request.bytes, &memory);
    if (!error) calls.allocs.fetch_add(1, std::memory_order_relaxed);
    return {{request.context, memory}, error, error == 0};
  }
  void release(Chunk chunk);
  Settled settled(Chunk, Fence&) { return Settled::yes; }
  bool out_of_memory(int error) { return error == TOY_NO_MEMORY; }

  DriverCalls calls;
};
static_assert(Source<ToySource>);

// A block in the program's hands, or in the pool.
struct Block {
  toy_context* context;
  std::size_t bytes;
  SiteId site;
  std::uint64_t born_ns;
  bool pooled = false, inherited = false;
  bool is_cut = false;  // out of a segment: no memory that the driver knows
};

// Segments of the library's pools (segments.cpp): what of them no block has.
struct SegmentBytes {
  std::atomic<std::uint64_t> all{0}, live{0};
  std::uint64_t free() const { return all.load() - live.load(); }
};
// The program ended this context: its address may come again.
void context_ended(toy_context* context);
void segments_before_fork();
void segments_after_fork();

struct State {
  ToySource source;
  RecyclePool<ToySource> pool{source};
  HandleTable<Block> blocks;
  KindCounters counters;
  SegmentBytes in_segments;
  bool sites_on = false;
};
State& state();
State* state_if_used();

void before_fork();
void after_fork_in_parent();
void after_fork_in_child();

namespace hook {
#define TOY_CALL(name, parameters, arguments) int name parameters;
#include "tests/toy/kind/symbols.def"
}  // namespace hook

}  // namespace cistern::toy
