// Buffers of elements in memory of any kind, and views of them: parts that share the buffer's memory and keep it alive.
//
// Elements are copied as bytes. A buffer's memory goes back when the buffer and its last view are gone; then the driver
// waits for work that may still use it. That is work on any stream, unless the buffer ends with end_on(stream). With
// OpenCL that is the work on queues that were given to calls, or to used_on: they live as long as the memory. Memory
// that was wrapped stays the program's. Different views may be used by different threads at once; their elements have
// no lock. Errors: result.hpp; nothing is changed by a call that is refused.
#ifndef CISTERN_BUFFER_HPP
#define CISTERN_BUFFER_HPP

#include <cistern/place.hpp>
#include <cistern/result.hpp>

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <type_traits>

namespace cistern {

template <class T>
concept element = std::is_trivially_copyable_v<T> && !std::is_volatile_v<T>;

namespace detail {

// What a buffer and its views share. Its own few bytes are host memory of the library's.
class storage {
 public:
  // Null: out of memory.
  static storage* make(place where, void* block, bool owned) noexcept {
    void* const memory = cistern_allocate(sizeof(storage), alignof(storage));
    return memory ? new (memory) storage(where, block, owned) : nullptr;
  }
  void keep() noexcept { users_.fetch_add(1, std::memory_order_relaxed); }
  // `queue`: whose work may still use it; null: the queues that are known, or with CUDA all.
  void release(void* queue = nullptr) noexcept {
    used_on(queue);
    if (users_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    if (where_.kind == CISTERN_OPENCL) queue = last_queue_.load(std::memory_order_relaxed);
    if (owned_) cistern_pool_deallocate(pool_of(where_), block_, queue);
    this->~storage();
    cistern_deallocate(this);
  }
  const place& where() const noexcept { return where_; }
  void* block() const noexcept { return block_; }
  static cistern_pool* pool_of(const place& where) noexcept {
    return where.pool ? where.pool : default_pool(where.kind);
  }
  // OpenCL: it goes back behind what was enqueued there. Of two queues the earlier one is waited for.
  void used_on(void* queue) noexcept {
    if (where_.kind != CISTERN_OPENCL || !queue) return;
    void* const before = last_queue_.exchange(queue, std::memory_order_relaxed);
    if (before && before != queue) cistern_queue_follow(CISTERN_OPENCL, 0, queue, before);
  }

 private:
  storage(place where, void* block, bool owned) noexcept : where_(where), block_(block), owned_(owned) {}

  const place where_;
  void* const block_;
  const bool owned_;
  std::atomic<std::size_t> users_{1};
  std::atomic<void*> last_queue_{nullptr};
};

class storage_ref {
 public:
  storage_ref() noexcept = default;
  explicit storage_ref(storage* of) noexcept : of_(of) {}  // takes over
  storage_ref(const storage_ref& other) noexcept : of_(other.of_) {
    if (of_) of_->keep();
  }
  storage_ref(storage_ref&& other) noexcept : of_(std::exchange(other.of_, nullptr)) {}
  storage_ref& operator=(storage_ref other) noexcept {
    std::swap(of_, other.of_);
    return *this;
  }
  ~storage_ref() {
    if (of_) of_->release();
  }
  storage* get() const noexcept { return of_; }
  void release(void* queue) noexcept {
    if (of_) std::exchange(of_, nullptr)->release(queue);
  }

 private:
  storage* of_ = nullptr;
};

}  // namespace detail

template <element T>
class buffer;

template <element T>
class view {
 public:
  using value_type = std::remove_const_t<T>;

  view() noexcept = default;  // of nothing
  template <class U>
  requires(std::is_const_v<T>&& std::same_as<U, value_type>) view(const view<U>& other)
  noexcept : storage_(other.storage_), first_(other.first_), count_(other.count_) {}

  std::size_t size() const noexcept { return count_; }
  std::size_t size_bytes() const noexcept { return count_ * sizeof(T); }
  bool empty() const noexcept { return !count_; }
  cistern_kind kind() const noexcept { return storage_.get() ? storage_.get()->where().kind : CISTERN_HOST; }

