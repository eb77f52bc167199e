// The kinds' figures of running processes as metrics, in the text format of Prometheus, or in OpenMetrics.
#pragma once
#include <string>
#include <vector>

#include "stats/formats/model.hpp"

namespace cistern::formats {

struct Measured {
  long pid;
  std::string program;
  const Report* report;  // null: the process did not answer
};
enum class MetricsFormat { prometheus, open_metrics };
std::string metrics(const std::vector<Measured>& processes, MetricsFormat format);

}  // namespace cistern::formats
