// The real OpenCL functions below the shim, and which way the program's calls come in.
//
// Two ways in can be active at the same time: our exported symbols (preload, or the library) and the ICD loader's
// layer. When the layer is loaded, every call that passes the loader reaches it, so it is the one place where hooks
// run: the exports then only forward to the loader. That is why a call is counted once.
#pragma once
#include <atomic>

#include "shim/opencl/table.hpp"

namespace cistern::opencl {

// The ICD loader's own functions, as a program without the shim would call them. Members are null while no loader
// is in the process.
const Table& loader();
// Asks the platforms once; until then, and where one of them does not say so, no object's table is looked into.
void learn_whether_objects_have_tables();
// Whether calls come through the layer; asked by the exports.
bool layer_active();
// From now on they do; `below`: what the loader has under the layer.
void layer_is_loaded(const Table& below);
// The functions that hooks forward to: the layer's target, else the loader.
const Table& next();

// Real extension functions, remembered as the program finds them. They belong to one platform, which is recognised
// by the dispatch word that every ICD object starts with. False: there are too many.
bool remember_extension(const char* name, const void* platform, void* function);
void* extension_function(const char* name, const void* object_of_platform);
template <class Function>
Function extension(const char* name, const void* object_of_platform) {
  return reinterpret_cast<Function>(extension_function(name, object_of_platform));
}

void next_before_fork();
void next_after_fork();

}  // namespace cistern::opencl
