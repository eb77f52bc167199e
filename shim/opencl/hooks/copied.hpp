// Calls that move memory, as the table of transfers has them: commands that copy and fill, maps (what they give to see,
// and what the program wrote there), and objects that are made with a copy of the host's memory. Those that the driver
// refused too.
#pragma once
#include <optional>

#include "shim/opencl/next.hpp"
#include "shim/opencl/state.hpp"

namespace cistern::opencl {

// What was seen of a copy between the host's memory and a buffer.
struct Looked {
  bool unaligned = false;
  std::optional<bool> unchanged{};  // since it was sent, where that was looked at
};

// One call that copies, described after the driver has looked at its arguments: those of a call that failed may be
// anything.
class Copied {
 public:
  Copied(const char* api, cl_command_queue queue, bool blocking, const cl_event* event, cl_int error,
         std::uint64_t took_ns, const Looked& looked)
      : api_(api),
        queue_(queue),
        blocking_(blocking),
        event_(event),
        error_(error),
        took_ns_(took_ns),
        looked_(looked) {}

  void to_device(const void* host, std::uint64_t bytes) { add(CopyDirection::host_to_device, pageable(host), bytes); }
  void to_host(const void* host, std::uint64_t bytes) { add(CopyDirection::device_to_host, pageable(host), bytes); }
  void fill(std::uint64_t bytes) { add(CopyDirection::fill, false, bytes); }
  // A map shows the program what is there, but for what it says it writes anew; the unmap takes back what it may have
  // written. Neither is pageable memory of the program's.
  void map(cl_bitfield flags, std::uint64_t bytes) {
    const bool shows = !(flags & kMapWriteInvalidate);
    if (shows || error_ != kSuccess)
      add(shows ? CopyDirection::device_to_host : CopyDirection::host_to_device, false, bytes);
  }
  void unmap(std::uint64_t written_bytes) { add(CopyDirection::host_to_device, false, written_bytes); }
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
    if (error_ == kSuccess) next().clGetImageInfo.own(image, kImageElementSize, sizeof element, &element, nullptr);
    return element ? volume(region) * element : 0;
  }

 private:
  bool pageable(const void* host) const { return !s_.host_ranges.find(reinterpret_cast<std::uintptr_t>(host)); }

  void add(CopyDirection direction, bool pageable, std::uint64_t bytes) {
    const TransferKey key{direction, pageable, !blocking_, site_of_call(s_, api_), api_};
    if (error_ != kSuccess) return s_.transfers.add_failed(key, 1);
    s_.transfers.add(key, 1, bytes);
    record_copy(kRecorded, key, 1, bytes, queue_);
    if (looked_.unaligned) s_.transfers.add_unaligned(key);
    if (looked_.unchanged) s_.transfers.add_return(key, *looked_.unchanged);
    if (blocking_) return s_.transfers.add_time(key, 1, bytes, took_ns_);
    s_.transfers.last_was(key, queue_);
    if (event_) Transfers::marks(*event_, queue_);
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
  const Looked looked_;
};

// An object that is made with what lies at `host` as its first contents: from before the call until it is counted.
class InitialCopy {
 public:
  InitialCopy(OpenclState& s, const char* api, cl_bitfield flags, const void* host)
      : s_(s), api_(api), host_(flags & kMemCopyHostPtr ? host : nullptr), begin_ns_(nanoseconds_since_start()) {}
  void count(bool made, std::uint64_t bytes) const {
    if (!host_) return;
    const std::uint64_t took_ns = nanoseconds_since_start() - begin_ns_;
    const bool pageable = !s_.host_ranges.find(reinterpret_cast<std::uintptr_t>(host_));
    const TransferKey key{CopyDirection::host_to_device, pageable, false, site_of_call(s_, api_), api_};
    if (!made) return s_.transfers.add_failed(key, 1);
    s_.transfers.add(key, 1, bytes);
    record_copy(kRecorded, key, 1, bytes, nullptr);
    s_.transfers.add_time(key, 1, bytes, took_ns);
  }

 private:
  OpenclState& s_;
  const char* const api_;
  const void* const host_;
  const std::uint64_t begin_ns_;
};

}  // namespace cistern::opencl
