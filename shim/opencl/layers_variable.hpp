// OPENCL_LAYERS, which ocl-icd cuts at its colons, in environ: put back for the children of the program.
#pragma once

namespace cistern::opencl {

// When a layer is loaded.
void note_layers_variable();
// Once the loader has read it.
void restore_layers_variable();

}  // namespace cistern::opencl
