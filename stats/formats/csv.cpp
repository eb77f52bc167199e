// See csv.hpp.
#include "stats/formats/csv.hpp"

#include <algorithm>

namespace cistern::formats {
namespace {

constexpr char kColumns[] =
    "program,pid,rank,kind,class,object,call,owner,suppressed,live_blocks,live_bytes,lost_blocks,lost_bytes,peak_"
    "blocks,"
    "peak_bytes,first_s,last_s,file,line,stack\n";

class Line {
 public:
  Line& text(std::string_view value) {
    const bool quoted = value.find_first_of(",\"") != value.npos;
    next() += quoted ? "\"" : "";
    for (const char character : value) {
      if (character == '"') text_ += '"';
      text_ += character;
    }
    text_ += quoted ? "\"" : "";
    return *this;
  }
  Line& number(auto value) {
    next() += std::to_string(value);
    return *this;
  }
  Line& amount(const Amount& of) { return number(of.blocks).number(of.bytes); }
  Line& none() { return text(""); }
  std::string end() const { return text_ + "\n"; }

 private:
  std::string& next() {
    text_ += is_first_ ? "" : ",";
    is_first_ = false;
    return text_;
  }

  std::string text_;
  bool is_first_ = true;
};

std::string stack_of(const Samples& samples, const Sample& sample) {
  std::string stack;
  for (std::size_t at = sample.site_frames; at-- > 0;) {
    std::string name = samples.frames[sample.stack[at]].function;
    std::ranges::replace(name, ';', ':');
    stack += (stack.empty() ? "" : ";") + name;
  }
  return stack;
}

std::string line_of(const Samples& samples, const Sample& sample) {
  const Process& process = sample.report->cistern;
  const LiveRow none, &row = sample.row ? *sample.row : none;
  const Frame& innermost = samples.frames[sample.stack.front()];
  Line line;
  line.text(program_name(process)).number(process.pid);
  process.rank ? line.number(*process.rank) : line.none();
  line.text(printable(sample.kind)).text(printable(row.leak_class)).text(printable(row.object));
  line.text(printable(row.api)).text(printable(row.owner)).number(row.suppressed ? 1 : 0);
  line.amount(sample.live).amount(sample.lost).amount(sample.peak);
  sample.row ? line.number(row.first_s).number(row.last_s) : line.none().none();
  line.text(innermost.file.empty() ? innermost.module : innermost.file);
  innermost.line ? line.number(innermost.line) : line.none();
  return line.text(stack_of(samples, sample)).end();
}

}  // namespace

std::string csv(const Run& run) {
  const Samples samples = samples_of(run);
  std::string text = kColumns;
  for (const Sample& sample : samples.list) text += line_of(samples, sample);
  return text;
}

}  // namespace cistern::formats
