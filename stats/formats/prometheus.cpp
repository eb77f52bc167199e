// See prometheus.hpp.
#include "stats/formats/prometheus.hpp"

#include <charconv>
#include <iterator>

#include "stats/format.hpp"

namespace cistern::formats {
namespace {

std::string number(double value) {
  char digits[32];
  return {digits, std::to_chars(digits, std::end(digits), value).ptr};
}

// Names are the user's: a collector refuses all text for one byte that is no UTF-8.
std::string quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : printable(text)) {
    if (c == '\\' || c == '"') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

std::string labels_of(const Measured& process) {
  std::string labels = "pid=\"" + std::to_string(process.pid) + "\",program=" + quoted(process.program);
  if (process.report && process.report->cistern.rank)
    labels += ",rank=\"" + std::to_string(*process.report->cistern.rank) + "\"";
  return labels;
}

// "device:0" is the kind "device" of device 0.
std::string labels_of(const std::string& kind) {
  const std::size_t colon = kind.find(':');
  std::string labels = ",kind=" + quoted(kind.substr(0, colon));
  if (colon != kind.npos) labels += ",device=" + quoted(kind.substr(colon + 1));
  return labels;
}

enum class Type { gauge, counter };

struct Figure {
  const char* name;
  Type type;
  const char* help;
  Count Kind::*value;
  const char* state;  // a label of its own
  bool of_pools;
};
// Those of one name stand together.
constexpr Figure kFigures[] = {
    {"cistern_bytes", Type::gauge, "Memory of a kind: held by the program, or kept by pools for reuse.",
     &Kind::live_bytes, "live", false},
    {"cistern_bytes", Type::gauge, "", &Kind::pooled_bytes, "cached", true},
    {"cistern_blocks", Type::gauge, "Blocks of a kind: held by the program, or kept by pools for reuse.",
     &Kind::live_blocks, "live", false},
    {"cistern_blocks", Type::gauge, "", &Kind::pooled_blocks, "cached", true},
    {"cistern_peak_bytes", Type::gauge, "The most that the program held at any time.", &Kind::peak_bytes, nullptr,
     false},
    {"cistern_allocations", Type::counter, "Requests for memory that succeeded.", &Kind::allocations, nullptr, false},
    {"cistern_frees", Type::counter, "Blocks that the program gave back.", &Kind::frees, nullptr, false},
    {"cistern_failed_allocations", Type::counter, "Requests for memory that failed.", &Kind::failed, nullptr, false},
    {"cistern_pool_hits", Type::counter, "Requests that got a block which the pool had kept.", &Kind::pool_hits,
     nullptr, true},
    {"cistern_pool_misses", Type::counter, "Requests for which the pool asked the driver or the system.",
     &Kind::pool_misses, nullptr, true},
};

class Text {
 public:
  explicit Text(MetricsFormat format) : format_(format) {}
  void family(const char* name, Type type, const char* help) {
    const bool is_counter = type == Type::counter;
    suffix_ = is_counter ? "_total" : "";
    const std::string of_family = std::string(name) + (format_ == MetricsFormat::prometheus ? suffix_ : "");
    text_ += "# HELP " + of_family + " " + help + "\n# TYPE " + of_family + (is_counter ? " counter\n" : " gauge\n");
    name_ = name;
  }
  void sample(const std::string& labels, const std::string& value) {
    text_ += name_ + suffix_ + "{" + labels + "} " + value + "\n";
  }
  std::string take() { return std::move(text_) + (format_ == MetricsFormat::open_metrics ? "# EOF\n" : ""); }

 private:
  const MetricsFormat format_;
  std::string text_, name_, suffix_;
};

}  // namespace

std::string metrics(const std::vector<Measured>& processes, MetricsFormat format) {
  Text text(format);
  text.family("cistern_up", Type::gauge, "Whether the process answered.");
  for (const Measured& process : processes) text.sample(labels_of(process), process.report ? "1" : "0");
  text.family("cistern_run_seconds", Type::gauge, "How long the process has run.");
  for (const Measured& process : processes)
    if (process.report) text.sample(labels_of(process), number(process.report->cistern.wall_s));
  std::string name;
  for (const Figure& figure : kFigures) {
    if (name != figure.name) text.family(figure.name, figure.type, figure.help);
    name = figure.name;
    for (const Measured& process : processes) {
      if (!process.report) continue;
      for (const auto& [kind, figures] : process.report->kinds) {
        if (figure.of_pools && !figures.pooled) continue;
        std::string labels = labels_of(process) + labels_of(kind);
        if (figure.state) labels.append(",state=\"").append(figure.state).append("\"");
        text.sample(labels, std::to_string(figures.*figure.value));
      }
    }
  }
  return text.take();
}

}  // namespace cistern::formats