  // The first element's address, of the device where the memory is its; not with OpenCL, where it is null.
  T* data() const noexcept {
    if (!storage_.get() || kind() == CISTERN_OPENCL) return nullptr;
    return static_cast<T*>(storage_.get()->block()) + first_;
  }
  // OpenCL: the buffer, and where in it the view begins, in bytes. Else null.
  _cl_mem* memory_object() const noexcept {
    return storage_.get() && kind() == CISTERN_OPENCL ? static_cast<_cl_mem*>(storage_.get()->block()) : nullptr;
  }
  std::size_t offset_bytes() const noexcept { return first_ * sizeof(T); }

  // CISTERN_MISMATCH: not memory that the host can touch.
  result<std::span<T>> span() const noexcept {
    if (kind() == CISTERN_DEVICE || kind() == CISTERN_OPENCL) return failure{CISTERN_MISMATCH, "view::span"};
    return std::span<T>(data(), count_);
  }
  // `count` elements from `first` on. CISTERN_BOUNDS.
  result<view> slice(std::size_t first, std::size_t count) const noexcept {
    if (first > count_ || count > count_ - first) return failure{CISTERN_BOUNDS, "view::slice"};
    return view(storage_, first_ + first, count);
  }
  // The same bytes as other elements. CISTERN_MISMATCH: they do not fit, or would lie across each other.
  template <element U>
  requires(std::is_const_v<U> || !std::is_const_v<T>) result<view<U>> as()
  const noexcept {
    if (size_bytes() % sizeof(U) || offset_bytes() % sizeof(U)) return failure{CISTERN_MISMATCH, "view::as"};
    return view<U>(storage_, offset_bytes() / sizeof(U), size_bytes() / sizeof(U));
  }

  // As many elements as there are here: else CISTERN_MISMATCH. With a stream it is enqueued there, and memory of the
  // host must stay until it is done; without one it is done.
  result<void> copy_from(std::span<const value_type> source, stream on = {}) const noexcept
      requires(!std::is_const_v<T>) {
    constexpr const char* kCall = "view::copy_from";
    if (source.size() != count_) return failure{CISTERN_MISMATCH, kCall};
    return copy(kCall, *this, part(), on_host_at(source.data()), on);
  }
  result<void> copy_from(const view<const value_type>& source, stream on = {}) const noexcept
      requires(!std::is_const_v<T>) {
    constexpr const char* kCall = "view::copy_from";
    if (source.size() != count_) return failure{CISTERN_MISMATCH, kCall};
    // The side that a driver has knows the device and the queue.
    source.note_use(on);
    return kind() == CISTERN_HOST ? copy(kCall, source, part(), source.part(), on)
                                  : copy(kCall, *this, part(), source.part(), on);
  }
  result<void> copy_to(std::span<value_type> target, stream on = {}) const noexcept {
    constexpr const char* kCall = "view::copy_to";
    if (target.size() != count_) return failure{CISTERN_MISMATCH, kCall};
    return copy(kCall, *this, on_host_at(target.data()), part(), on);
  }
  result<void> fill(const value_type& value, stream on = {}) const noexcept requires(!std::is_const_v<T>) {
    if (empty()) return {};
    const cistern_part target = part();
    const auto& where = storage_.get()->where();
    void* const queue = queue_for(on);
    cistern_status status = cistern_enqueue_fill(&target, &value, sizeof value, size_bytes(), where.device, queue);
    return finish("view::fill", status, on, queue);
  }
  // The program's own work on that queue may use the memory (needed with OpenCL alone).
  void used_on(stream on) const noexcept { note_use(on); }

  // Managed memory, as cistern_prefetch and cistern_advise; CISTERN_CPU is the host.
  result<void> prefetch(int device, stream on = {}) const noexcept {
    if (kind() != CISTERN_MANAGED) return failure{CISTERN_MISMATCH, "view::prefetch"};
    return {"view::prefetch", cistern_prefetch(address(), size_bytes(), device, on.get())};
  }
  result<void> advise(cistern_advice advice, int device) const noexcept {
    if (kind() != CISTERN_MANAGED) return failure{CISTERN_MISMATCH, "view::advise"};
    return {"view::advise", cistern_advise(address(), size_bytes(), advice, device)};
  }

 protected:
  view(detail::storage_ref of, std::size_t first, std::size_t count) noexcept
      : storage_(std::move(of)), first_(first), count_(count) {}

  void end_behind(stream on) noexcept {
    storage_.release(on.get());
    first_ = count_ = 0;
  }

 private:
  template <element U>
  friend class view;

