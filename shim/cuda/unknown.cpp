// See unknown.hpp.
#include "shim/cuda/unknown.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <new>

#include "pool/base/lock.hpp"
#include "pool/base/name_list.hpp"
#include "shim/process/lookup.hpp"
#include "shim/process/uncounted.hpp"
#include "stats/sink.hpp"

namespace cistern::cuda {
namespace {

constexpr std::size_t kNamesMax = 32;

constexpr char kKnownText[] =
#define CUDA_DRIVER(action, base, version, stream, name, parameters, arguments) #base "\0" #name "\0"
#define CUDA_PASS(name) #name "\0"
#define CUDA_KNOWN(name) #name "\0"
#include "shim/symbols/cuda.def"
#include "shim/symbols/cuda_known.def"
    ;
constexpr NameList kKnown(kKnownText);
using Known = std::array<std::string_view, kKnown.count()>;
constinit std::atomic<const Known*> sorted_names{nullptr};

// Sorted at first use: threads that race here do the same, and one keeps it.
const Known& known_names() {
  const Known* known = sorted_names.load(std::memory_order_acquire);
  if (known) [[likely]]
    return *known;
  auto* const made = new (internal_allocate(sizeof(Known))) Known;
  auto* next = made->begin();
  kKnown.visit_until([&](std::string_view name) { return *next++ = name, false; });
  std::sort(made->begin(), made->end());
  if (sorted_names.compare_exchange_strong(known, made)) return *made;
  internal_deallocate(made, sizeof(Known));
  return *known;
}

// Never torn down: programs look functions up to their end.
constinit Lock names_lock;
constinit UnknownFunctions* unknown = nullptr;

void note(const String& name) {
  Locked hold(names_lock);
  if (!unknown) unknown = new (internal_allocate(sizeof(UnknownFunctions))) UnknownFunctions;
  Vector<String>& names = unknown->names;
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  names.size() < kNamesMax ? names.push_back(name) : static_cast<void>(++unknown->others);
}

}  // namespace

bool is_known_function(std::string_view name) {
  const Known& known = known_names();
  return std::binary_search(known.begin(), known.end(), name);
}

void note_answered(const char* name, int version) {
  if (version) {
    StringSink text;
    text.print("{} of CUDA {}.{}", name, version / 1000, version % 1000 / 10);
    return note(text.text());
  }
  if (!is_known_function(name)) note(name);
}

void note_asked(const char* name) {
  if (!looks_like_the_drivers(name) || is_known_function(name)) [[likely]]
    return;
  const Uncounted uncounted;
  const LoadedLibrary driver("libcuda.so.1");
  if (driver && driver.find(name)) note(name);
}

void add_unknown_functions(Snapshot& snapshot) {
  Locked hold(names_lock);
  if (unknown) snapshot.unknown_functions = *unknown;
}

void unknown_before_fork() { names_lock.lock_for_fork(); }
void unknown_after_fork() { names_lock.unlock_after_fork(); }

}  // namespace cistern::cuda
