// See substitute.hpp.
#include "shim/cuda/hooks/substitute.hpp"

#include <string.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <span>

#include "pool/base/internal_memory.hpp"
#include "shim/cuda/hooks/gathering.hpp"
#include "shim/cuda/hooks/hooks.hpp"
#include "shim/cuda/hooks/unhooked.hpp"
#include "shim/cuda/next.hpp"
#include "shim/cuda/unknown.hpp"
#include "shim/process/lookup.hpp"

namespace cistern::cuda {
namespace {

constexpr std::uint64_t kPerThreadStream = 2;

constinit std::atomic<std::uint64_t> answered{0}, substituted{0};

enum class Stream : std::uint8_t { any, legacy, per_thread };

struct Row {
  const char* base;
  int version;
  Stream stream;
  void* hook;
  void (*keep)(void* real);
};

constexpr int kRowCount = 0
#define CUDA_DRIVER(action, base, version, stream, name, parameters, arguments) +1
#include "shim/symbols/cuda.def"
    ;
constinit std::atomic<const Row*> the_rows{nullptr};

template <class Function>
void* hook_for_route(Function* plain, Function* gathering) {
  return reinterpret_cast<void*>(route() == Route::gathering ? gathering : plain);
}

// Sorted by name; equal names by version. Made by the first who asks: most processes never do.
std::span<const Row> rows() {
  if (const Row* const made = the_rows.load(std::memory_order_acquire)) return {made, kRowCount};
  auto* const made = static_cast<Row*>(internal_allocate(kRowCount * sizeof(Row)));
  int i = 0;
#define CUDA_DRIVER(action, base, version, stream, name, parameters, arguments)                       \
  new (&made[i++]) Row{#base, version, Stream::stream, hook_for_route(&hook::name, &gathering::name), \
                       [](void* real) { driver().name.set(real); }};
#include "shim/symbols/cuda.def"
  std::sort(made, made + kRowCount, [](const Row& a, const Row& b) {
    const int order = strcmp(a.base, b.base);
    return order ? order < 0 : a.version < b.version;
  });
  const Row* others = nullptr;
  if (the_rows.compare_exchange_strong(others, made)) return {made, kRowCount};
  internal_deallocate(made, kRowCount * sizeof(Row));
  return {others, kRowCount};
}

bool serves(const Row& row, std::uint64_t flags) {
  if (row.stream == Stream::any) return true;
  return (row.stream == Stream::per_thread) == ((flags & kPerThreadStream) != 0);
}

// The row with the greatest version that is not above the one asked for.
const Row* find_row(const char* name, int version, std::uint64_t flags) {
  const std::span<const Row> all = rows();
  auto row = std::lower_bound(all.begin(), all.end(), name,
                              [](const Row& a, const char* wanted) { return strcmp(a.base, wanted) < 0; });
  const Row* best = nullptr;
  for (; row != all.end() && !strcmp(row->base, name); ++row)
    if (row->version <= version && serves(*row, flags)) best = &*row;
  return best;
}

// `version`: as of note_answered.
void unhooked(const char* name, int version, void** function) {
  note_answered(name, version);
  if (route() == Route::gathering) *function = sending_first(name, *function);
}

}  // namespace

// A version may lie between two rows, or beyond the last that is known here. Then the driver is asked for the row's own
// version too: it means the row's function if both answers are the same pointer.
void substitute(const char* name, void** function, int version, std::uint64_t flags,
                CUresult (*again)(const char*, void**, int, std::uint64_t)) {
  answered.fetch_add(1, std::memory_order_relaxed);
  if (!name || !function || !*function || !driver_found()) return;
  const Row* row = find_row(name, version, flags);
  if (!row) return unhooked(name, 0, function);
  if (row->version != version) {
    void* of_row = nullptr;
    if (again(name, &of_row, row->version, flags) != kSuccess || of_row != *function)
      return unhooked(name, version, function);
  }
  // An interposer behind Cistern may look up a function of its own by name, and find Cistern's.
  if (module_of(*function) != own_module()) row->keep(*function);
  *function = row->hook;
  substituted.fetch_add(1, std::memory_order_relaxed);
}

LookUps look_ups() { return {answered.load(std::memory_order_relaxed), substituted.load(std::memory_order_relaxed)}; }

}  // namespace cistern::cuda