  void* address() const noexcept { return const_cast<value_type*>(data()); }
  cistern_part part() const noexcept {
    return {sizeof(cistern_part), kind(), storage_.get() ? storage_.get()->block() : nullptr, offset_bytes()};
  }
  static cistern_part on_host_at(const value_type* first) noexcept {
    return {sizeof(cistern_part), CISTERN_HOST, const_cast<value_type*>(first), 0};
  }
  void* queue_for(stream on) const noexcept {
    return on.get() || !storage_.get() ? on.get() : storage_.get()->where().queue.get();
  }
  void note_use(stream on) const noexcept {
    if (storage_.get()) storage_.get()->used_on(on.get());
  }
  // OpenCL: without a stream it was enqueued on the place's queue, and is waited for here.
  result<void> finish(const char* call, cistern_status status, stream on, void* queue) const noexcept {
    note_use(on);
    if (status == CISTERN_OK && !on.get() && queue && kind() == CISTERN_OPENCL)
      status = cistern_queue_wait(CISTERN_OPENCL, 0, queue);
    return {call, status};
  }
  // `by`: whose device and queue are meant.
  template <class By>
  static result<void> copy(const char* call, const By& by, const cistern_part& target, const cistern_part& source,
                           stream on) noexcept {
    if (by.empty()) return {};
    void* const queue = by.queue_for(on);
    const int device = by.storage_.get()->where().device;
    return by.finish(call, cistern_enqueue_copy(&target, &source, by.size_bytes(), device, queue), on, queue);
  }

  detail::storage_ref storage_;
  std::size_t first_ = 0, count_ = 0;
};

// Who made the memory, or wrapped it. Moved from it has no elements.
template <element T>
class buffer : public view<T> {
 public:
  buffer() noexcept = default;
  buffer(buffer&& other) noexcept : view<T>(std::exchange(static_cast<view<T>&>(other), view<T>())) {}
  buffer& operator=(buffer&& other) noexcept {
    static_cast<view<T>&>(*this) = std::exchange(static_cast<view<T>&>(other), view<T>());
    return *this;
  }

  // Elements whose contents are nothing yet. None of them: CISTERN_INVALID.
  static result<buffer> make(std::size_t count, place where = {}) noexcept requires(!std::is_const_v<T>) {
    constexpr const char* kCall = "buffer::make";
    if (count > PTRDIFF_MAX / sizeof(T)) return failure{CISTERN_NO_MEMORY, kCall};
    auto request = sized<cistern_request>();
    request.bytes = count * sizeof(T);
    request.flags = where.flags;
    request.context = where.context;
    const bool is_cuda = where.kind != CISTERN_HOST && where.kind != CISTERN_OPENCL;
    if (alignof(T) > alignof(std::max_align_t) && where.kind == CISTERN_HOST) request.alignment = alignof(T);
    if (is_cuda && where.device != CISTERN_CURRENT && !where.pool)
      request.where = CISTERN_ON_DEVICE, request.device = where.device;
    void* block = nullptr;
    cistern_pool* const pool = detail::storage::pool_of(where);
    if (const cistern_status status = cistern_pool_allocate_as(pool, &request, &block); status != CISTERN_OK)
      return detail::failed(kCall, status);
    detail::storage* const made = detail::storage::make(where, block, true);
    if (made) return buffer(detail::storage_ref(made), count);
    cistern_pool_deallocate(pool, block, nullptr);
    return failure{CISTERN_NO_MEMORY, kCall};
  }
  // `count` elements of the program's own; with OpenCL `memory` is a cl_mem.
  static result<buffer> wrap(void* memory, std::size_t count, place where = {}) noexcept {
    constexpr const char* kCall = "buffer::wrap";
    if (!memory || !count) return failure{CISTERN_INVALID, kCall};
    detail::storage* const made = detail::storage::make(where, memory, false);
    if (!made) return failure{CISTERN_NO_MEMORY, kCall};
    return buffer(detail::storage_ref(made), count);
  }

  view<T> all() const noexcept { return *this; }

  // Ends the buffer now. If no view keeps the memory, it goes back behind the work on this stream, and no thread waits.
  // Work on other streams that uses it has ended, or this stream follows it.
  void end_on(stream on) noexcept { this->end_behind(on); }

 private:
  buffer(detail::storage_ref of, std::size_t count) noexcept : view<T>(std::move(of), 0, count) {}
};

}  // namespace cistern
#endif
