// See runtime_frames.hpp.
#include "stats/runtime_frames.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "pool/base/path.hpp"
#include "stats/rust_names.hpp"

namespace cistern {
namespace {

// The runtime's own stacks are a few calls deep; further out a name proves nothing.
constexpr std::size_t kRuntimeFramesMax = 12;

// NVIDIA's static runtime has its internals under hashed names, and no debug information.
bool inside_runtime(const FrameFigures& frame) {
  const std::string_view module = basename_of(frame.module), function = frame.function;
  return module.starts_with("libcudart") || module.starts_with("libcuda.so") ||
         function.starts_with("libcudart_static_") || function.starts_with("cudart::") ||
         function.starts_with("__cuda");
}

// "cudaMalloc" of "cudaMalloc" and of "cudaMalloc<float>"; empty for what no entry point is called.
std::string_view entry_point_name(std::string_view function) {
  const std::string_view name = function.substr(0, function.find('<'));
  const auto is_letter_or_digit = [](char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  if (!name.starts_with("cuda") || name.size() < 5 || name[4] < 'A' || name[4] > 'Z') return {};
  return std::all_of(name.begin(), name.end(), is_letter_or_digit) ? name : std::string_view();
}

// The entry points that allocate, free or copy, without the suffix of their per-thread-stream form. A program's own
// function does not have such a name without a parameter list: the frames before one are the runtime's inside.
constexpr std::string_view kEntryPoints[] = {
    "cudaMalloc",        "cudaMallocPitch",          "cudaMalloc3D", "cudaMallocHost",    "cudaHostAlloc",
    "cudaMallocManaged", "cudaMallocAsync",          "cudaFree",     "cudaFreeHost",      "cudaFreeAsync",
    "cudaMallocArray",   "cudaMallocFromPoolAsync",  "cudaMemcpy",   "cudaMemcpyAsync",   "cudaMemcpy2D",
    "cudaMalloc3DArray", "cudaMallocMipmappedArray", "cudaMemcpy3D", "cudaMemcpy2DAsync", "cudaHostRegister"};

bool is_known_entry_point(std::string_view function) {
  if (function.ends_with("_ptsz") || function.ends_with("_ptds")) function.remove_suffix(5);
  return std::find(std::begin(kEntryPoints), std::end(kEntryPoints), function) != std::end(kEntryPoints);
}

// C++ forms of the entry points, compiled into the program.
bool in_runtime_header(const FrameFigures& frame) { return basename_of(frame.file).starts_with("cuda_runtime"); }

bool is_nameless(const FrameFigures& frame) { return frame.function.empty() && frame.file.empty(); }

// How many leading frames are the runtime's. Nameless ones are when an entry point follows: a stripped program keeps
// no names of the functions inside its static runtime.
std::size_t count_runtime_frames(const Vector<FrameFigures>& frames) {
  std::size_t count = 0;
  while (count < frames.size() && count < kRuntimeFramesMax && !is_known_entry_point(frames[count].function)) ++count;
  if (count == frames.size() || count == kRuntimeFramesMax) count = 0;
  std::string_view entry;
  for (std::size_t i = count; i < frames.size() && i < kRuntimeFramesMax; ++i) {
    const FrameFigures& frame = frames[i];
    const std::string_view name = entry_point_name(frame.function);
    // The second name of this form is the program's own: its cudaAllocate, which calls cudaMalloc.
    const bool at_entry = !name.empty() && (entry.empty() || name == entry);
    if (at_entry || inside_runtime(frame) || (count && in_runtime_header(frame)))
      count = i + 1;
    else if (!is_nameless(frame) || !entry.empty())
      break;
    if (at_entry) entry = name;
  }
  return count;
}

constexpr std::string_view kCallWrappers[] = {"std::__invoke",
                                              "std::invoke",
                                              "std::thread::_Invoker",
                                              "std::thread::_State_impl",
                                              "std::_Bind",
                                              "std::__future_base",
                                              "std::_Function_handler",
                                              "std::function<",
                                              "std::call_once",
                                              "std::once_flag",
                                              "std::_Function_base",
                                              "std::__apply",
                                              "std::apply",
                                              "std::packaged_task",
                                              "std::reference_wrapper<",
                                              "std::__detail::__variant",
                                              "std::_Mem_fn",
                                              "std::visit",
                                              "__gthread_",
                                              "std::__do_visit",
                                              "std::__do_call",
                                              "__pthread_once_slow"};

bool is_call_wrapper(const FrameFigures& frame) {
  const std::string_view function = frame.function;
  if (frame.rust) return is_rust_call_wrapper(function);
  if (function == "execute_native_thread_routine") return true;
  return std::any_of(std::begin(kCallWrappers), std::end(kCallWrappers),
                     [&](std::string_view name) { return function.starts_with(name); });
}

bool is_named_as_of_rust_library(const FrameFigures& frame) {
  return frame.rust && is_of_rust_library(frame.function) && !is_call_wrapper(frame);
}

// Rust's sources lie in folders as /rustc/<commit>/library/core/src, those of one crate among them in a project's.
bool is_of_rust_sources(std::string_view file) {
  return file.find("/library/") != file.npos || file.find("/hashbrown") != file.npos;
}

// A user's crate may be called core or alloc, too. The file tells it; without one, a stack on which all crates are
// called so may be that of a user's.
bool are_rust_names_of_library(const Vector<FrameFigures>& frames) {
  return std::any_of(frames.begin(), frames.end(), [](const FrameFigures& frame) {
    return frame.rust && !is_named_as_of_rust_library(frame) && !is_call_wrapper(frame);
  });
}

}  // namespace

void cut_call_wrappers(Vector<FrameFigures>& frames) {
  if (frames.empty()) return;
  const bool name_tells = are_rust_names_of_library(frames);
  const auto is_library = [name_tells](const FrameFigures& frame) {
    if (frame.rust)
      return is_named_as_of_rust_library(frame) && (frame.file.empty() ? name_tells : is_of_rust_sources(frame.file));
    return frame.function.starts_with("std::") || frame.function.starts_with("__gnu_cxx::");
  };
  const auto first_of_program = std::find_if_not(frames.begin(), frames.end(), is_library);
  if (first_of_program != frames.end() && first_of_program - frames.begin() > 1)
    frames.erase(frames.begin(), first_of_program - 1);
  frames.erase(std::remove_if(frames.begin() + 1, frames.end(), is_call_wrapper), frames.end());
}

void cut_runtime_frames(Vector<FrameFigures>& frames) {
  const std::size_t count = count_runtime_frames(frames);
  if (count < frames.size()) frames.erase(frames.begin(), frames.begin() + static_cast<std::ptrdiff_t>(count));
}

}  // namespace cistern
