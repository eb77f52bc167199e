// Runs as one table of Parquet (parquet.apache.org), for fleets: the rows of table.hpp, and which run each is of. They
// are written as they come, a group of rows at a time: memory is bounded, however many runs there are.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "stats/formats/model.hpp"

namespace cistern::formats {

class Parquet {
 public:
  explicit Parquet(std::function<void(std::string_view)> write);
  ~Parquet();
  Parquet(const Parquet&) = delete;
  Parquet& operator=(const Parquet&) = delete;

  // Throws BadReport, after which the file is of no use.
  void add(const std::string& run_name, const Run& run);
  // The file is complete, and nothing may be added.
  void end();

 private:
  class Writer;
  const std::unique_ptr<Writer> writer_;
};

}  // namespace cistern::formats
