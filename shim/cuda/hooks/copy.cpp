// Copies: counted, with direction, kind of host memory and call site, and passed on, but for those between pageable
// host memory and a device that go through pinned chunks (staging.hpp). An error that breaks the context is noted.
#include <algorithm>

#include "shim/cuda/hooks/hooks.hpp"
#include "shim/cuda/state.hpp"
#include "shim/cuda/stream_turn.hpp"
#include "shim/process/kind.hpp"

namespace cistern::cuda {
namespace {

enum class Blocking { no, yes };
enum class Place { device, pinned, pageable, unknown };

// On a stream, or waiting on a default one.
struct On {
  On(Blocking) : waits(true) {}
  On(CUstream stream) : stream(stream) {}
  bool waits = false;
  CUstream stream = nullptr;
};

// Where an address lies: our own tables know most; else the driver does, and what it does not know is pageable.
Place place_of(CudaState& s, std::uintptr_t address) {
  if (const auto range = s.blocks.ranges.find(address))
    return range->value.kind == RangeKind::device ? Place::device : Place::pinned;
  int type = 0;
  counters(s, Family::device).driver_queries.fetch_add(1, std::memory_order_relaxed);
  if (driver().cuPointerGetAttribute(&type, kPointerMemoryType, address) != kSuccess) return Place::pageable;
  return type == kMemoryHost ? Place::pinned : Place::device;
}

Place place_of_host(CudaState& s, const void* host) {
  return s.blocks.ranges.find(reinterpret_cast<std::uintptr_t>(host)) ? Place::pinned : Place::pageable;
}

CUDA_MEMCPY3D::Side in_space(const CUDA_MEMCPY2D::Side& side) {
  CUDA_MEMCPY3D::Side all{};
  all.x_bytes = side.x_bytes;
  all.y = side.y;
  all.memory_type = side.memory_type;
  all.host = side.host;
  all.device = side.device;
  all.array = side.array;
  all.pitch = side.pitch;
  return all;
}

// Whether the pitches are what they must be, none left for the driver to choose, and all sizes can be counted with.
bool is_plain(const CUDA_MEMCPY3D::Side& side, const CUDA_MEMCPY3D& copy) {
  if (side.level) return false;
  if (side.memory_type == kMemoryArray) return true;
  std::size_t width = 0, rows = 0, bytes = 0;
  if (__builtin_add_overflow(side.x_bytes, copy.width_bytes, &width) ||
      __builtin_add_overflow(side.y, copy.height, &rows))
    return false;
  if (copy.height * copy.depth > 1 && side.pitch < width) return false;
  if (copy.depth > 1 && side.height < rows) return false;
  return !__builtin_mul_overflow(side.pitch, std::max(rows, side.height), &bytes) &&
         !__builtin_mul_overflow(bytes, side.z + copy.depth, &bytes) && bytes < PTRDIFF_MAX;
}

// One call that copies: described first, then run.
class Copying {
 public:
  Copying(const char* api, Zero zero) : api_(api), zero_(zero) {}

