// The hooks as a layer of the ICD loader, and as what its look-ups answer.
#pragma once
#include "backends/opencl/api.hpp"

namespace cistern::opencl {

// The layer interface's clInitLayer (ocl-icd >= 2.3 and the Khronos loader).
cl_int init_layer(cl_uint slot_count, const void* const* target, cl_uint* slot_count_ret, const void* const** layer);

// The hook for a name of symbols/opencl.def, and the name as a literal; or null.
void* hook_for(const char* name, const char** own_name);

}  // namespace cistern::opencl
