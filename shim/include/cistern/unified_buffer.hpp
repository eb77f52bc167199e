// Elements that lie on the host and on a device, and know where they are newer (cistern/unified.h: the table of states,
// order, threads). Elements are counted, not bytes. Errors: result.hpp.
#ifndef CISTERN_UNIFIED_BUFFER_HPP
#define CISTERN_UNIFIED_BUFFER_HPP

#include <cistern/unified.h>
#include <cistern/buffer.hpp>

namespace cistern {

// Part of a buffer: `count` elements from `first` on.
struct part {
  std::size_t first = 0;
  std::size_t count = CISTERN_TO_THE_END;
};

struct unified_options {
  cistern_pin pin = CISTERN_PIN_WHEN_HOT;
#ifdef NDEBUG
  bool checked = false;  // one writer at a time
#else
  bool checked = true;
#endif
  void* host = nullptr;  // the program's own memory for the host's side, with the data
};

template <element T>
class unified_buffer;

// Elements on the host, for writing. While it lives nothing else can be done with a buffer that is checked.
template <element T>
class writer : public std::span<T> {
 public:
  writer(writer&& other) noexcept : std::span<T>(other), of_(std::exchange(other.of_, nullptr)) {}
  writer& operator=(writer&&) = delete;
  ~writer() { done(); }
  void done() noexcept {
    if (of_) cistern_unified_end_write(std::exchange(of_, nullptr));
  }

 private:
  friend class unified_buffer<T>;
  writer(std::span<T> elements, cistern_unified* of) noexcept : std::span<T>(elements), of_(of) {}
  cistern_unified* of_;
};

// Moved from it is uninitialised, and has no elements.
template <element T>
class unified_buffer {
  static_assert(!std::is_const_v<T>);

 public:
  unified_buffer() noexcept = default;
  unified_buffer(unified_buffer&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)),
        count_(std::exchange(other.count_, 0)),
        where_(other.where_),
        checked_(other.checked_) {}
  unified_buffer& operator=(unified_buffer&& other) noexcept {
    unified_buffer old(std::move(*this));
    handle_ = std::exchange(other.handle_, nullptr);
    count_ = std::exchange(other.count_, 0);
    where_ = other.where_;
    checked_ = other.checked_;
    return *this;
  }
  ~unified_buffer() {
    if (handle_) cistern_unified_destroy(handle_);
  }

  // `where`: the device's side.
  static result<unified_buffer> make(std::size_t count, place where = on_device(),
                                     const unified_options& options = {}) noexcept {
    constexpr const char* kCall = "unified_buffer::make";
    if (count > PTRDIFF_MAX / sizeof(T)) return failure{CISTERN_NO_MEMORY, kCall};
    auto settings = sized<cistern_unified_settings>();
    settings.bytes = count * sizeof(T);
    settings.kind = where.kind;
    settings.device = where.device;
    settings.context = where.context;
    settings.flags = where.flags;
    settings.queue = where.queue.get();
    settings.pin = options.pin;
    settings.checked = options.checked;
    settings.host = options.host;
    unified_buffer made;
    if (const cistern_status status = cistern_unified_create(&settings, &made.handle_); status != CISTERN_OK)
      return detail::failed(kCall, status);
    made.count_ = count;
    made.where_ = where;
    made.checked_ = options.checked;
    return made;
  }

  std::size_t size() const noexcept { return count_; }
  std::size_t size_bytes() const noexcept { return count_ * sizeof(T); }
  cistern_state state() const noexcept {
    cistern_state state = CISTERN_UNINITIALISED;
    if (handle_) cistern_unified_get_state(handle_, &state);
    return state;
  }
  // The first part at or after `from` that is newer on one side; none: CISTERN_EMPTY.
  result<part> next_dirty(std::size_t from = 0) const noexcept {
    if (from >= count_) return failure{CISTERN_EMPTY, "unified_buffer::next_dirty"};
    std::size_t offset = from * sizeof(T), bytes = 0;
    if (const auto answer =
            call("unified_buffer::next_dirty", [&] { return cistern_unified_next_dirty(handle_, &offset, &bytes); });
        !answer)
      return answer.why();
    return part{offset / sizeof(T), bytes / sizeof(T)};
  }

  // On the host, to read; valid until drop_host or the buffer's end.
  result<std::span<const T>> host(part which = {}) noexcept {
    void* address = nullptr;
    if (const auto answer = on_host("unified_buffer::host", which, CISTERN_READ, &address); !answer)
      return answer.why();
    return std::span<const T>(static_cast<const T*>(address), counted(which));
  }
  // To write, and read what is there; or to overwrite all of it.
  result<writer<T>> host_mut(part which = {}) noexcept {
    return host_to_write("unified_buffer::host_mut", which, CISTERN_WRITE);
  }
  result<writer<T>> host_overwrite(part which = {}) noexcept {
    return host_to_write("unified_buffer::host_overwrite", which, CISTERN_OVERWRITE);
  }

