// Copies. Each is counted with direction, type of host memory and call site, and passed on. Copies between pageable
// host memory and a device may go through bounce buffers instead (staging.hpp). A copy that names a block which the
// program has freed is refused (kept.hpp). An error that breaks the context is noted.
//
//   hook (a CUDA_COPY row of symbols/cuda.def) -> its last column: Copying::to_device and others describe the copy
//                                              -> Copying::run -> staging.copy, or the program's own call
#include <algorithm>
#include <functional>
#include <string_view>

#include "shim/cuda/hooks/gathering.hpp"
#include "shim/cuda/hooks/hooks.hpp"
#include "shim/cuda/hooks/kept.hpp"
#include "shim/cuda/state.hpp"
#include "shim/cuda/stream_turn.hpp"
#include "shim/process/kind.hpp"

namespace cistern::cuda {
namespace {

enum class Blocking { no, yes };
enum class MemoryType { device, pinned, pageable, unknown };

// The stream of a copy. Without one the copy is on a default stream, and the call waits for it.
struct On {
  On(Blocking) : waits(true) {}
  On(CUstream stream) : stream(stream) {}
  bool waits = false;
  CUstream stream = nullptr;
};

// The type of the memory at an address. Cistern's tables know most of it. Else the driver is asked; memory that it does
// not know is pageable.
MemoryType memory_type_of(CudaState& s, std::uintptr_t address) {
  if (const auto range = s.blocks.ranges.find(address))
    return range->value.kind == RangeKind::device ? MemoryType::device : MemoryType::pinned;
  if (!driver().cuPointerGetAttribute || in_host_function) return MemoryType::unknown;
  int type = 0;
  s.account.counters(Family::device).driver_queries.fetch_add(1, std::memory_order_relaxed);
  if (driver().cuPointerGetAttribute(&type, kPointerMemoryType, address) != kSuccess) return MemoryType::pageable;
  return type == kMemoryHost ? MemoryType::pinned : MemoryType::device;
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

// Whether all pitches are valid, none is left for the driver to choose, and no size overflows.
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

// A batch of copies: references to the arguments of the program's call, so that a part of the batch can replace them.
struct Batch {
  CUdeviceptr *&targets, *&sources;
  std::size_t*& sizes;
  std::size_t& count;
  CUmemcpyAttributes*& attributes;
  std::size_t*& first_copies;  // the first copy of each of the attributes
  std::size_t& attribute_count;
  std::size_t* failed;  // where the program wants to know which copy could not be made

  bool has_attributes() const {
    return attributes && first_copies && attribute_count && attribute_count <= count && !first_copies[0] &&
           std::adjacent_find(first_copies, first_copies + attribute_count, std::greater_equal<>()) ==
               first_copies + attribute_count;
  }
  const CUmemcpyAttributes& attributes_of(std::size_t index) const {
    return attributes[std::upper_bound(first_copies, first_copies + attribute_count, index) - first_copies - 1];
  }
};

// While this lives, the arguments of the program's call name only some copies of the batch.
class PartOfBatch {
 public:
  PartOfBatch(Batch& whole, const Vector<std::size_t>& indices)
      : whole_(whole), arguments_{whole.targets,    whole.sources,      whole.sizes,          whole.count,
                                  whole.attributes, whole.first_copies, whole.attribute_count} {
    for (std::size_t i = 0; i < indices.size(); ++i) {
      targets_.push_back(whole.targets[indices[i]]);
      sources_.push_back(whole.sources[indices[i]]);
      sizes_.push_back(whole.sizes[indices[i]]);
      attributes_.push_back(whole.attributes_of(indices[i]));
      first_copies_.push_back(i);
    }
    pass({targets_.data(), sources_.data(), sizes_.data(), indices.size(), attributes_.data(), first_copies_.data(),
          indices.size()});
  }
  ~PartOfBatch() { pass(arguments_); }
  PartOfBatch(const PartOfBatch&) = delete;
  PartOfBatch& operator=(const PartOfBatch&) = delete;

 private:
  struct Arguments {
    CUdeviceptr *targets, *sources;
    std::size_t *sizes, count;
    CUmemcpyAttributes* attributes;
    std::size_t *first_copies, attribute_count;
  };
  void pass(const Arguments& arguments) {
    whole_.targets = arguments.targets;
    whole_.sources = arguments.sources;
    whole_.sizes = arguments.sizes;
    whole_.count = arguments.count;
    whole_.attributes = arguments.attributes;
    whole_.first_copies = arguments.first_copies;
    whole_.attribute_count = arguments.attribute_count;
  }

  Batch& whole_;
  const Arguments arguments_;  // the program's
  Vector<CUdeviceptr> targets_, sources_;
  Vector<std::size_t> sizes_, first_copies_;
  Vector<CUmemcpyAttributes> attributes_;
};

// One call that copies. The hook calls one of the first functions, which describes the copy, and then run().
class Copying {
 public:
  Copying(const char* api, Zero zero) : api_(api), zero_(zero) {}

  void to_device(CUdeviceptr target, const void* source, std::uint64_t bytes, On on) {
    use(target, bytes);
    const MemoryType from = memory_type_of_host(source, bytes);
    note(MemoryType::device, from, bytes, on);
    if (from != MemoryType::device) linear(true, source, target, bytes, on).pageable = from == MemoryType::pageable;
  }
  void to_host(const void* target, CUdeviceptr source, std::uint64_t bytes, On on) {
    use(source, bytes);
    const MemoryType to = memory_type_of_host(target, bytes);
    note(to, MemoryType::device, bytes, on);
    if (to != MemoryType::device) linear(false, target, source, bytes, on).pageable = to == MemoryType::pageable;
  }
  // Copies of an array by an offset in bytes are passed on.
  void to_array(const void* source, std::uint64_t bytes, On on) {
    note(MemoryType::device, memory_type_of_host(source, bytes), bytes, on);
    linear(true, source, 0, bytes, on).unfit = Unstaged::shape;
  }
  void from_array(const void* target, std::uint64_t bytes, On on) {
    note(memory_type_of_host(target, bytes), MemoryType::device, bytes, on);
    linear(false, target, 0, bytes, on).unfit = Unstaged::shape;
  }
  void either(CUdeviceptr target, CUdeviceptr source, std::uint64_t bytes, On on) {
    use(target, bytes);
    use(source, bytes);
    const MemoryType to = memory_type_of(s_, target), from = memory_type_of(s_, source);
    note(to, from, bytes, on);
    if (to == MemoryType::device && from != MemoryType::device)
      linear(true, reinterpret_cast<const void*>(source), target, bytes, on).pageable = from == MemoryType::pageable;
    if (to != MemoryType::device && from == MemoryType::device)
      linear(false, reinterpret_cast<const void*>(target), source, bytes, on).pageable = to == MemoryType::pageable;
  }
  void between_devices(CUdeviceptr target, CUdeviceptr source, std::uint64_t bytes, On on) {
    use(target, bytes);
    use(source, bytes);
    note(MemoryType::device, MemoryType::device, bytes, on);
  }
  void described_across_contexts(const CUDA_MEMCPY3D* copy, On on) {
    across_contexts(on);
    if (!copy) return;
    shape_ = *copy;
    use_sides();
  }
  void across_contexts(On on) {
    on_ = on;
    s_.contexts.note_copy_across();
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
  void with_attributes(CUdeviceptr target, CUdeviceptr source, std::uint64_t bytes,
                       const CUmemcpyAttributes* attributes, On on) {
    either(target, source, bytes, on);
    if (host_copy_ && (!attributes || forbids_staging(*attributes, *host_copy_)))
      host_copy_->unfit = Unstaged::source_order;
  }
  void batch(const Batch& all, On on) {
    on_ = on;
    if (!all.targets || !all.sources || !all.sizes) return;
    const bool has_attributes = all.has_attributes();
    for (std::size_t i = 0; i < all.count; ++i) {
      use(all.targets[i], all.sizes[i], all.failed, i);
      use(all.sources[i], all.sizes[i], all.failed, i);
    }
    if (refused_) return;
    batch_.emplace(all);
    for (std::size_t i = 0; i < all.count; ++i) add_of_batch(i, has_attributes ? &all.attributes_of(i) : nullptr, on);
    host_copy_.reset();
  }
  // Extents are in elements, whose size only the arrays know: bytes are counted between pointers.
  void batch_3d(const CUDA_MEMCPY3D_BATCH_OP* copies, std::size_t count, On on, std::size_t* failed = nullptr) {
    on_ = on;
    for (std::size_t i = 0; copies && i < count; ++i) {
      const CUDA_MEMCPY3D_BATCH_OP& copy = copies[i];
      for (const auto* side : {&copy.target, &copy.source})
        if (side->type == kOperandPointer) use(side->pointer.address, copy.width * copy.height * copy.depth, failed, i);
      if (copy.source.type != kOperandPointer || copy.target.type != kOperandPointer || refused_) continue;
      either(copy.target.pointer.address, copy.source.pointer.address, copy.width * copy.height * copy.depth, on);
      if (!host_copy_) continue;
      host_copy_->unfit = Unstaged::shape;
      s_.staging.leaves(s_, *host_copy_);
      host_copy_.reset();
    }
  }

  // Holds the copy back, if it is one that can be. Nothing: it is to be made now.
  std::optional<CUresult> hold() {
    if (!host_copy_ || refused_) return std::nullopt;
    const std::uint64_t begin_ns = nanoseconds_since_start();
    const std::optional<CUresult> answer = s_.gather.hold(s_, *host_copy_);
    if (answer) account(*answer, nanoseconds_since_start() - begin_ns);
    return answer;
  }

  // `pass` makes the program's own call.
  template <class Pass>
  CUresult run(Pass pass) {
    const std::uint64_t begin_ns = nanoseconds_since_start();
    const CUresult answer = [&] {
      if (refused_) [[unlikely]]
        return kInvalidValue;
      StreamTurn turn(s_, on_.stream, zero_);
      if (batch_ && !of_batch_.empty()) return run_batch(turn, pass);
      return host_copy_ ? s_.staging.copy(s_, *host_copy_, turn, pass) : pass();
    }();
    account(answer, nanoseconds_since_start() - begin_ns);
    if (is_sticky(answer)) cuda::note(s_, answer);
    return answer;
  }

 private:
  struct Noted {
    std::uint64_t count, bytes;
  };
  struct OfBatch {
    std::size_t index;
    HostCopy copy;
  };

  // Attributes are about the source: the target is written in the order of the stream in any case. Pageable memory of
  // the host can be read now, unless it has to be read in the order of the stream too. A copy to the host waits for the
  // device. A call may wait only if it is done with its source when it returns.
  static bool forbids_staging(const CUmemcpyAttributes& attributes, const HostCopy& copy) {
    const int order = attributes.source_access_order;
    return order != kSourceDuringCall && (order != kSourceAnyTime || !copy.to_device);
  }

  // Copies of a batch have no order among themselves: those that may be staged are made one by one, the others by one
  // call of the program's.
  void add_of_batch(std::size_t index, const CUmemcpyAttributes* attributes, On on) {
    host_copy_.reset();
    with_attributes(batch_->targets[index], batch_->sources[index], batch_->sizes[index], attributes, on);
    if (host_copy_ && stream_of(on) == legacy_stream())
      host_copy_->unfit = Unstaged::unknown_context;  // it is refused there
    if (host_copy_ && !s_.staging.leaves(s_, *host_copy_)) of_batch_.push_back({index, *host_copy_});
  }
  template <class Pass>
  CUresult run_batch(StreamTurn& turn, Pass pass) {
    Vector<std::size_t> rest;
    for (std::size_t i = 0, next = 0; i < batch_->count; ++i)
      next < of_batch_.size() && of_batch_[next].index == i ? static_cast<void>(++next) : rest.push_back(i);
    for (const OfBatch& one : of_batch_) {
      const PartOfBatch part(*batch_, {one.index});
      const CUresult answer = s_.staging.copy(s_, one.copy, turn, pass);
      if (answer == kSuccess) continue;
      if (batch_->failed) *batch_->failed = one.index;
      return answer;
    }
    if (rest.empty()) return kSuccess;
    const PartOfBatch part(*batch_, rest);
    const CUresult answer = pass();
    if (answer != kSuccess && batch_->failed && *batch_->failed < rest.size()) *batch_->failed = rest[*batch_->failed];
    return answer;
  }

  // The copy uses device memory there: refused, if that is a block which the program has freed.
  void use(CUdeviceptr first, std::uint64_t bytes, std::size_t* failed = nullptr, std::size_t index = 0) {
    if (refused_ || !refuses(s_, in_use_, api_, first, bytes)) [[likely]]
      return;
    refused_ = true;
    if (failed) *failed = index;
  }
  void use_sides() {
    for (const CUDA_MEMCPY3D::Side* side : {&shape_.target, &shape_.source})
      if (side->memory_type == kMemoryDevice || side->memory_type == kMemoryUnified)
        use(side->device + (side->z * side->height + side->y) * side->pitch + side->x_bytes, spanned_by(*side));
  }

  std::uint64_t spanned_by(const CUDA_MEMCPY3D::Side& side) const {
    const std::uint64_t slice = spanned(side.pitch, shape_.width_bytes, shape_.height);
    if (shape_.depth <= 1 || !slice) return shape_.depth ? slice : 0;
    return spanned(side.pitch * side.height, slice, shape_.depth);
  }

  // Drivers accept a device's address where a host address is expected.
  MemoryType memory_type_of_host(const void* host, std::uint64_t bytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(host);
    const auto range = s_.blocks.ranges.find(address);
    if (!range) return MemoryType::pageable;
    if (range->value.kind == RangeKind::device) use(address, bytes);
    return MemoryType::pinned;
  }
  MemoryType memory_type_of_side(const CUDA_MEMCPY3D::Side& side, std::uint64_t bytes) {
    if (side.memory_type == kMemoryHost) return memory_type_of_host(side.host, bytes);
    return side.memory_type == kMemoryUnified ? memory_type_of(s_, side.device) : MemoryType::device;
  }

  void described(On on) {
    use_sides();
    const std::uint64_t bytes = shape_.width_bytes * shape_.height * shape_.depth;
    const MemoryType to = memory_type_of_side(shape_.target, bytes), from = memory_type_of_side(shape_.source, bytes);
    note(to, from, bytes, on);
    const bool to_device = to == MemoryType::device;
    if (!bytes || to_device == (from == MemoryType::device)) return;
    const CUDA_MEMCPY3D::Side& host = to_device ? shape_.source : shape_.target;
    const std::size_t pitch = host.pitch, slice_pitch = host.pitch * host.height;
    const std::uintptr_t base =
        host.memory_type == kMemoryHost ? reinterpret_cast<std::uintptr_t>(host.host) : host.device;
    host_copy_.emplace(HostCopy{
        .to_device = to_device,
        .waits = on.waits,
        .stream = stream_of(on),
        .host = {reinterpret_cast<char*>(base + host.z * slice_pitch + host.y * pitch + host.x_bytes), pitch,
                 slice_pitch},
        .box = {shape_.width_bytes, shape_.height, shape_.depth},
        .pageable = (to_device ? from : to) == MemoryType::pageable,
        .described = &shape_,
        .unfit = is_plain(shape_.source, shape_) && is_plain(shape_.target, shape_) ? std::nullopt
                                                                                    : std::optional(Unstaged::shape)});
  }

  HostCopy& linear(bool to_device, const void* host, CUdeviceptr device, std::uint64_t bytes, On on) {
    return host_copy_.emplace(HostCopy{.to_device = to_device,
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

  void note(MemoryType to, MemoryType from, std::uint64_t bytes, On on) {
    const bool to_device = to == MemoryType::device, from_device = from == MemoryType::device;
    if (to_device && from_device) across_contexts(on);
    const CopyDirection direction =
        to_device ? (from_device ? CopyDirection::device_to_device : CopyDirection::host_to_device)
                  : (from_device ? CopyDirection::device_to_host : CopyDirection::host_to_host);
    Noted& noted = noted_[static_cast<int>(direction)][to == MemoryType::pageable || from == MemoryType::pageable];
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
        const TransferKey key{static_cast<CopyDirection>(direction), pageable, !on_.waits, site_of_call(s_, api), api};
        if (answer != kSuccess) {
          s_.transfers.add_failed(key, noted.count);
          continue;
        }
        s_.transfers.add(key, noted.count, noted.bytes);
        record_copy(kRecordedCopies, key, noted.count, noted.bytes, stream_key(on_.stream, zero_));
        if (on_.waits)
          s_.transfers.add_time(key, noted.count, noted.bytes, took_ns);
        else
          s_.transfers.last_was(key, stream_key(on_.stream, zero_));
        if (host_copy_) account_memory(key, *host_copy_);
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
    if (!copy.pageable || copy.described || copy.unfit) return;
    if (copy.to_device) return s_.round_trips.sent({copy.device, 0}, copy.host.base, copy.box.bytes());
    if (const auto same = s_.round_trips.returned({copy.device, 0}, copy.host.base, copy.box.bytes()))
      s_.transfers.add_return(key, *same);
  }
  static std::size_t pitches(const staging::Side& side) { return side.row_pitch | side.slice_pitch; }

  CudaState& s_ = state();
  InUse in_use_;
  const char* const api_;
  const Zero zero_;
  On on_ = CUstream{};
  bool refused_ = false;
  Noted noted_[static_cast<int>(CopyDirection::count)][2]{};
  CUDA_MEMCPY3D shape_{};
  std::optional<HostCopy> host_copy_;
  std::optional<Batch> batch_;
  Vector<OfBatch> of_batch_;
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

namespace gathering {
namespace {

// Others describe no single copy of bytes to a device: not worth a look.
constexpr bool may_be_held(std::string_view name) {
  return name.starts_with("cuMemcpyHtoD") || name == "cuMemcpy" || name == "cuMemcpy_ptds" || name == "cuMemcpyAsync" ||
         name == "cuMemcpyAsync_ptsz";
}

}  // namespace

// hold() sends what is held, or else it is sent before the hook is called: for a copy that the hook refuses, too.
#define CUDA_COPY(base, version, stream, name, parameters, arguments, copied)    \
  CUresult name parameters {                                                     \
    if constexpr (may_be_held(#name)) {                                          \
      Copying copying(#name, Zero::stream);                                      \
      copying.copied;                                                            \
      if (const std::optional<CUresult> answer = copying.hold()) return *answer; \
    }                                                                            \
    const CUresult late = before_call(Sent::other_copy, Tells::yes);             \
    return late == kSuccess ? hook::name arguments : late;                       \
  }
#include "shim/symbols/cuda.def"

}  // namespace gathering
}  // namespace cistern::cuda
