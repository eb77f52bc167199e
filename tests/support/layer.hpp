// What OpenCL layers of the tests have in common: what they say of themselves, and how they begin.
#pragma once
#include <CL/cl_layer.h>

#include <cstring>

namespace cistern::test {

inline cl_int layer_info(const char* title, cl_layer_info name, size_t bytes, void* value, size_t* bytes_ret) {
  const cl_layer_api_version version = CL_LAYER_API_VERSION_100;
  const bool asks_version = name == CL_LAYER_API_VERSION;
  const void* const answer = asks_version ? static_cast<const void*>(&version) : title;
  const size_t size = asks_version ? sizeof version : std::strlen(title) + 1;
  if (value && bytes < size) return CL_INVALID_VALUE;
  if (value) std::memcpy(value, answer, size);
  if (bytes_ret) *bytes_ret = size;
  return CL_SUCCESS;
}

// For clInitLayer, before it puts functions of its own into `ours`. False: the loader's table is too short.
inline bool begin_layer(cl_uint count, const cl_icd_dispatch* target, cl_uint* count_ret, const cl_icd_dispatch** layer,
                        cl_icd_dispatch& below, cl_icd_dispatch& ours) {
  if (count < sizeof below / sizeof(void*)) return false;
  below = *target;
  ours = *target;
  *count_ret = sizeof ours / sizeof(void*);
  *layer = &ours;
  return true;
}

}  // namespace cistern::test
