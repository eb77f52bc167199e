// cuGetProcAddress and the names of errors.
#include "tests/simcuda/driver/proc_address.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/driver.hpp"

namespace simcuda {
namespace {

// [documented] The newest ABI that is not newer than the version asked for. With the per-thread flag the per-thread
// variant where there is one, else the legacy one.
const EntryRow* look_up(const char* base, int version, bool per_thread, bool& name_known) {
  const EntryRow* best = nullptr;
  for (int index = 0; index < kEntryRowCount; ++index) {
    const EntryRow& row = kEntryRows[index];
    if (std::strcmp(row.base, base) != 0) continue;
    name_known = true;
    if (row.version > version || (row.stream == StreamVariant::per_thread && !per_thread)) continue;
    const bool preferred = per_thread && row.stream == StreamVariant::per_thread;
    const bool best_preferred = best && best->stream == StreamVariant::per_thread;
    if (!best || preferred > best_preferred || (preferred == best_preferred && row.version > best->version))
      best = &row;
  }
  return best;
}

// A driver from before virtual memory management lacks its functions. Programs ask before cuInit, which reads the other
// settings.
bool is_lacking(const char* base) {
  if (process_state() == ProcessState::kNotInitialized) read_setting_from_environment("vmm");
  if (settings.vmm >= 0) return false;
  static constexpr const char* kFunctions[] = {"cuMemAddressFree",
                                               "cuMemAddressReserve",
                                               "cuMemCreate",
                                               "cuMemExportToShareableHandle",
                                               "cuMemGetAccess",
                                               "cuMemGetAllocationGranularity",
                                               "cuMemGetAllocationPropertiesFromHandle",
                                               "cuMemImportFromShareableHandle",
                                               "cuMemMap",
                                               "cuMemRelease",
                                               "cuMemRetainAllocationHandle",
                                               "cuMemSetAccess",
                                               "cuMemUnmap"};
  return std::any_of(std::begin(kFunctions), std::end(kFunctions),
                     [&](const char* name) { return !std::strcmp(base, name); });
}

struct Answer {
  CUresult result;
  CUdriverProcAddressQueryResult status;
};

// Some entry points are of later toolkits than the headers, and of none.
constexpr int kNewestVersion = 14000;

// [measured] A driver follows null pointers: the program ends (580 on an H100: SIGSEGV).
Answer query(const char* base, void** function, int version, cuuint64_t flags) {
  if (!base || !function) {
    std::fputs("simcuda: cuGetProcAddress is given no name, or nowhere to answer\n", stderr);
    std::abort();
  }
  // [measured] The empty name, which the runtime asks for first, is a name that is not found.
  // [documented] A version newer than the driver's own is an invalid value.
  if (flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM || version > kNewestVersion)
    return {CUDA_ERROR_INVALID_VALUE, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND};  // the status is not written
  bool name_known = false;
  const bool per_thread = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  const EntryRow* row = is_lacking(base) ? nullptr : look_up(base, version, per_thread, name_known);
  *function = row ? row->address : nullptr;
  if (row) return {CUDA_SUCCESS, CU_GET_PROC_ADDRESS_SUCCESS};
  return {CUDA_SUCCESS, name_known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND};
}

}  // namespace
}  // namespace simcuda

using namespace simcuda;

// [documented] What is not found is a success with a null pointer and a status. [measured] A failure writes no status.
extern "C" CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                                        CUdriverProcAddressQueryResult* status) {
  SIMCUDA_CALL(kLookup);
  const Answer answer = query(symbol, function, version, flags);
  if (status && answer.result == CUDA_SUCCESS) *status = answer.status;
  return answer.result;
}

// [assumed] The first version has no status: what is not found is CUDA_ERROR_NOT_FOUND there.
extern "C" CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags) {
  SIMCUDA_CALL(kLookup);
  const Answer answer = query(symbol, function, version, flags);
  return answer.result == CUDA_SUCCESS && answer.status != CU_GET_PROC_ADDRESS_SUCCESS ? CUDA_ERROR_NOT_FOUND
                                                                                       : answer.result;
}