  // On the device, for work that is enqueued on the stream from now on. The address is the device's; OpenCL: null, and
  // memory_object() is what kernels take.
  result<const T*> device(stream on = {}, part which = {}) noexcept {
    void* address = nullptr;
    if (const auto answer = on_device_side("unified_buffer::device", on, which, CISTERN_READ, &address); !answer)
      return answer.why();
    return static_cast<const T*>(address_or_none(address));
  }
  result<T*> device_mut(stream on = {}, part which = {}) noexcept {
    return device_to_write("unified_buffer::device_mut", on, which, CISTERN_WRITE);
  }
  result<T*> device_overwrite(stream on = {}, part which = {}) noexcept {
    return device_to_write("unified_buffer::device_overwrite", on, which, CISTERN_OVERWRITE);
  }
  // Of the last answer of device(), device_mut() or device_overwrite().
  _cl_mem* memory_object() const noexcept { return memory_object_; }

  // What was written through addresses from before; refused while the other side is newer.
  result<void> mark_host_dirty(part which = {}) noexcept {
    return mark("unified_buffer::mark_host_dirty", CISTERN_HOST_SIDE, which);
  }
  result<void> mark_device_dirty(part which = {}) noexcept {
    return mark("unified_buffer::mark_device_dirty", CISTERN_DEVICE_SIDE, which);
  }
  result<void> synchronize(stream on = {}, part which = {}) noexcept {
    return in_part("unified_buffer::synchronize", which, [&](std::size_t offset, std::size_t bytes) {
      return cistern_unified_synchronize(handle_, offset, bytes, on.get());
    });
  }
  // All elements on the device, which alone has them then.
  result<void> fill(const T& value, stream on = {}) noexcept {
    return call("unified_buffer::fill", [&] { return cistern_unified_fill(handle_, &value, sizeof value, on.get()); });
  }
  result<void> drop_host() noexcept {
    return call("unified_buffer::drop_host", [&] { return cistern_unified_drop(handle_, CISTERN_HOST_SIDE); });
  }
  result<void> drop_device() noexcept {
    return call("unified_buffer::drop_device", [&] { return cistern_unified_drop(handle_, CISTERN_DEVICE_SIDE); });
  }
  // For all streams that were given: they may be destroyed then.
  result<void> wait() noexcept {
    return call("unified_buffer::wait", [&] { return cistern_unified_wait(handle_); });
  }

  cistern_unified_metrics metrics() const noexcept {
    auto all = sized<cistern_unified_metrics>();
    if (handle_) cistern_unified_get_metrics(handle_, &all);
    return all;
  }

 private:
  template <class Call>
  result<void> call(const char* name, Call made) const noexcept {
    return handle_ ? result<void>(name, made()) : failure{CISTERN_EMPTY, name};
  }
  template <class Call>
  result<void> in_part(const char* name, part which, Call made) const noexcept {
    if (!handle_) return failure{CISTERN_EMPTY, name};
    if (which.first > count_ || counted(which) > count_ - which.first) return failure{CISTERN_BOUNDS, name};
    return result<void>(name, made(which.first * sizeof(T), counted(which) * sizeof(T)));
  }
  std::size_t counted(part which) const noexcept {
    return which.count == CISTERN_TO_THE_END && which.first <= count_ ? count_ - which.first : which.count;
  }
  result<void> on_host(const char* name, part which, cistern_access access, void** address) noexcept {
    return in_part(name, which, [&](std::size_t offset, std::size_t bytes) {
      return cistern_unified_host(handle_, offset, bytes, access, address);
    });
  }
  result<writer<T>> host_to_write(const char* name, part which, cistern_access access) noexcept {
    void* address = nullptr;
    if (const auto answer = on_host(name, which, access, &address); !answer) return answer.why();
    return writer<T>(std::span<T>(static_cast<T*>(address), counted(which)), checked_ ? handle_ : nullptr);
  }
  result<void> on_device_side(const char* name, stream on, part which, cistern_access access, void** address) noexcept {
    auto answer = in_part(name, which, [&](std::size_t offset, std::size_t bytes) {
      return cistern_unified_device(handle_, offset, bytes, access, on.get(), address);
    });
    if (answer && where_.kind == CISTERN_OPENCL) memory_object_ = static_cast<_cl_mem*>(*address);
    return answer;
  }
  result<T*> device_to_write(const char* name, stream on, part which, cistern_access access) noexcept {
    void* address = nullptr;
    if (const auto answer = on_device_side(name, on, which, access, &address); !answer) return answer.why();
    return static_cast<T*>(address_or_none(address));
  }
  void* address_or_none(void* address) const noexcept { return where_.kind == CISTERN_OPENCL ? nullptr : address; }
  result<void> mark(const char* name, cistern_side side, part which) noexcept {
    return in_part(name, which, [&](std::size_t offset, std::size_t bytes) {
      return cistern_unified_mark(handle_, side, offset, bytes);
    });
  }

  cistern_unified* handle_ = nullptr;
  std::size_t count_ = 0;
  place where_;
  bool checked_ = false;
  _cl_mem* memory_object_ = nullptr;
};

}  // namespace cistern
#endif
