// When a driver has no memory for an object, also after what the pool kept has gone back: one account of who holds
// what, and what the devices of the context take.
#include "shim/process/out_of_memory.hpp"

#include "shim/opencl/out_of_memory.hpp"
#include "shim/process/kind.hpp"
#include "shim/process/log.hpp"
#include "shim/process/process.hpp"
#include "shim/process/uncounted.hpp"
#include "stats/format.hpp"

namespace cistern::opencl {

extern const Kind kind;

namespace {

constexpr int kDevicesShown = 4;

Holdings holdings(OpenclState& s) {
  Holdings holdings;
  s.memory.for_each([&](const void*, MemoryRecord& record) {
    if (record.state == MemoryState::live && !record.inherited && record.bytes) holdings.add(record.site, record.bytes);
  });
  return holdings;
}

const char* name_of(cl_int error) {
  if (error == kMemObjectAllocationFailure) return "CL_MEM_OBJECT_ALLOCATION_FAILURE";
  if (error == kOutOfResources) return "CL_OUT_OF_RESOURCES";
  return "CL_OUT_OF_HOST_MEMORY";
}

std::uint64_t ask(cl_device_id device, cl_uint name) {
  std::uint64_t value = 0;
  return next().clGetDeviceInfo.own(device, name, sizeof value, &value, nullptr) == kSuccess ? value : 0;
}

void print_devices(Sink& line, const Asked& asked) {
  cl_device_id devices[kDevicesShown] = {};
  std::size_t bytes = 0;
  const auto& ask_context = next().clGetContextInfo;
  if (ask_context.own(asked.context, kContextDevices, 0, nullptr, &bytes) != kSuccess || bytes > sizeof devices ||
      ask_context.own(asked.context, kContextDevices, bytes, devices, nullptr) != kSuccess)
    return;
  const int count = static_cast<int>(bytes / sizeof devices[0]);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t total = ask(devices[i], kDeviceGlobalMemSize), most = ask(devices[i], kDeviceMaxMemAllocSize);
    if (!total || !most) continue;
    line.print("; device {}: {} in total, at most {} in one object", i, human_bytes(total), human_bytes(most));
  }
}

}  // namespace

bool is_out_of_memory(cl_int error, const Asked& asked) { return asked.api && BufferSource::out_of_memory(error); }

void report_out_of_memory(OpenclState& s, const Asked& asked, cl_int error) {
  if (phase() != Phase::running) return;
  Uncounted uncounted;
  StringSink line;
  line.print("{}{}{}: out of memory ({})", asked.api, asked.bytes ? " of " : "",
             asked.bytes ? human_bytes(asked.bytes) : String(), name_of(error));
  line.print("; opencl: {} live in {}", human_bytes(read(s.counters.live_bytes)),
             counted(read(s.counters.live_blocks), "block"));
  print_devices(line, asked);
  print_other_kinds(line, kind);
  const PoolUsage usage = s.pool.usage();
  if (usage.blocks)
    line.print("; retained: {}, largest block {}", human_bytes(usage.bytes), human_bytes(usage.largest_bytes));
  holdings(s).print(line);
  print_this_call(line, site_of_call(s, asked.api));
  StringSink alike;
  alike.print("{}: out of memory ({})", asked.api, name_of(error));
  warn_line(line.text(), alike.text());
}

}  // namespace cistern::opencl
