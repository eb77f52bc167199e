// The kernels that programs define, and launches.
#include "tests/simcuda/driver/kernel.hpp"

#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>

#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/context.hpp"
#include "tests/simcuda/driver/device_work.hpp"
#include "tests/simcuda/driver/settings.hpp"
#include "tests/simcuda/driver/thread_state.hpp"

namespace simcuda {
namespace {

// Has a lock of its own: programs define kernels before cuInit.
struct Definitions {
  std::mutex lock;
  std::unordered_map<std::string, const KernelDefinition*> by_name;
  std::unordered_map<const void*, const KernelDefinition*> by_stub;
};

Definitions& definitions() {
  static Definitions& all = *new Definitions;
  return all;
}

std::map<std::pair<const void*, std::string>, std::unique_ptr<Function>>& functions() {
  static auto& all = *new std::map<std::pair<const void*, std::string>, std::unique_ptr<Function>>;
  return all;
}

// Copies of a launch's arguments, as long as the launch.
class Arguments {
 public:
  Arguments(const KernelDefinition& definition, void** arguments) {
    for (size_t index = 0; index < definition.argument_bytes.size(); ++index) {
      const auto* bytes = static_cast<const unsigned char*>(arguments[index]);
      // Each in storage of its own, aligned for any type.
      values_.emplace_back(new unsigned char[definition.argument_bytes[index]]);
      std::memcpy(values_.back().get(), bytes, definition.argument_bytes[index]);
      pointers_.push_back(values_.back().get());
    }
  }
  void** pointers() { return pointers_.data(); }

 private:
  std::vector<std::unique_ptr<unsigned char[]>> values_;
  std::vector<void*> pointers_;
};

// The setting fault strikes once: that kernel faults instead of working.
bool fault_strikes() {
  long long planted = 1;
  return settings.fault.compare_exchange_strong(planted, 0);
}

// [assumed] A kernel reads at every address in its arguments. Addresses that it loads from memory are not seen here.
std::vector<Touched> touched_by(Locked& lock, const KernelDefinition& definition, void** arguments) {
  std::vector<Touched> all;
  for (size_t index = 0; index < definition.argument_bytes.size(); ++index)
    for (size_t offset = 0; offset + sizeof(uintptr_t) <= definition.argument_bytes[index];
         offset += sizeof(uintptr_t)) {
      uintptr_t word = 0;
      std::memcpy(&word, static_cast<const char*>(arguments[index]) + offset, sizeof word);
      add_touched(lock, all, {word, 1});
    }
  return all;
}

CUresult launch(const void* handle, CUstream stream_handle, void** arguments, void** extra) {
  if (extra) return refuse("launching with a packed argument buffer (extra)");
  Locked lock = lock_driver();
  CUresult result;
  const StreamPointer stream = find_stream(lock, stream_handle, result);
  if (!stream) return result;
  const Function* function = find_function(lock, handle);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (!arguments && !function->definition->argument_bytes.empty()) return CUDA_ERROR_INVALID_VALUE;
  return enqueue(lock, stream, launch_task(lock, *function, arguments, stream->context));
}

}  // namespace

const KernelDefinition* find_kernel_by_name(const char* name) {
  Definitions& all = definitions();
  const std::lock_guard<std::mutex> guard(all.lock);
  const auto found = all.by_name.find(name);
  return found == all.by_name.end() ? nullptr : found->second;
}

Task launch_task(Locked& lock, const Function& function, void** arguments, Context* context) {
  const auto copies = std::make_shared<Arguments>(*function.definition, arguments);
  const simcuda_work work = function.definition->kernel.work;
  const auto run = [copies, work] {
    if (fault_strikes()) return fault();
    this_thread().in_host_function = true;  // a kernel cannot call the driver
    touch_memory([&] { work(copies->pointers()); });
    this_thread().in_host_function = false;
  };
  return {CU_GRAPH_NODE_TYPE_KERNEL, run, nullptr, context, touched_by(lock, *function.definition, arguments)};
}

Function* find_function(Locked&, const void* handle) {
  for (const auto& [key, function] : functions())
    if (function.get() == handle) return function.get();
  return nullptr;
}

Function* function_in(Locked&, const void* container, const char* name) {
  const KernelDefinition* definition = find_kernel_by_name(name);
  if (!definition) return nullptr;
  auto& function = functions()[{container, name}];
  if (!function) function = std::make_unique<Function>(Function{definition, container});
  return function.get();
}

void drop_functions_of(Locked&, const void* container) {
  std::erase_if(functions(), [&](const auto& entry) { return entry.second->container == container; });
}

}  // namespace simcuda

using namespace simcuda;

extern "C" void simcuda_define_kernel(const simcuda_kernel* kernel) {
  // Never freed: a launch may still use it.
  auto* definition = new KernelDefinition{*kernel, kernel->name ? kernel->name : "", {}};
  if (kernel->argument_count > 0)
    definition->argument_bytes.assign(kernel->argument_bytes, kernel->argument_bytes + kernel->argument_count);
  definition->kernel.name = definition->name.c_str();
  definition->kernel.argument_bytes = definition->argument_bytes.data();
  Definitions& all = definitions();
  const std::lock_guard<std::mutex> guard(all.lock);
  all.by_name[definition->name] = definition;
  if (kernel->stub) all.by_stub[kernel->stub] = definition;
}

extern "C" const simcuda_kernel* simcuda_find_kernel_by_stub(const void* stub) {
  Definitions& all = definitions();
  const std::lock_guard<std::mutex> guard(all.lock);
  const auto found = all.by_stub.find(stub);
  return found == all.by_stub.end() ? nullptr : &found->second->kernel;
}

// Grid, block and shared memory mean nothing to a host function: one call is one launch.
extern "C" CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned, CUstream stream,
                                   void** arguments, void** extra) {
  SIMCUDA_CALL(kOrdinary);
  // [documented] No dimension may be 0.
  if (!grid_x || !grid_y || !grid_z || !block_x || !block_y || !block_z) return CUDA_ERROR_INVALID_VALUE;
  return launch(function, stream, arguments, extra);
}
SIMCUDA_PER_THREAD_STREAM(cuLaunchKernel, _ptsz,
                          (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                           unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** arguments,
                           void** extra),
                          (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, arguments,
                           extra))

extern "C" CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** arguments,
                                     void** extra) {
  SIMCUDA_CALL(kOrdinary);
  return config ? launch(function, config->hStream, arguments, extra) : CUDA_ERROR_INVALID_VALUE;
}
SIMCUDA_PER_THREAD_STREAM(cuLaunchKernelEx, _ptsz,
                          (const CUlaunchConfig* config, CUfunction function, void** arguments, void** extra),
                          (config, function, arguments, extra))

extern "C" CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned,
                                              unsigned, unsigned, CUstream stream, void** arguments) {
  SIMCUDA_CALL(kOrdinary);
  return launch(function, stream, arguments, nullptr);
}
SIMCUDA_PER_THREAD_STREAM(cuLaunchCooperativeKernel, _ptsz,
                          (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                           unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream,
                           void** arguments),
                          (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
                           arguments))
