// A pool of one's own (cistern/pool.h) as an object, which ends with it; and blocks for what throws, as containers do.
//
//   cistern::pool frames = cistern::pool::make({.name = "frames", .kind = CISTERN_PINNED}).value();
//   void* block = frames.allocate(1 << 20).value();
//
// C++20, with and without exceptions. Units: bytes. Thread-safety: any thread may allocate and deallocate; moving and
// ending a pool is one thread's, with nobody else at it.
#ifndef CISTERN_POOL_HPP
#define CISTERN_POOL_HPP

#include <cistern/cistern.h>
#include <cistern/place.hpp>
#include <cistern/result.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <new>
#include <utility>

namespace cistern {

// As cistern_pool_settings, where each of these is explained.
struct pool_settings {
  const char* name = "pool";
  cistern_kind kind = CISTERN_HOST;
  _cl_context* context = nullptr;
  std::uint64_t flags = 0;
  std::size_t bytes_max = 0;
  int (*out_of_memory)(cistern_pool* pool, std::size_t bytes, void* user) = nullptr;
  void (*allocated)(cistern_pool* pool, void* block, std::size_t bytes, void* user) = nullptr;
  void (*deallocated)(cistern_pool* pool, void* block, std::size_t bytes, void* user) = nullptr;
  void* user = nullptr;
  unsigned where = CISTERN_ANYWHERE;
  int device = 0, node = 0;
  cistern_pool_memory memory = CISTERN_WHOLE_BLOCKS;
};

class pool {
 public:
  static result<pool> make(const pool_settings& of) noexcept {
    const cistern_pool_settings settings{sizeof settings, of.name,          of.kind,      of.context,     of.flags,
                                         of.bytes_max,    of.out_of_memory, of.allocated, of.deallocated, of.user,
                                         of.where,        of.device,        of.node,      of.memory};
    cistern_pool* made = nullptr;
    const cistern_status status = cistern_pool_create(&settings, &made);
    if (status != CISTERN_OK) return detail::failed("pool::make", status);
    return pool(made, of.memory);
  }

  pool(pool&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)), memory_(other.memory_) {}
  pool& operator=(pool&& other) noexcept {
    pool ends(std::exchange(handle_, std::exchange(other.handle_, nullptr)), memory_);
    memory_ = other.memory_;
    return *this;
  }
  // Where blocks are alive they stay so, and the pool with them: whoever has its handle gives them back, and the report
  // has those that nobody does. One line says so.
  ~pool() {
    if (!handle_ || cistern_pool_destroy(handle_) == CISTERN_OK) return;
    std::fprintf(stderr, "cistern: a cistern::pool ends with %llu of its blocks alive: they stay\n",
                 static_cast<unsigned long long>(statistics().live_blocks));
  }

  // CISTERN_BUSY: blocks are alive; nothing has changed.
  result<void> destroy() noexcept {
    if (!handle_) return {};
    const cistern_status status = cistern_pool_destroy(handle_);
    if (status == CISTERN_OK) handle_ = nullptr;
    return {"pool::destroy", status};
  }

  // As cistern_pool_allocate and cistern_pool_deallocate.
  result<void*> allocate(std::size_t bytes, std::size_t alignment = 0) const noexcept {
    void* block = nullptr;
    const cistern_status status = cistern_pool_allocate(handle_, bytes, alignment, &block);
    if (status != CISTERN_OK) return detail::failed("pool::allocate", status);
    return block;
  }
  result<void> deallocate(void* block, void* queue = nullptr) const noexcept {
    return {"pool::deallocate", cistern_pool_deallocate(handle_, block, queue)};
  }

  // All 0 of a pool that has gone.
  cistern_pool_statistics statistics() const noexcept {
    auto of = sized<cistern_pool_statistics>();
    if (handle_) cistern_pool_get_statistics(handle_, &of);
    return of;
  }

  // Null once it was moved from, destroyed or released.
  cistern_pool* get() const noexcept { return handle_; }
  cistern_pool_memory memory() const noexcept { return memory_; }
  cistern_pool* release() noexcept { return std::exchange(handle_, nullptr); }

 private:
  pool(cistern_pool* made, cistern_pool_memory memory) noexcept : handle_(made), memory_(memory) {}

  cistern_pool* handle_;
  cistern_pool_memory memory_;
};

#if __cpp_exceptions
// What containers and resources throw: a std::bad_alloc that says why.
class bad_alloc : public std::bad_alloc {
 public:
  explicit bad_alloc(const failure& why) noexcept : why_(why) {}
  const char* what() const noexcept override { return cistern_status_text(why_.status); }
  const failure& reason() const noexcept { return why_; }

 private:
  failure why_;
};
#endif

namespace detail {

[[noreturn]] inline void raise_bad_alloc(const failure& why) {
#if __cpp_exceptions
  throw bad_alloc(why);
#else
  raise(why);
#endif
}

// The process's own pool of pinned memory aligns to no more than 64 bytes, and where it was asked for more nobody would
// know a block by an address inside of it: what is asked through here has the block's address in front. Whoever gives
// one back says the same alignment, as the callers of allocators have to.
inline constexpr std::size_t kPinnedAlignment = 64;
inline bool is_shifted(const cistern_pool* pool, std::size_t alignment) noexcept {
  return alignment > kPinnedAlignment && pool == default_pool(CISTERN_PINNED);
}

inline void* shifted(void* block, std::size_t alignment) noexcept {
  const std::size_t by = alignment - reinterpret_cast<std::uintptr_t>(block) % alignment;
  void* const inside = static_cast<char*>(block) + by;
  static_cast<void**>(inside)[-1] = block;
  return inside;
}

// A block of no bytes has one: std::pmr and CUDA's resources give an address for it. `call`: for the error.
inline void* allocate_or_throw(const char* call, cistern_pool* pool, std::size_t bytes, std::size_t alignment) {
  const bool shifts = is_shifted(pool, alignment);
  std::size_t wanted = bytes ? bytes : 1;
  if (shifts && __builtin_add_overflow(wanted, alignment, &wanted)) raise_bad_alloc({CISTERN_NO_MEMORY, call});
  void* block = nullptr;
  const cistern_status status = shifts && (alignment & (alignment - 1))
                                    ? CISTERN_INVALID
                                    : cistern_pool_allocate(pool, wanted, shifts ? 0 : alignment, &block);
  if (status != CISTERN_OK) raise_bad_alloc(failed(call, status));
  return shifts ? shifted(block, alignment) : block;
}

// A wrong block changes nothing, and the library has said so in a line; one that the driver does not take is alive
// still, and the report has it. `queue`: as cistern_pool_deallocate.
inline void deallocate(cistern_pool* pool, void* block, std::size_t alignment, void* queue = nullptr) noexcept {
  if (block && is_shifted(pool, alignment)) block = static_cast<void**>(block)[-1];
  cistern_pool_deallocate(pool, block, queue);
}

}  // namespace detail
}  // namespace cistern
#endif
