// See frameworks.hpp.
#include "stats/frameworks.hpp"

#include <link.h>

#include <algorithm>

#include "pool/base/path.hpp"

namespace cistern {
namespace {

struct Mark {
  const char* framework;
  std::string_view folder;  // somewhere in the path; empty: any
  std::string_view file;    // how the file's name begins; empty: any
};

// The parts that allocate on a device, where a package has them apart: PyTorch without CUDA caches nothing there.
constexpr Mark kMarks[] = {
    {"PyTorch", "", "libc10_cuda.so"},
    {"PyTorch", "", "libtorch_cuda.so"},
    {"CuPy", "/cupy/cuda/", "memory."},
    {"TensorFlow", "/tensorflow/", "libtensorflow_cc.so"},
    {"TensorFlow", "/tensorflow/", "_pywrap_tensorflow_internal.so"},
    {"JAX", "/xla_cuda", "xla_cuda_plugin.so"},
    {"JAX", "/jax_cuda", "xla_cuda_plugin.so"},
    {"RMM", "", "librmm.so"},
};

int note_framework(dl_phdr_info* info, std::size_t, void* result) {
  auto& frameworks = *static_cast<Vector<const char*>*>(result);
  const char* framework = framework_of_file(info->dlpi_name);
  if (framework && std::find(frameworks.begin(), frameworks.end(), framework) == frameworks.end())
    frameworks.push_back(framework);
  return 0;
}

}  // namespace

const char* framework_of_file(std::string_view path) {
  for (const Mark& mark : kMarks)
    if (path.find(mark.folder) != std::string_view::npos && basename_of(path).starts_with(mark.file))
      return mark.framework;
  return nullptr;
}

Vector<const char*> loaded_frameworks() {
  Vector<const char*> frameworks;
  dl_iterate_phdr(note_framework, &frameworks);
  return frameworks;
}

}  // namespace cistern
