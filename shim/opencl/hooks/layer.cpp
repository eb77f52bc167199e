// See layer.hpp.
#include "shim/opencl/hooks/layer.hpp"

#include <dlfcn.h>
#include <string.h>

#include "shim/opencl/hooks/hooks.hpp"
#include "shim/opencl/layers_variable.hpp"
#include "shim/opencl/next.hpp"
#include "shim/process/environment.hpp"
#include "shim/process/lookup.hpp"

namespace cistern::opencl {
namespace {

constinit const void* layer_slots[kDispatchSlots] = {};

struct Row {
  const char* name;
  void* hook;
};
const Row kRows[] = {
#define OPENCL_CALL(action, slot, result, name, parameters, arguments) {#name, reinterpret_cast<void*>(&hook::name)},
#define OPENCL_EXTENSION(action, result, name, parameters, arguments) {#name, reinterpret_cast<void*>(&hook::name)},
#include "shim/symbols/opencl.def"
};

void keep_loaded(const void* function) {
  Dl_info info;
  if (dladdr(function, &info) && info.dli_fname) real_dlopen()(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
}

}  // namespace

cl_int init_layer(cl_uint slot_count, const void* const* target, cl_uint* slot_count_ret, const void* const** layer) {
  if (!target || !slot_count_ret || !layer) return kInvalidValue;
  if (switched_off()) {
    *slot_count_ret = slot_count;
    *layer = target;
    return kSuccess;
  }
  const cl_uint count = slot_count < kDispatchSlots ? slot_count : kDispatchSlots;
  for (cl_uint slot = 0; slot < count; ++slot) layer_slots[slot] = target[slot];
  Table below;
  const auto target_of = [&](cl_uint slot) { return slot < count ? target[slot] : nullptr; };
#define OPENCL_CALL(action, slot, result, name, parameters, arguments)                              \
  below.name = reinterpret_cast<decltype(below.name)::Pointer>(const_cast<void*>(target_of(slot))); \
  if (below.name) layer_slots[slot] = reinterpret_cast<const void*>(&hook::name);
#include "shim/symbols/opencl.def"
#define CISTERN_TAKE(slot, name, type) \
  below.name = reinterpret_cast<decltype(below.name)::Pointer>(const_cast<void*>(target_of(slot)));
  CISTERN_OPENCL_QUESTIONS(CISTERN_TAKE)
  below.clGetPlatformIDs =
      reinterpret_cast<decltype(below.clGetPlatformIDs)::Pointer>(const_cast<void*>(target_of(kSlotPlatforms)));
  below.clFlush = reinterpret_cast<decltype(below.clFlush)::Pointer>(const_cast<void*>(target_of(kSlotFlush)));
  // The program may close the loader again, but its functions are called for as long as buffers are kept.
  for (cl_uint slot = 0; slot < count; ++slot)
    if (target[slot]) {
      keep_loaded(target[slot]);
      break;
    }
  note_layers_variable();
  layer_is_loaded(below);
  *slot_count_ret = count;
  *layer = layer_slots;
  return kSuccess;
}

void* hook_for(const char* name, const char** own_name) {
  for (const Row& row : kRows)
    if (!strcmp(row.name, name)) return *own_name = row.name, row.hook;
  return nullptr;
}

}  // namespace cistern::opencl
