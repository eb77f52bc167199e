// Lifetimes of buffers, read from a file with a line `id,lower,upper,size` for each (half-open lifetime in steps,
// bytes), after a heading.
#pragma once
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace bench {

struct Event {
  long step;
  bool begins;  // those that end come first
  std::size_t buffer;
};

struct Trace {
  std::vector<std::size_t> bytes;
  std::vector<Event> events;
};

inline Trace read_trace(const char* path) {
  Trace trace;
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream fields(line);
    std::string id;
    long lower = 0, upper = 0;
    std::size_t bytes = 0;
    if (!(fields >> id >> lower >> upper >> bytes)) {
      std::fprintf(stderr, "%s: no line of id,lower,upper,size: %s\n", path, line.c_str());
      std::exit(1);
    }
    if (!bytes) continue;
    trace.events.push_back({lower, true, trace.bytes.size()});
    trace.events.push_back({upper, false, trace.bytes.size()});
    trace.bytes.push_back(bytes);
  }
  std::stable_sort(trace.events.begin(), trace.events.end(), [](const Event& a, const Event& b) {
    return a.step != b.step ? a.step < b.step : a.begins < b.begins;
  });
  return trace;
}

}  // namespace bench
