// Lifetimes of buffers as events in order, read from a file with a line for each buffer, after a heading:
//
//   id,lower,upper,size[,stream[,freed_on]]
//
// A lifetime is half-open, in steps; sizes are in bytes. Streams are small numbers: the one whose work uses the buffer,
// and the one in whose order it is freed, which is the same where the file does not say it. Without streams all is on
// stream 0.
#pragma once
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

struct Event {
  std::uint64_t step;
  bool begins;  // those that end come first
  std::size_t buffer;
  unsigned stream;
};

struct Trace {
  std::vector<std::size_t> bytes;
  std::vector<Event> events;
};

constexpr std::uint64_t kStreamsMax = 1 << 16, kBytesMax = std::uint64_t{1} << 46, kStepsMax = std::uint64_t{1} << 60;

[[noreturn]] inline void reject(const char* path, std::size_t line, const char* why) {
  std::fprintf(stderr, "%s:%zu: %s\n", path, line, why);
  std::exit(1);
}

// The numbers behind the first field, which may be any word. False: there is something else.
inline bool read_numbers(std::string_view line, std::vector<std::uint64_t>& numbers) {
  numbers.clear();
  for (std::size_t comma = line.find(','); comma != line.npos; comma = line.find(',')) {
    line.remove_prefix(comma + 1);
    const std::string_view field = line.substr(0, line.find(','));
    const char* const end = field.data() + field.size();
    if (std::from_chars(field.data(), end, numbers.emplace_back()) != std::from_chars_result{end, {}}) return false;
  }
  return true;
}

// A file that cannot be read ends the program with one line, which names the place.
inline Trace read_trace(const char* path) {
  Trace trace;
  std::ifstream file(path);
  std::string line;
  std::vector<std::uint64_t> fields;
  std::getline(file, line);
  for (std::size_t number = 2; std::getline(file, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    if (!read_numbers(line, fields) || fields.size() < 3 || fields.size() > 5)
      reject(path, number, "a line is id,lower,upper,size[,stream[,freed_on]], in numbers");
    const std::uint64_t lower = fields[0], upper = fields[1], bytes = fields[2];
    const std::uint64_t stream = fields.size() > 3 ? fields[3] : 0, freed_on = fields.size() > 4 ? fields[4] : stream;
    if (lower >= upper || upper > kStepsMax) reject(path, number, "a lifetime ends after it begins, before step 2^60");
    if (bytes > kBytesMax) reject(path, number, "a buffer has at most 2^46 bytes");
    if (std::max(stream, freed_on) >= kStreamsMax) reject(path, number, "streams have numbers below 65536");
    if (!bytes) continue;
    trace.events.push_back({lower, true, trace.bytes.size(), static_cast<unsigned>(stream)});
    trace.events.push_back({upper, false, trace.bytes.size(), static_cast<unsigned>(freed_on)});
    trace.bytes.push_back(bytes);
  }
  if (!file.eof() || trace.events.empty()) reject(path, 1, "there is no buffer");
  std::stable_sort(trace.events.begin(), trace.events.end(), [](const Event& a, const Event& b) {
    return a.step != b.step ? a.step < b.step : a.begins < b.begins;
  });
  return trace;
}

}  // namespace bench
