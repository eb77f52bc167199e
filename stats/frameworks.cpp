// See frameworks.hpp.
#include "stats/frameworks.hpp"

#include <link.h>

#include <algorithm>
#include <iterator>

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
    {"OpenCV", "", "libopencv_core.so"},
    {"OpenCV", "/cv2/", "cv2."},
};

// As their documentation has them: PyTorch's "CUDA semantics", TensorFlow's guide to GPUs, JAX's "GPU memory
// allocation", OpenCV's "OpenCV environment variables", CuPy's and RMM's pages on memory.
struct Switch {
  const char* framework;
  const char *variable, *value;  // null: there is no variable
  const char* text;
  const char* when = "";  // it keeps anything at all
};
constexpr Switch kSwitches[] = {
    {"PyTorch", "PYTORCH_NO_CUDA_MEMORY_CACHING", "1", "PYTORCH_NO_CUDA_MEMORY_CACHING=1"},
    {"TensorFlow", "TF_GPU_ALLOCATOR", "cuda_malloc_async", "TF_GPU_ALLOCATOR=cuda_malloc_async"},
    {"JAX", "XLA_PYTHON_CLIENT_ALLOCATOR", "platform", "XLA_PYTHON_CLIENT_ALLOCATOR=platform"},
    {"OpenCV", "OPENCV_OPENCL_BUFFERPOOL_LIMIT", "0", "OPENCV_OPENCL_BUFFERPOOL_LIMIT=0",
     " (by default on Intel devices)"},
    {"CuPy", nullptr, nullptr, "cupy.cuda.set_allocator(None)"},
    {"RMM", nullptr, nullptr, "rmm.reinitialize(pool_allocator=False)", " (if the program asked for a pool)"},
};

const Switch* switch_of(std::string_view framework) {
  const auto* const found = std::find_if(std::begin(kSwitches), std::end(kSwitches),
                                         [&](const Switch& one) { return framework == one.framework; });
  return found == std::end(kSwitches) ? nullptr : found;
}

int note_framework(dl_phdr_info* info, std::size_t, void* result) {
  auto& frameworks = *static_cast<Vector<FrameworkFigures>*>(result);
  const char* framework = framework_of_file(info->dlpi_name);
  if (framework && std::none_of(frameworks.begin(), frameworks.end(),
                                [&](const FrameworkFigures& other) { return other.name == framework; }))
    frameworks.push_back(framework_named(framework));
  return 0;
}

}  // namespace

const char* framework_of_file(std::string_view path) {
  for (const Mark& mark : kMarks)
    if (path.find(mark.folder) != std::string_view::npos && basename_of(path).starts_with(mark.file))
      return mark.framework;
  return nullptr;
}

FrameworkFigures framework_named(std::string_view name) {
  const Switch* const found = switch_of(name);
  return found ? FrameworkFigures{found->framework, found->text, found->when, false} : FrameworkFigures{};
}

Vector<FrameworkFigures> loaded_frameworks(const char* (*environment_variable)(const char* name)) {
  Vector<FrameworkFigures> frameworks;
  dl_iterate_phdr(note_framework, &frameworks);
  for (FrameworkFigures& framework : frameworks) {
    const Switch* const found = switch_of(framework.name);
    const char* const value = found && found->variable ? environment_variable(found->variable) : nullptr;
    framework.is_switched = value && std::string_view(value) == found->value;
  }
  return frameworks;
}

}  // namespace cistern
