// OpenCL commands that copy: counted, with direction, kind of host memory and call site, and passed on.
// Reads and writes of mapped memory are no calls, and so no copies here.
#include "shim/opencl/hooks/command.hpp"
#include "shim/opencl/hooks/hooks.hpp"

namespace cistern::opencl {
namespace {

// One call that copies, described after the driver has looked at its arguments: those of a call that failed may be
// anything.
class Copied {
 public:
  Copied(const char* api, cl_command_queue queue, bool blocking, const cl_event* event, cl_int error,
         std::uint64_t took_ns)
      : api_(api), queue_(queue), blocking_(blocking), event_(event), error_(error), took_ns_(took_ns) {}

  void to_device(const void* host, std::uint64_t bytes) { add(CopyDirection::host_to_device, pageable(host), bytes); }
  void to_host(const void* host, std::uint64_t bytes) { add(CopyDirection::device_to_host, pageable(host), bytes); }
  void between_devices(std::uint64_t bytes) { add(CopyDirection::device_to_device, false, bytes); }
  // Shared virtual memory counts as the device's.
  void either(const void* target, const void* source, std::uint64_t bytes) {
    const bool to_host = pageable(target), from_host = pageable(source);
    add(to_host ? (from_host ? CopyDirection::host_to_host : CopyDirection::device_to_host)
                : (from_host ? CopyDirection::host_to_device : CopyDirection::device_to_device),
        to_host || from_host, bytes);
  }

  std::uint64_t volume(const std::size_t* region) const {
    return error_ == kSuccess ? std::uint64_t{region[0]} * region[1] * region[2] : 0;
  }
  std::uint64_t volume(const std::size_t* region, cl_mem image) const {
    std::size_t element = 0;
    if (error_ == kSuccess) next().clGetImageInfo(image, kImageElementSize, sizeof element, &element, nullptr);
    return element ? volume(region) * element : 0;
  }

 private:
  bool pageable(const void* host) const { return !s_.host_ranges.find(reinterpret_cast<std::uintptr_t>(host)); }

  void add(CopyDirection direction, bool pageable, std::uint64_t bytes) {
    const TransferKey key{direction, pageable, !blocking_, capture(s_, api_), api_};
    if (error_ != kSuccess) return s_.transfers.add_failed(key, 1);
    s_.transfers.add(key, 1, bytes);
    if (blocking_) return s_.transfers.add_time(key, 1, bytes, took_ns_);
    const bool profiled = s_.queues.with(queue_, [](const Queue* record) { return record && record->profiled; });
    if (!profiled || !event_ || !*event_) return;
    s_.counted.with(*event_, [&](Counted* record) {
      if (record) record->copy = {key, bytes};
    });
  }

  OpenclState& s_ = state();
  const char* const api_;
  const cl_command_queue queue_;
  const bool blocking_;
  const cl_event* const event_;
  const cl_int error_;
  const std::uint64_t took_ns_;
};

}  // namespace

namespace hook {

#define OPENCL_COPY(slot, name, parameters, arguments, blocking, copied, ...)                                     \
  cl_int name parameters {                                                                                        \
    const std::initializer_list<const void*> used = {__VA_ARGS__};                                                \
    const std::uint64_t begin_ns = nanoseconds_since_start();                                                     \
    const cl_int error = command(queue, blocking, event, std::span(used), [&] { return next().name arguments; }); \
    const std::uint64_t took_ns = nanoseconds_since_start() - begin_ns;                                           \
    Copied copying(#name, queue, blocking, event, error, took_ns);                                                \
    copying.copied;                                                                                               \
    return error;                                                                                                 \
  }
#include "shim/symbols/opencl.def"

}  // namespace hook
}  // namespace cistern::opencl
