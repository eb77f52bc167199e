// The library as on a system with other pages, as far as it does not call that system: for the life of an object.
#pragma once
#include <cstddef>

#include "pool/base/page_size.hpp"

namespace cistern::test {

class ToldPageSize {
 public:
  explicit ToldPageSize(std::size_t bytes) : before_(page_bytes()) { tell(bytes); }
  ~ToldPageSize() { tell(before_); }
  ToldPageSize(const ToldPageSize&) = delete;
  ToldPageSize& operator=(const ToldPageSize&) = delete;

 private:
  static void tell(std::size_t bytes) { page_size::known.store(bytes, std::memory_order_relaxed); }
  const std::size_t before_;
};

}  // namespace cistern::test
