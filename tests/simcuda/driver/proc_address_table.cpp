// The rows of entry_points.def with their addresses. Without cuda.h: here all functions have one type.
#include <cstring>

#include "tests/simcuda/driver/proc_address.hpp"

#define SIMCUDA_ENTRY_POINT(base, version, stream, name) \
  void simcuda_thunk_##name();                           \
  void name();
extern "C" {
#include "tests/simcuda/driver/entry_points.def"
}
#undef SIMCUDA_ENTRY_POINT

namespace simcuda {
namespace {

using Function = void (*)();

// [assumed] A pointer from cuGetProcAddress need not be the exported symbol's address. Two thirds of the names get
// another one, so that neither identity nor difference can be relied on.
constexpr bool is_exported_address(int row) { return row % 3 == 0; }

void* choose(int row, Function exported, Function thunk) {
  return reinterpret_cast<void*>(is_exported_address(row) ? exported : thunk);
}

}  // namespace

#define SIMCUDA_ENTRY_POINT(base, version, stream, name) \
  {#base, version, StreamVariant::stream, #name, choose(__COUNTER__, name, simcuda_thunk_##name)},
const EntryRow kEntryRows[] = {
#include "tests/simcuda/driver/entry_points.def"
};
#undef SIMCUDA_ENTRY_POINT
const int kEntryRowCount = sizeof kEntryRows / sizeof kEntryRows[0];

bool is_entry_point(const char* exported_name) {
  for (const EntryRow& row : kEntryRows)
    if (!std::strcmp(row.name, exported_name)) return true;
  return false;
}

}  // namespace simcuda
