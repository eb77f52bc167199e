// cuGetErrorName and cuGetErrorString.
#include "tests/simcuda/driver/call.hpp"

namespace {

struct ErrorRow {
  int number;
  const char* name;
  const char* text;
};

constexpr ErrorRow kErrors[] = {
#define SIMCUDA_ERROR(number, name, text) {number, #name, text},
#include "tests/simcuda/driver/errors.def"
#undef SIMCUDA_ERROR
};

const ErrorRow* find_error(CUresult error) {
  for (const ErrorRow& row : kErrors)
    if (row.number == static_cast<int>(error)) return &row;
  return nullptr;
}

}  // namespace

// [documented] An unknown error gives a null pointer and CUDA_ERROR_INVALID_VALUE.
extern "C" CUresult cuGetErrorName(CUresult error, const char** text) {
  SIMCUDA_CALL(simcuda::kLookup);
  const ErrorRow* row = find_error(error);
  if (text) *text = row ? row->name : nullptr;
  return row && text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

extern "C" CUresult cuGetErrorString(CUresult error, const char** text) {
  SIMCUDA_CALL(simcuda::kLookup);
  const ErrorRow* row = find_error(error);
  if (text) *text = row ? row->text : nullptr;
  return row && text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
