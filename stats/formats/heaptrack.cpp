// See heaptrack.hpp. A line is a letter and numbers in hexadecimal; texts, addresses, stacks and sizes are numbered as
// they come, and come before the lines that name them.
#include "stats/formats/heaptrack.hpp"

#include <algorithm>
#include <charconv>
#include <map>

namespace cistern::formats {
namespace {

constexpr Count kHeaptrackVersion = 0x10400, kFormatVersion = 3, kPageBytes = 4096;

class Recording {
 public:
  explicit Recording(const Run& run) : samples_(samples_of(run)) {
    line('v', {kHeaptrackVersion, kFormatVersion});
    std::string commands;
    for (const Report& report : run.reports)
      commands += (commands.empty() ? "" : " & ") + printable(report.cistern.command);
    text_ += "X " + commands + "\n";
    line('I', {kPageBytes, 0});
  }

  std::string write(Value value) {
    Count blocks = 0;
    for (const Sample& sample : samples_.list) {
      const Amount& amount = sample.at(value);
      if (!amount.bytes) continue;
      const Count added = std::max<Count>(amount.blocks, 1);
      if (added > kHeaptrackBlocksMax - blocks)
        throw TooManyBlocks("has more than " + std::to_string(kHeaptrackBlocksMax) +
                            " blocks, and heaptrack's format has a line for each");
      blocks += added;
      add_blocks(sample, amount.bytes, added);
    }
    write_allocations();
    return std::move(text_);
  }

 private:
  // Sizes that are whole numbers and have the sum of the report.
  void add_blocks(const Sample& sample, Count bytes, Count blocks) {
    const Count trace = trace_of(sample), larger = bytes % blocks;
    add_equal_blocks(sample, bytes / blocks, blocks - larger, trace);
    if (larger) add_equal_blocks(sample, bytes / blocks + 1, larger, trace);
  }
  void add_equal_blocks(const Sample& sample, Count size, Count blocks, Count trace) {
    const auto [at, is_new] = allocations_.try_emplace({size, trace}, allocations_.size());
    if (is_new) line('a', {size, trace});
    const Seconds end = sample.report->cistern.wall_s;
    // The others' times lie between these two.
    allocated_[milliseconds(sample.row ? sample.row->first_s : end)][at->second] += 1;
    if (blocks > 1) allocated_[milliseconds(sample.row ? sample.row->last_s : end)][at->second] += blocks - 1;
  }

  void write_allocations() {
    for (const auto& [time, allocations] : allocated_) {
      line('c', {time});
      for (const auto& [allocation, blocks] : allocations)
        for (Count i = 0; i < blocks; ++i) line('+', {allocation});
    }
  }

  Count trace_of(const Sample& sample) {
    std::vector<Count> addresses;
    samples_.visit_places(sample, [&](std::span<const FrameId> place) { addresses.push_back(address_of(place)); });
    // heaptrack cuts frames outside of main: the kind and the process become the innermost ones.
    const auto outer = static_cast<std::ptrdiff_t>(sample.stack.size() - sample.site_frames);
    std::rotate(addresses.begin(), addresses.end() - outer, addresses.end());
    Count parent = 0;
    for (auto address = addresses.rbegin(); address != addresses.rend(); ++address) {
      const auto [at, is_new] = traces_.try_emplace({*address, parent}, traces_.size() + 1);
      if (is_new) line('t', {*address, parent});
      parent = at->second;
    }
    return parent;
  }

  Count address_of(std::span<const FrameId> place) {
    const auto [at, is_new] = addresses_.try_emplace(Stack(place.begin(), place.end()), addresses_.size() + 1);
    if (!is_new) return at->second;
    const Frame& outermost = samples_.frames[place.back()];
    std::vector<Count> numbers = {outermost.module.empty() ? outermost.address : outermost.offset,
                                  index_of(outermost.module)};
    for (const FrameId id : place) {
      const Frame& frame = samples_.frames[id];
      numbers.insert(numbers.end(), {index_of(frame.function), index_of(frame.file), frame.line & 0x7fffffff});
    }
    line('i', numbers);
    return at->second;
  }

  // 0: no text.
  Count index_of(const std::string& text) {
    if (text.empty()) return 0;
    const auto [at, is_new] = strings_.try_emplace(text, strings_.size() + 1);
    if (is_new) {
      text_ += "s ";
      number(text.size());
      text_ += " " + text + "\n";
    }
    return at->second;
  }

  void line(char type, std::span<const Count> numbers) {
    text_ += type;
    for (const Count value : numbers) {
      text_ += ' ';
      number(value);
    }
    text_ += '\n';
  }
  void line(char type, std::initializer_list<Count> numbers) { line(type, std::span(numbers.begin(), numbers.size())); }

  void number(Count value) {
    char digits[16];
    text_.append(digits, std::to_chars(digits, std::end(digits), value, 16).ptr);
  }

  static Count milliseconds(Seconds seconds) { return static_cast<Count>(std::clamp(seconds, 0.0, 1e9) * 1e3); }

  const Samples samples_;
  std::string text_;
  std::map<std::string, Count> strings_;
  std::map<Stack, Count> addresses_;                      // by what lies at one
  std::map<std::pair<Count, Count>, Count> traces_;       // by address and parent
  std::map<std::pair<Count, Count>, Count> allocations_;  // by size and trace; numbers from 0
  std::map<Count, std::map<Count, Count>> allocated_;     // time, allocation: blocks
};

}  // namespace

std::string heaptrack(const Run& run, Value value) { return Recording(run).write(value); }

}  // namespace cistern::formats
