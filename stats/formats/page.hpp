// Reports as one HTML page that shows them by itself, without a network: what `cistern html` writes; and two runs
// beside each other: what `cistern diff --html` writes.
#pragma once
#include <stdexcept>
#include <string>

#include "stats/formats/comparison.hpp"
#include "stats/formats/model.hpp"

namespace cistern::formats {

// A page that is too large opens nowhere. The smallest rows are left out of it, and the page says so.
struct PageLimits {
  std::size_t bytes_max = 5'000'000;
  std::size_t rows_max = 20'000;  // a browser lays them out in a second
};

struct PageTooLarge : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws PageTooLarge where not even the figures without a call site fit.
std::string page(const Run& run, PageLimits limits);
std::string page(const Comparison& of, PageLimits limits);

}  // namespace cistern::formats