  void to_device(CUdeviceptr target, const void* source, std::uint64_t bytes, On on) {
    const Place from = place_of_host(s_, source);
    note(Place::device, from, bytes, on);
    if (from != Place::device) linear(true, source, target, bytes, on).pageable = from == Place::pageable;
  }
  void to_host(const void* target, CUdeviceptr source, std::uint64_t bytes, On on) {
    const Place to = place_of_host(s_, target);
    note(to, Place::device, bytes, on);
    if (to != Place::device) linear(false, target, source, bytes, on).pageable = to == Place::pageable;
  }
  // An array by an offset in bytes: passed on.
  void to_array(const void* source, std::uint64_t bytes, On on) {
    note(Place::device, place_of_host(s_, source), bytes, on);
    linear(true, source, 0, bytes, on).stageable = false;
  }
  void from_array(const void* target, std::uint64_t bytes, On on) {
    note(place_of_host(s_, target), Place::device, bytes, on);
    linear(false, target, 0, bytes, on).stageable = false;
  }
  void either(CUdeviceptr target, CUdeviceptr source, std::uint64_t bytes, On on) {
    const Place to = place_of(s_, target), from = place_of(s_, source);
    note(to, from, bytes, on);
    if (to == Place::device && from != Place::device)
      linear(true, reinterpret_cast<const void*>(source), target, bytes, on).pageable = from == Place::pageable;
    if (to != Place::device && from == Place::device)
      linear(false, reinterpret_cast<const void*>(target), source, bytes, on).pageable = to == Place::pageable;
  }
  void between_devices(std::uint64_t bytes, On on) { note(Place::device, Place::device, bytes, on); }
  void across_contexts(On on) {
    on_ = on;
    if (s_.contexts_alive.load(std::memory_order_relaxed) > 1) s_.shared_between_contexts.store(true);
  }
  void described_2d(const CUDA_MEMCPY2D* copy, On on) {
    if (!copy) return;
    shape_.source = in_space(copy->source);
    shape_.target = in_space(copy->target);
    shape_.width_bytes = copy->width_bytes;
    shape_.height = copy->height;
    shape_.depth = 1;
    described(on);
  }
  void described_3d(const CUDA_MEMCPY3D* copy, On on) {
    if (!copy) return;
    shape_ = *copy;
    described(on);
  }
  void batch(const CUdeviceptr* targets, const CUdeviceptr* sources, const std::size_t* sizes, std::size_t count,
             On on) {
    for (std::size_t i = 0; i < count; ++i) note(place_of(s_, targets[i]), place_of(s_, sources[i]), sizes[i], on);
  }
  // Extents are in elements, whose size only the arrays know: bytes are counted between pointers.
  void batch_3d(const CUDA_MEMCPY3D_BATCH_OP* copies, std::size_t count, On on) {
    on_ = on;
    for (std::size_t i = 0; i < count; ++i) {
      const CUDA_MEMCPY3D_BATCH_OP& copy = copies[i];
      if (copy.source.type == kOperandPointer && copy.target.type == kOperandPointer)
        note(place_of(s_, copy.target.pointer.address), place_of(s_, copy.source.pointer.address),
             copy.width * copy.height * copy.depth, on);
    }
  }

  // `pass` makes the program's own call.
  template <class Pass>
  CUresult run(Pass pass) {
    const std::uint64_t begin_ns = nanoseconds_since_start();
    const CUresult answer = [&] {
      StreamTurn turn(s_, on_.stream, zero_);
      return staged_ ? s_.staging.copy(s_, *staged_, turn, pass) : pass();
    }();
    account(answer, nanoseconds_since_start() - begin_ns);
    if (is_sticky(answer)) cuda::note(s_, answer);
    return answer;
  }

 private:
  struct Noted {
    std::uint64_t count, bytes;
  };

  Place place_of_side(const CUDA_MEMCPY3D::Side& side) {
    if (side.memory_type == kMemoryHost) return place_of_host(s_, side.host);
    return side.memory_type == kMemoryUnified ? place_of(s_, side.device) : Place::device;
  }

  void described(On on) {
    const Place to = place_of_side(shape_.target), from = place_of_side(shape_.source);
    const std::uint64_t bytes = shape_.width_bytes * shape_.height * shape_.depth;
    note(to, from, bytes, on);
    const bool to_device = to == Place::device;
    if (!bytes || to_device == (from == Place::device)) return;
    const CUDA_MEMCPY3D::Side& host = to_device ? shape_.source : shape_.target;
    const std::size_t pitch = host.pitch, slice_pitch = host.pitch * host.height;
    const std::uintptr_t base =
        host.memory_type == kMemoryHost ? reinterpret_cast<std::uintptr_t>(host.host) : host.device;
    staged_.emplace(
        HostCopy{.to_device = to_device,
                 .waits = on.waits,
                 .stream = stream_of(on),
                 .host = {reinterpret_cast<char*>(base + host.z * slice_pitch + host.y * pitch + host.x_bytes), pitch,
                          slice_pitch},
                 .box = {shape_.width_bytes, shape_.height, shape_.depth},
                 .pageable = (to_device ? from : to) == Place::pageable,
                 .described = &shape_,
                 .stageable = is_plain(shape_.source, shape_) && is_plain(shape_.target, shape_)});
  }

