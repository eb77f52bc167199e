// See unhooked.hpp.
#include "shim/cuda/hooks/unhooked.hpp"

#include <string.h>

#include <atomic>
#include <cstdint>
#include <string_view>

#include "pool/base/lock.hpp"
#include "shim/cuda/gather.hpp"
#include "shim/cuda/unseen_calls.hpp"

extern "C" {
// In unhooked.S.
extern const char cistern_unhooked_stubs[];
extern const unsigned cistern_unhooked_count;
// Returns the function that a stub jumps to. `second`: the second argument of the program's call.
[[gnu::visibility("hidden")]] void* cistern_before_unhooked(unsigned stub, const void* second);
}

namespace cistern::cuda {
namespace {

constexpr unsigned kStubsMax = 1024;
constexpr size_t kStubBytes = 16;

// Each stub has one function, and keeps it.
constinit std::atomic<void*> functions[kStubsMax]{};
constinit std::atomic<unsigned> export_table{kStubsMax};  // the stub of cuGetExportTable

// Tables that NVIDIA's runtime asks for: storage for contexts and threads, modules, callbacks of tools. [assumed] No
// function of them puts work on a stream.
constexpr unsigned char kTables[][16] = {
    {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9},
    {0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a, 0x66},
    {0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec, 0xdc},
    {0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93},
};

bool is_known_table(const void* id) {
  for (const auto& table : kTables)
    if (id && memcmp(id, table, sizeof table) == 0) return true;
  return !id;  // the driver refuses it
}

bool is_stub(const void* function) {
  const auto* const at = static_cast<const char*>(function);
  return at >= cistern_unhooked_stubs && at < cistern_unhooked_stubs + cistern_unhooked_count * kStubBytes;
}

}  // namespace

void* sending_first(const char* name, void* real) {
  if (is_harmless(name) || is_stub(real)) return real;
  for (unsigned stub = 0; stub < cistern_unhooked_count; ++stub) {
    void* known = nullptr;
    if (!functions[stub].compare_exchange_strong(known, real) && known != real) continue;
    if (std::string_view(name) == "cuGetExportTable") export_table.store(stub);
    return const_cast<char*>(cistern_unhooked_stubs + stub * kStubBytes);
  }
  stop_gathering(GatherOff::unseen_function, name);
  return real;
}

}  // namespace cistern::cuda

void* cistern_before_unhooked(unsigned stub, const void* second) {
  using namespace cistern::cuda;
  before_call(Sent::call);
  if (stub == export_table.load(std::memory_order_relaxed) && !is_known_table(second))
    stop_gathering(GatherOff::export_table);
  return functions[stub].load(std::memory_order_relaxed);
}
