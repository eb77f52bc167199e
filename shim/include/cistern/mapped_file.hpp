// Files of elements that are larger than a device's memory, seen there in chunks (cistern/mapped.h).
//
//   for (std::uint64_t i = 0; i < file.chunks(); ++i) {
//     auto chunk = file.acquire(i, stream).value();
//     kernel<<<..., stream>>>(chunk.data(), chunk.size());
//   }                                                      // given back here: the next is read while the kernel runs
#ifndef CISTERN_MAPPED_FILE_HPP
#define CISTERN_MAPPED_FILE_HPP

#include <cistern/mapped.h>
#include <cistern/buffer.hpp>

namespace cistern {

struct mapped_options {
  std::size_t chunk_bytes = 0;    // 0: 256 MiB; rounded down to whole elements
  unsigned chunks_on_device = 0;  // 0: 2
  bool writable = false;
  std::uint64_t elements = 0;  // writable: so many at least, made if need be; 0: as it is
};

template <element T>
class mapped_file;

// One chunk on the device, until it is given back: work on it is enqueued on the stream that it was acquired for.
template <element T>
class chunk {
 public:
  chunk(chunk&& other) noexcept
      : file_(std::exchange(other.file_, nullptr)),
        index_(other.index_),
        on_(other.on_),
        address_(other.address_),
        count_(other.count_),
        is_opencl_(other.is_opencl_) {}
  chunk& operator=(chunk&& other) noexcept {
    static_cast<void>(release());
    file_ = std::exchange(other.file_, nullptr);
    index_ = other.index_;
    on_ = other.on_;
    address_ = other.address_;
    count_ = other.count_;
    is_opencl_ = other.is_opencl_;
    return *this;
  }
  ~chunk() { static_cast<void>(release()); }

  T* data() const noexcept { return is_opencl_ ? nullptr : static_cast<T*>(address_); }
  _cl_mem* memory_object() const noexcept { return is_opencl_ ? static_cast<_cl_mem*>(address_) : nullptr; }
  std::size_t size() const noexcept { return count_; }
  std::uint64_t index() const noexcept { return index_; }
  // Before its end, for the answer. On failure it is still acquired.
  result<void> release() noexcept {
    if (!file_) return {};
    const result<void> answer("chunk::release", cistern_mapped_release(file_, index_, on_.get()));
    if (answer) file_ = nullptr;
    return answer;
  }

 private:
  template <element U>
  friend class mapped_file;
  chunk(cistern_mapped* file, std::uint64_t index, stream on, void* address, std::size_t count, bool is_opencl) noexcept
      : file_(file), index_(index), on_(on), address_(address), count_(count), is_opencl_(is_opencl) {}

  cistern_mapped* file_;
  std::uint64_t index_;
  stream on_;
  void* address_;
  std::size_t count_;
  bool is_opencl_;
};

template <element T>
class mapped_file {
 public:
  mapped_file() noexcept = default;
  mapped_file(mapped_file&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), where_(other.where_), info_(other.info_) {}
  mapped_file& operator=(mapped_file&& other) noexcept {
    mapped_file old(std::move(*this));
    handle_ = std::exchange(other.handle_, nullptr);
    where_ = other.where_;
    info_ = other.info_;
    return *this;
  }
  // What cannot be written back then is lost: call close() where that matters. No chunk outlives its file.
  ~mapped_file() {
    if (!handle_ || cistern_mapped_close(handle_) == CISTERN_OK) return;
    cistern_mapped_forget(handle_);
    cistern_mapped_close(handle_);
  }

  // CISTERN_MISMATCH: not a whole number of elements.
  static result<mapped_file> open(const char* path, place where = on_device(),
                                  const mapped_options& options = {}) noexcept {
    constexpr const char* kCall = "mapped_file::open";
    constexpr std::size_t kUsually = std::size_t{256} << 20;
    const std::size_t wanted = options.chunk_bytes ? options.chunk_bytes : kUsually;
    if (options.elements > PTRDIFF_MAX / sizeof(T)) return failure{CISTERN_INVALID, kCall};
    auto settings = sized<cistern_mapped_settings>();
    settings.path = path;
    settings.chunk_bytes = wanted < sizeof(T) ? sizeof(T) : wanted / sizeof(T) * sizeof(T);
    settings.chunks_on_device = options.chunks_on_device;
    settings.kind = where.kind;
    settings.device = where.device;
    settings.context = where.context;
    settings.flags = where.flags;
    settings.queue = where.queue.get();
    settings.writable = options.writable;
    settings.bytes = options.elements * sizeof(T);
    mapped_file opened;
    if (const cistern_status status = cistern_mapped_open(&settings, &opened.handle_); status != CISTERN_OK)
      return detail::failed(kCall, status);
    opened.where_ = where;
    opened.info_ = opened.info();
    if (opened.info_.bytes % sizeof(T)) return failure{CISTERN_MISMATCH, kCall};
    return opened;
  }

  std::uint64_t size() const noexcept { return info_.bytes / sizeof(T); }
  std::uint64_t chunks() const noexcept { return info_.chunks; }
  std::size_t chunk_size() const noexcept { return static_cast<std::size_t>(info_.chunk_bytes / sizeof(T)); }

  result<chunk<const T>> acquire(std::uint64_t index, stream on = {}) noexcept {
    return get<const T>("mapped_file::acquire", index, CISTERN_READ, on);
  }
  // To be written back; overwritten: all of it, and the file's is not read.
  result<chunk<T>> acquire_mut(std::uint64_t index, stream on = {}) noexcept {
    return get<T>("mapped_file::acquire_mut", index, CISTERN_WRITE, on);
  }
  result<chunk<T>> acquire_overwrite(std::uint64_t index, stream on = {}) noexcept {
    return get<T>("mapped_file::acquire_overwrite", index, CISTERN_OVERWRITE, on);
  }
  result<void> flush() noexcept {
    if (!handle_) return failure{CISTERN_EMPTY, "mapped_file::flush"};
    return {"mapped_file::flush", cistern_mapped_flush(handle_)};
  }
  // On failure it is open as before.
  result<void> close() noexcept {
    if (!handle_) return {};
    const result<void> answer("mapped_file::close", cistern_mapped_close(handle_));
    if (answer) handle_ = nullptr;
    return answer;
  }
  cistern_mapped_info info() const noexcept {
    auto all = sized<cistern_mapped_info>();
    if (handle_) cistern_mapped_get_info(handle_, &all);
    return all;
  }

 private:
  template <class U>
  result<chunk<U>> get(const char* call, std::uint64_t index, cistern_access access, stream on) noexcept {
    if (!handle_) return failure{CISTERN_EMPTY, call};
    if (!on.get()) on = where_.queue;
    void* address = nullptr;
    std::size_t bytes = 0;
    const cistern_status status = cistern_mapped_acquire(handle_, index, access, on.get(), &address, &bytes);
    if (status != CISTERN_OK) return detail::failed(call, status);
    return chunk<U>(handle_, index, on, address, bytes / sizeof(T), where_.kind == CISTERN_OPENCL);
  }

  cistern_mapped* handle_ = nullptr;
  place where_;
  cistern_mapped_info info_{};
};

}  // namespace cistern
#endif
