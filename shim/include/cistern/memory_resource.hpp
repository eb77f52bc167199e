// Host and pinned memory for containers: a std::pmr::memory_resource, and a std allocator, over a pool.
//
//   cistern::memory_resource pinned(CISTERN_PINNED);
//   std::pmr::vector<float> weights(&pinned);
//   std::vector<float, cistern::allocator<float, CISTERN_PINNED>> others;
//
// C++20, with and without exceptions and RTTI. What fails throws cistern::bad_alloc, which is a std::bad_alloc; without
// exceptions it is a line and the end of the process. Any alignment is served. Neither owns its pool: that outlives
// all that was made in it. Thread-safety: as that of pools, any thread at any time.
#ifndef CISTERN_MEMORY_RESOURCE_HPP
#define CISTERN_MEMORY_RESOURCE_HPP

#include <cistern/pool.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory_resource>
#include <type_traits>

namespace cistern {

class memory_resource final : public std::pmr::memory_resource {
 public:
  // The process's own pool of a kind: CISTERN_HOST or CISTERN_PINNED.
  explicit memory_resource(cistern_kind kind = CISTERN_HOST) noexcept : pool_(default_pool(kind)) {}
  // One of host or pinned memory: the program writes into all that containers are given.
  explicit memory_resource(cistern_pool* pool) noexcept : pool_(pool) {}
  explicit memory_resource(const cistern::pool& pool) noexcept : pool_(pool.get()) {}

  cistern_pool* pool() const noexcept { return pool_; }

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    return detail::allocate_or_throw("memory_resource::allocate", pool_, bytes, alignment);
  }
  void do_deallocate(void* block, std::size_t, std::size_t alignment) noexcept override {
    detail::deallocate(pool_, block, alignment);
  }

  // By its table of virtual functions, which no other class has: one is final, and dynamic_cast is not there without
  // RTTI, and ends the process where the object was made by code without it.
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return table_of(*this) == table_of(other) && static_cast<const memory_resource&>(other).pool_ == pool_;
  }
  static std::uintptr_t table_of(const std::pmr::memory_resource& object) noexcept {
    std::uintptr_t table = 0;
    std::memcpy(&table, static_cast<const void*>(&object), sizeof table);
    return table;
  }

  cistern_pool* pool_;
};

// Goes with the contents where a container is assigned or swapped; two are equal where their pool is the same.
template <class T, cistern_kind kind = CISTERN_HOST>
class allocator {
  static_assert(kind == CISTERN_HOST || kind == CISTERN_PINNED, "containers write into their memory");

 public:
  using value_type = T;
  using propagate_on_container_copy_assignment = std::true_type;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;
  using is_always_equal = std::false_type;
  template <class Other>
  struct rebind {
    using other = allocator<Other, kind>;
  };

  // The process's own pool; or one of `kind`.
  allocator() noexcept : pool_(default_pool(kind)) {}
  explicit allocator(cistern_pool* pool) noexcept : pool_(pool) {}
  explicit allocator(const cistern::pool& pool) noexcept : pool_(pool.get()) {}
  template <class Other>
  allocator(const allocator<Other, kind>& other) noexcept : pool_(other.pool()) {}

  [[nodiscard]] T* allocate(std::size_t count) {
    std::size_t bytes = 0;
    if (__builtin_mul_overflow(count, sizeof(T), &bytes))
      detail::raise_bad_alloc({CISTERN_NO_MEMORY, "allocator::allocate"});
    return static_cast<T*>(detail::allocate_or_throw("allocator::allocate", pool_, bytes, alignof(T)));
  }
  void deallocate(T* block, std::size_t) noexcept { detail::deallocate(pool_, block, alignof(T)); }

  cistern_pool* pool() const noexcept { return pool_; }
  template <class Other>
  bool operator==(const allocator<Other, kind>& other) const noexcept {
    return pool_ == other.pool();
  }

 private:
  cistern_pool* pool_;
};

}  // namespace cistern
#endif
