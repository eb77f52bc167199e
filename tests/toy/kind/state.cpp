// See state.hpp.
#include "tests/toy/kind/state.hpp"

#include <new>

#include "shim/process/kind.hpp"
#include "shim/process/lookup.hpp"
#include "shim/process/process.hpp"
#include "shim/process/uncounted.hpp"

namespace cistern::toy {
namespace {

constinit std::atomic<State*> the_state{nullptr};
alignas(State) constinit unsigned char state_memory[sizeof(State)] = {};
constinit Lock state_lock;

template <class... Arguments>
int not_there(Arguments...) {
  return kNoDriver;
}

Table find_functions() {
  Table found;
#define TOY_CALL(name, parameters, arguments)                              \
  found.name = reinterpret_cast<decltype(found.name)>(next_symbol(#name)); \
  if (!found.name) found.name = not_there;
#include "tests/toy/kind/symbols.def"
  return found;
}

State& make_state() {
  Uncounted uncounted;
  Locked hold(state_lock);
  if (State* made = the_state.load(std::memory_order_acquire)) return *made;
  auto* made = new (state_memory) State;
  made->sites_on = options().sites != "off";
  made->pool.set_limits({.bytes_max = options().device_pool_max, .interval_ns = options().trim_interval});
  the_state.store(made, std::memory_order_release);
  gpu_state_made.store(true, std::memory_order_release);
  return *made;
}

}  // namespace

const Table& next() {
  static const Table found = find_functions();
  return found;
}

State& state() {
  State* const made = state_if_used();
  return made ? *made : make_state();
}
State* state_if_used() { return the_state.load(std::memory_order_acquire); }

// The record goes first: the memory may come again at once.
void ToySource::release(Chunk chunk) {
  Block gone;
  state().blocks.take_if(chunk.memory, gone, [](const Block&) { return true; });
  calls.frees.fetch_add(1, std::memory_order_relaxed);
  next().toy_free(chunk.context, chunk.memory);
}

// --- Fork: the parent's blocks are inherited, and no leaks of the child's. The driver's memory is the process's own,
// so the child goes on with it.
void before_fork() {
  state_lock.lock_for_fork();
  segments_before_fork();
  State* const s = state_if_used();
  if (!s) return;
  s->pool.before_fork();
  s->blocks.before_fork();
}

void after_fork_in_parent() {
  if (State* const s = state_if_used()) {
    s->blocks.after_fork();
    s->pool.after_fork_in_parent();
  }
  segments_after_fork();
  state_lock.unlock_after_fork();
}

void after_fork_in_child() {
  if (State* const s = state_if_used()) {
    s->blocks.after_fork();
    s->pool.after_fork_in_parent();
    s->blocks.for_each([](const void*, Block& block) { block.inherited = true; });
    s->counters.reset();
    s->source.calls.reset();
  }
  segments_after_fork();
  state_lock.unlock_after_fork();
}

}  // namespace cistern::toy