  HostCopy& linear(bool to_device, const void* host, CUdeviceptr device, std::uint64_t bytes, On on) {
    return staged_.emplace(HostCopy{.to_device = to_device,
                                    .waits = on.waits,
                                    .stream = stream_of(on),
                                    .host = {static_cast<char*>(const_cast<void*>(host))},
                                    .box = {bytes},
                                    .device = device});
  }

  CUstream stream_of(On on) const {
    if (on.stream) return on.stream;
    return zero_ == Zero::legacy ? legacy_stream() : per_thread_stream();
  }

  void note(Place to, Place from, std::uint64_t bytes, On on) {
    const bool to_device = to == Place::device, from_device = from == Place::device;
    if (to_device && from_device) across_contexts(on);
    const CopyDirection direction =
        to_device ? (from_device ? CopyDirection::device_to_device : CopyDirection::host_to_device)
                  : (from_device ? CopyDirection::device_to_host : CopyDirection::host_to_host);
    Noted& noted = noted_[static_cast<int>(direction)][to == Place::pageable || from == Place::pageable];
    ++noted.count;
    noted.bytes += bytes;
    on_ = on;
  }

  void account(CUresult answer, std::uint64_t took_ns) {
    Transfers::last_was_no_copy();
    // A node of a graph: no copy yet.
    if (s_.captures.any() && s_.captures.capturing(on_.stream, zero_ == Zero::per_thread)) return;
    const char* const api = api_name(api_);
    for (int direction = 0; direction < static_cast<int>(CopyDirection::count); ++direction)
      for (const bool pageable : {false, true}) {
        const Noted& noted = noted_[direction][pageable];
        if (!noted.count) continue;
        const TransferKey key{static_cast<CopyDirection>(direction), pageable, !on_.waits, capture(s_, api), api};
        if (answer != kSuccess) {
          s_.transfers.add_failed(key, noted.count);
          continue;
        }
        s_.transfers.add(key, noted.count, noted.bytes);
        if (on_.waits)
          s_.transfers.add_time(key, noted.count, noted.bytes, took_ns);
        else
          s_.transfers.last_was(key, stream_key(on_.stream, zero_));
        if (staged_) account_memory(key, *staged_);
      }
  }

  void account_memory(const TransferKey& key, const HostCopy& copy) {
    std::uintptr_t bits = reinterpret_cast<std::uintptr_t>(copy.host.base) | copy.device | pitches(copy.host);
    if (copy.described) {
      const CUDA_MEMCPY3D::Side& side = copy.to_device ? shape_.target : shape_.source;
      bits |= side.device | side.x_bytes | (copy.box.rows > 1 ? side.pitch : 0);
    }
    if (bits % CopySite::kCopyAlignment) s_.transfers.add_unaligned(key);
    if (copy.pageable) note_copied(copy.host.base, copy.box.bytes());
    if (!copy.pageable || copy.described || !copy.stageable) return;
    if (copy.to_device) return s_.round_trips.sent({copy.device, 0}, copy.host.base, copy.box.bytes());
    if (const auto same = s_.round_trips.returned({copy.device, 0}, copy.host.base, copy.box.bytes()))
      s_.transfers.add_return(key, *same);
  }
  static std::size_t pitches(const staging::Side& side) { return side.row_pitch | side.slice_pitch; }

  CudaState& s_ = state();
  const char* const api_;
  const Zero zero_;
  On on_ = CUstream{};
  Noted noted_[static_cast<int>(CopyDirection::count)][2]{};
  CUDA_MEMCPY3D shape_{};
  std::optional<HostCopy> staged_;
};

}  // namespace

namespace hook {

#define CUDA_COPY(base, version, stream, name, parameters, arguments, copied) \
  CUresult name parameters {                                                  \
    Copying copying(#name, Zero::stream);                                     \
    copying.copied;                                                           \
    return copying.run([&] { return driver().name arguments; });              \
  }
#include "shim/symbols/cuda.def"

}  // namespace hook
}  // namespace cistern::cuda
