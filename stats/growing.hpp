// A list that ends where memory does: unlike Vector, it asks for what the process can do without.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "pool/base/internal_memory.hpp"

namespace cistern {

template <class T>
class Growing {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit Growing(std::size_t items_max) : items_max_(items_max) {}
  ~Growing() { give_back(); }
  Growing(const Growing&) = delete;
  Growing& operator=(const Growing&) = delete;

  // False: it is full, or memory ran out.
  bool push(const T& item) {
    if (count_ == room_ && !grow()) return false;
    items_[count_++] = item;
    return true;
  }
  void clear() { count_ = 0; }

  std::size_t size() const { return count_; }
  const T& operator[](std::size_t i) const { return items_[i]; }
  const T* begin() const { return items_; }
  const T* end() const { return items_ + count_; }

 private:
  bool grow() {
    const std::size_t room = std::min(items_max_, room_ ? 2 * room_ : 64);
    if (room == room_) return false;
    auto* const items = static_cast<T*>(internal_try_allocate(room * sizeof(T)));
    if (!items) return false;
    if (count_) std::memcpy(static_cast<void*>(items), items_, count_ * sizeof(T));
    give_back();
    items_ = items;
    room_ = room;
    return true;
  }
  void give_back() {
    if (items_) internal_deallocate(items_, room_ * sizeof(T));
  }

  const std::size_t items_max_;
  T* items_ = nullptr;
  std::size_t count_ = 0, room_ = 0;
};

}  // namespace cistern
