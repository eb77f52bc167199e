// Every row of symbols/opencl.def called with arguments that are mostly nonsense: no handles or real ones, all numbers
// 0, 1 or too large, no places for outputs or places with something in them. What a call answers, what it writes where,
// and errno after a failure are the implementation's own.
// harness: driver-layer
#include "observe.hpp"

#include <CL/cl_egl.h>
#include <CL/cl_gl.h>
#include <errno.h>

#include <tuple>
#include <utility>

// What symbols/opencl.def calls the types.
using cl_command_buffer = cl_command_buffer_khr;

namespace {

struct Recipe {
  bool handles, places;
  unsigned long number;  // as the argument's type has it
};

// Real objects of each type.
struct Objects {
  cl_platform_id platform;
  cl_device_id device;
  cl_context context;
  cl_command_queue queue;
  cl_mem memory;
  cl_program program;
  cl_kernel kernel;
  cl_event event;
  cl_sampler sampler;

  explicit Objects(const Setup& cl)
      : platform(cl.platform),
        device(cl.device),
        context(cl.context),
        queue(cl.queue),
        memory(cl.buffer(4096)),
        program(cl.program()),
        kernel(kernel_of(program, "add")),
        event(cl.gate()),
        sampler(clCreateSampler(cl.context, CL_TRUE, CL_ADDRESS_NONE, CL_FILTER_NEAREST, nullptr)) {
    clSetUserEventStatus(event, CL_COMPLETE);
  }
};

// A place for outputs: what stands in it, and whether it still does.
struct Place {
  static constexpr unsigned char kBefore = 0x5a;
  unsigned char bytes[256];
  Place() { memset(bytes, kBefore, sizeof bytes); }
  bool kept() const {
    return std::all_of(std::begin(bytes), std::end(bytes), [](unsigned char byte) { return byte == kBefore; });
  }
};

template <class T>
constexpr bool is_output = false;
template <class T>
constexpr bool is_output<T*> = std::is_integral_v<T> && !std::is_const_v<T>;
template <class T>
constexpr bool is_output<T**> = std::is_class_v<T> && !std::is_const_v<T>;  // handles

template <class T>
T argument(const Objects& objects, const Recipe& recipe, Place& place) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(recipe.number);
  } else if constexpr (is_output<T>) {
    return recipe.places ? reinterpret_cast<T>(place.bytes) : nullptr;
  } else {
    const auto all = std::tie(objects.platform, objects.device, objects.context, objects.queue, objects.memory,
                              objects.program, objects.kernel, objects.event, objects.sampler);
    if constexpr (std::disjunction_v<std::is_same<T, cl_platform_id>, std::is_same<T, cl_device_id>,
                                     std::is_same<T, cl_context>, std::is_same<T, cl_command_queue>,
                                     std::is_same<T, cl_mem>, std::is_same<T, cl_program>, std::is_same<T, cl_kernel>,
                                     std::is_same<T, cl_event>, std::is_same<T, cl_sampler>>)
      return recipe.handles ? std::get<const T&>(all) : nullptr;
    return nullptr;
  }
}

// What one call of the sweep leaves behind goes again, so that each sees the same objects.
template <class Result>
void undo(const char*, const Objects&, Result) {}
template <>
void undo(const char*, const Objects&, cl_mem made) {
  if (counted(made)) clReleaseMemObject(made);
}
template <>
void undo(const char* name, const Objects& objects, void* made) {
  if (!made) return;
  if (!strncmp(name, "clEnqueueMap", 12)) {
    clEnqueueUnmapMemObject(objects.queue, objects.memory, made, 0, nullptr, nullptr);
    clFinish(objects.queue);
  } else if (strstr(name, "MemAllocINTEL")) {
    ++creations;
    using Free = cl_int (*)(cl_context, void*);
    reinterpret_cast<Free>(clGetExtensionFunctionAddressForPlatform(objects.platform, "clMemFreeINTEL"))(
        objects.context, made);
  } else if (!strcmp(name, "clSVMAlloc")) {
    ++creations;
    clSVMFree(objects.context, made);
  }
}

