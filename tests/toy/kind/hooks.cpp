// What is done to each call of the toy driver. Also the exported functions.
#include "shim/process/environment.hpp"
#include "shim/process/kind.hpp"
#include "shim/process/process.hpp"
#include "tests/toy/kind/state.hpp"

namespace cistern::toy::hook {
namespace {

PoolKey key_of(toy_context* context, std::size_t bytes) {
  return {reinterpret_cast<std::uintptr_t>(context), 0, bytes};
}

// Kept blocks make way for a request, and so do segments without blocks.
auto acquire(State& s, toy_context* context, std::size_t bytes) {
  const auto from_pool = [&] { return s.pool.allocate(key_of(context, bytes), {context, bytes}, coarse_now_ns()); };
  const auto allocated = from_pool();
  return allocated.result.error == TOY_NO_MEMORY && trim_segments() ? from_pool() : allocated;
}

}  // namespace

int toy_allocate(toy_context* context, size_t bytes, void** block) {
  if (!context || !block || !bytes || phase() != Phase::running) return next().toy_allocate(context, bytes, block);
  State& s = state();
  const auto allocated = acquire(s, context, bytes);
  if (!allocated.result.ok) {
    add(s.counters.failed);
    return allocated.result.error;
  }
  if (!allocated.hit) add(s.counters.pool_misses);
  *block = allocated.result.chunk.memory;
  s.counters.block_born({bytes}, allocated.hit);
  s.blocks.put(
      *block, {context, bytes, s.sites_on ? capture_site("toy_allocate") : 0, coarse_nanoseconds_since_start(), false});
  return 0;
}

int toy_free(toy_context* context, void* memory) {
  State& s = state();
  Block block{};
  s.blocks.with(memory, [&](Block* found) {
    if (!found || found->context != context) return;
    block = *found;
    found->pooled = !found->is_cut;
  });
  if (!block.context) return next().toy_free(context, memory);
  if (block.is_cut) return TOY_INVALID;
  if (block.pooled) return TOY_INVALID;  // freed already
  if (!block.inherited) s.counters.block_died({block.bytes});
  s.pool.give(key_of(context, block.bytes), {context, memory}, {}, false, coarse_now_ns());
  return 0;
}

int toy_context_destroy(toy_context* context) {
  state().pool.drain(reinterpret_cast<std::uintptr_t>(context));
  trim_segments();
  const int answer = next().toy_context_destroy(context);
  if (!answer) context_ended(context);
  return answer;
}

int toy_copy(toy_context* context, void* to, const void* from, size_t bytes) {
  return next().toy_copy(context, to, from, bytes);
}

int toy_wait(toy_context* context) { return next().toy_wait(context); }

// Kept blocks are free memory to the program.
int toy_free_memory(toy_context* context, size_t* bytes) {
  const int answer = next().toy_free_memory(context, bytes);
  if (!answer) *bytes += state().pool.usage_bytes();
  return answer;
}

}  // namespace cistern::toy::hook

#define TOY_CALL(name, parameters, arguments)                                \
  extern "C" [[gnu::visibility("default")]] int name parameters {            \
    if (cistern::switched_off()) return cistern::toy::next().name arguments; \
    return cistern::toy::hook::name arguments;                               \
  }
#include "tests/toy/kind/symbols.def"
