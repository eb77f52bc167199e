// Modules, graphs, limits, events and address ranges take device memory too, so that their calls fail while the pools
// keep all of it. The calls are passed on, and room is made where it is missing. Objects that are alive are counted.
#include <string_view>

#include "shim/cuda/hooks/hooks.hpp"
#include "shim/cuda/passed_with_room.hpp"

namespace cistern::cuda {
namespace {

CUresult observe(CUresult answer) {
  if (is_sticky(answer)) [[unlikely]]
    return note(state(), answer);
  return answer;
}

// One row's outputs: pointers, array(first, count) of several, and ExecutableOf. An object among them is one more that
// is alive.
void made(const char*, ...) {}
void made(const char* name, CUevent* event) { note_object(state(), ObjectType::event, *event, name); }
void made(const char* name, const ExecutableOf& made) {
  CudaState& s = state();
  note_object(s, ObjectType::graph, *made.executable, name);
  s.graph_memory.instantiated(*made.executable, made.graph);
}
void made(const char* name, CUlibrary* library) { note_object(state(), ObjectType::library, *library, name); }
void made(const char* name, CUmodule* module) {
  if (std::string_view(name).starts_with("cuModuleLoad")) note_object(state(), ObjectType::module, *module, name);
}

template <class Pass>
CUresult allocate(const char*, Pass pass) {
  return observe(with_room_restoring(pass));
}
template <class Pass, class First, class... Places>
CUresult allocate(const char* name, Pass pass, First first, Places&&... places) {
  const CUresult answer = observe(with_room_restoring(pass, output(first), output(static_cast<Places&&>(places))...));
  if (answer == kSuccess && first) made(name, first);
  return answer;
}

}  // namespace

namespace hook {

#define CUDA_ALLOCATE(base, version, stream, name, parameters, arguments, ...)                  \
  CUresult name parameters {                                                                    \
    return allocate(#name, [&] { return driver().name arguments; } __VA_OPT__(, ) __VA_ARGS__); \
  }
#include "shim/symbols/cuda.def"

CUresult cuEventDestroy(CUevent event) {
  return end_object(event, [&] { return driver().cuEventDestroy(event); });
}
CUresult cuEventDestroy_v2(CUevent event) {
  return end_object(event, [&] { return driver().cuEventDestroy_v2(event); });
}
CUresult cuModuleUnload(CUmodule module) {
  return end_object(module, [&] { return driver().cuModuleUnload(module); });
}
CUresult cuLibraryUnload(CUlibrary library) {
  return end_object(library, [&] { return driver().cuLibraryUnload(library); });
}

}  // namespace hook
}  // namespace cistern::cuda