template <class Result>
bool failed(Result result) {
  if constexpr (std::is_same_v<Result, cl_int>)
    return result != CL_SUCCESS;
  else
    return !result;
}

template <class Result>
std::string describe_result(Result result) {
  if constexpr (std::is_same_v<Result, cl_int>) return std::to_string(result);
  return failed(result) ? "null" : "made";
}

// Numbers as they are, handles only as something else than before.
template <class T>
std::string describe_place(const Place& place) {
  if constexpr (!is_output<T>) {
    return "";
  } else if constexpr (std::is_integral_v<std::remove_pointer_t<T>>) {
    std::remove_pointer_t<T> value;
    memcpy(&value, place.bytes, sizeof value);
    return place.kept() ? " kept" : " " + std::to_string(value);
  } else {
    return place.kept() ? " kept" : " written";
  }
}

template <class Result, class... Arguments, size_t... I>
void call(const char* name, Result (*function)(Arguments...), const Objects& objects, const Recipe& recipe,
          std::index_sequence<I...>) {
  Place places[sizeof...(Arguments) + 1];
  const std::tuple<Arguments...> arguments{argument<Arguments>(objects, recipe, places[I])...};
  errno = 4711;
  std::string line;
  if constexpr (std::is_void_v<Result>) {
    std::apply(function, arguments);
    line = "returned";
  } else {
    const Result result = std::apply(function, arguments);
    const int error = errno;
    line = describe_result(result);
    if (failed(result) && error != 4711) line += ", errno " + std::to_string(error);
    undo<Result>(name, objects, result);
  }
  clFinish(objects.queue);
  if (recipe.places) ((line += describe_place<Arguments>(places[I])), ...);
  say("  %s handles, %s places, %lx: %s", recipe.handles ? "real" : "no", recipe.places ? "with" : "no", recipe.number,
      line.c_str());
}

bool begins(const char* name, std::initializer_list<const char*> with) {
  return std::any_of(with.begin(), with.end(),
                     [name](const char* first) { return !strncmp(name, first, strlen(first)); });
}

// Called without handles only: what ends objects or leaves them with a reference; what the driver does not have, where
// the loader jumps; and what ends the process in PoCL.
bool takes_real_handles(const char* name, const Objects& objects, int slot) {
  const void* const* driver = *reinterpret_cast<const void* const* const*>(objects.context);
  return driver[slot] &&
         !begins(name, {"clRelease", "clRetain", "clCreateFrom", "clCreateProgramWithSource", "clCreateEventFrom",
                        "clEnqueueAcquireGL", "clEnqueueReleaseGL", "clEnqueueWaitForEvents"});
}

// PoCL clears as many places as the program says it has.
unsigned long too_large(const char* name) { return strcmp(name, "clCreateKernelsInProgram") ? 0x7fffffffffff : 8; }

template <class Result, class... Arguments>
void sweep(const char* name, Result (*function)(Arguments...), const Objects& objects, bool with_handles) {
  say("%s", name);
  for (const bool handles : {false, true})
    for (const bool places : {false, true})
      for (const unsigned long number : {0ul, 1ul, too_large(name)})
        if (!handles || with_handles)
          call(name, function, objects, {handles, places, number}, std::index_sequence_for<Arguments...>{});
}

template <class Function>
void sweep_extension(const char* name, const Objects& objects) {
  void* found = clGetExtensionFunctionAddressForPlatform(objects.platform, name);
  if (found)
    sweep(name, reinterpret_cast<Function>(found), objects, true);
  else
    say("%s: not there", name);
}

}  // namespace

int main() {
  Setup cl;
  const Objects objects(cl);
  int rows = 0;
#define OPENCL_CALL(action, slot, result, name, parameters, arguments) \
  ++rows, sweep(#name, &name, objects, takes_real_handles(#name, objects, slot));
#define OPENCL_EXTENSION(action, result, name, parameters, arguments) \
  ++rows, sweep_extension<result(*) parameters>(#name, objects);
#include "shim/symbols/opencl.def"
  say("%d rows", rows);
  clReleaseMemObject(objects.memory);
  cl.release();
  return finish();
}
