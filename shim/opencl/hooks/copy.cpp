// OpenCL commands that copy: counted, with direction, kind of host memory and call site, and passed on, but for those
// between pageable host memory and a buffer that go through bounce buffers (staging.hpp), and those that name a
// released buffer, which are refused (misuse.hpp).
#include "shim/opencl/hooks/command.hpp"
#include "shim/opencl/hooks/copied.hpp"
#include "shim/opencl/hooks/hooks.hpp"
#include "shim/opencl/hooks/misuse.hpp"
#include "shim/process/kind.hpp"

namespace cistern::opencl {
namespace {

// --- What goes through chunks, if anything
std::optional<HostCopy> none() { return std::nullopt; }

// Only then the driver looks at the other arguments too.
bool are_known(cl_command_queue queue, cl_mem buffer) {
  OpenclState& s = state();
  return s.queues.with(queue, [](const Queue* record) { return record != nullptr; }) &&
         s.memory.with(buffer, [](const MemoryRecord* record) { return record && record->state == MemoryState::live; });
}

std::optional<HostCopy> linear(bool to_device, cl_command_queue queue, cl_mem buffer, std::size_t offset,
                               const void* host, std::size_t bytes) {
  if (!host || !are_known(queue, buffer)) return std::nullopt;
  return HostCopy{.to_device = to_device,
                  .queue = queue,
                  .buffer = buffer,
                  .host = {static_cast<char*>(const_cast<void*>(host))},
                  .box = {bytes},
                  .offset = offset};
}

// Where a box lies in memory with these pitches, of which 0 stands for no gaps. Nothing: it reaches out of its rows or
// slices, or beyond all memory.
struct Placed {
  std::size_t offset, row_pitch, slice_pitch;
};
std::optional<Placed> place(const std::size_t* origin, const std::size_t* region, std::size_t row_pitch,
                            std::size_t slice_pitch) {
  constexpr std::size_t kMost = std::size_t{1} << 40;
  for (const std::size_t number : {origin[0], origin[1], origin[2], region[0], region[1], region[2], row_pitch})
    if (number >= kMost) return std::nullopt;
  if (!row_pitch) row_pitch = region[0];
  const bool one_slice = origin[2] + region[2] == 1;
  if (!slice_pitch && __builtin_mul_overflow(row_pitch, one_slice ? origin[1] + region[1] : region[1], &slice_pitch))
    return std::nullopt;
  std::size_t end = 0;
  if (origin[0] + region[0] > row_pitch || slice_pitch % row_pitch != 0 ||
      origin[1] + region[1] > slice_pitch / row_pitch ||
      __builtin_mul_overflow(origin[2] + region[2], slice_pitch, &end) || end >= kMost)
    return std::nullopt;
  return Placed{origin[2] * slice_pitch + origin[1] * row_pitch + origin[0], row_pitch, slice_pitch};
}

std::optional<HostCopy> rect(bool to_device, cl_command_queue queue, cl_mem buffer, const std::size_t* buffer_origin,
                             const std::size_t* host_origin, const std::size_t* region, std::size_t buffer_row_pitch,
                             std::size_t buffer_slice_pitch, std::size_t host_row_pitch, std::size_t host_slice_pitch,
                             const void* host) {
  if (!host || !buffer_origin || !host_origin || !region || !are_known(queue, buffer)) return std::nullopt;
  if (!region[0] || !region[1] || !region[2]) return std::nullopt;
  const auto in_buffer = place(buffer_origin, region, buffer_row_pitch, buffer_slice_pitch);
  const auto in_host = place(host_origin, region, host_row_pitch, host_slice_pitch);
  const Placed none{}, &of_buffer = in_buffer ? *in_buffer : none, &of_host = in_host ? *in_host : none;
  return HostCopy{
      .to_device = to_device,
      .queue = queue,
      .buffer = buffer,
      .host = {static_cast<char*>(const_cast<void*>(host)) + of_host.offset, of_host.row_pitch, of_host.slice_pitch},
      .box = {region[0], region[1], region[2]},
      .offset = of_buffer.offset,
      .row_pitch = of_buffer.row_pitch,
      .slice_pitch = of_buffer.slice_pitch,
      .stageable = in_buffer && in_host};
}

void look_at(const HostCopy& copy, Looked& looked) {
  OpenclState& s = state();
  const std::uintptr_t host = reinterpret_cast<std::uintptr_t>(copy.host.base);
  looked.unaligned = (host | copy.offset | copy.host.row_pitch | copy.row_pitch) % CopySite::kCopyAlignment != 0;
  note_copied(copy.host.base, copy.box.bytes());
  if (!copy.blocking || copy.row_pitch || s.host_ranges.find(host)) return;
  const DevicePlace place{reinterpret_cast<std::uintptr_t>(copy.buffer), copy.offset};
  if (copy.to_device)
    s.round_trips.sent(place, copy.host.base, copy.box.bytes());
  else
    looked.unchanged = s.round_trips.returned(place, copy.host.base, copy.box.bytes());
}

// `pass` makes the program's own call.
template <class Pass>
cl_int copy(std::optional<HostCopy>&& what, bool blocking, bool events, QueueTurn& turn, Looked& looked, Pass pass) {
  if (!what || !what->box.bytes()) return pass();
  what->blocking = blocking;
  what->events = events;
  const cl_int error = state().staging.copy(state(), *what, turn, pass);
  if (error == kSuccess) look_at(*what, looked);
  return error;
}

}  // namespace

namespace hook {

#define OPENCL_COPY(slot, name, parameters, arguments, blocking, copied, staged, ...)                   \
  cl_int name parameters {                                                                              \
    const std::initializer_list<const void*> used = {__VA_ARGS__};                                      \
    if (const cl_int refused = refuse_kept(#name, queue, used)) [[unlikely]]                            \
      return refused;                                                                                   \
    Looked looked;                                                                                      \
    const std::uint64_t begin_ns = nanoseconds_since_start();                                           \
    const auto pass = [&] { return next().name arguments; };                                            \
    const WaitList wait{wait_count, wait_list};                                                         \
    const cl_int error = command(queue, blocking, wait, event, std::span(used), [&](QueueTurn& turn) {  \
      return copy(staged, blocking, event || wait_count, turn, looked, pass);                           \
    });                                                                                                 \
    Copied copying(#name, queue, blocking, event, error, nanoseconds_since_start() - begin_ns, looked); \
    copying.copied;                                                                                     \
    return error;                                                                                       \
  }
#include "shim/symbols/opencl.def"

}  // namespace hook
}  // namespace cistern::opencl
