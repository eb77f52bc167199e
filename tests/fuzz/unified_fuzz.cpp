// Fuzzer of unified buffers: the input chooses the steps of the model in tests/library/unified_model.hpp, on PoCL's
// queues.
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>

#include "tests/library/unified_model.hpp"

namespace {

UnifiedWorld make_world() {
  cl_platform_id platform = nullptr;
  cl_device_id device = nullptr;
  if (clGetPlatformIDs(1, &platform, nullptr) || clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr))
    std::abort();
  cl_context const context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, nullptr);
  UnifiedWorld world;
  world.settings.kind = CISTERN_OPENCL;
  world.settings.context = reinterpret_cast<_cl_context*>(context);
  for (int i = 0; i < 3; ++i)
    world.queues.push_back(clCreateCommandQueueWithProperties(context, device, nullptr, nullptr));
  world.settings.queue = world.queues[0];
  // The model takes eight, and has done with them when it ends.
  world.take_late = [next = 0u](std::size_t bytes) mutable {
    static std::vector<char> memory[8];
    std::vector<char>& one = memory[next++ % std::size(memory)];
    one.resize(std::max(one.size(), bytes));
    return static_cast<void*>(one.data());
  };
  return world;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  static const UnifiedWorld world = make_world();
  const std::uint8_t* const end = data + bytes;
  UnifiedModel model(world, [&](std::uint32_t below) {
    std::uint32_t number = 0;
    for (std::uint32_t most = below - 1; most && data != end; most >>= 8) number = number << 8 | *data++;
    return number % below;
  });
  while (data != end) model.step();
  model.check_all();
  return 0;
}
