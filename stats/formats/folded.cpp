// See folded.hpp.
#include "stats/formats/folded.hpp"

#include <algorithm>
#include <map>

namespace cistern::formats {

std::string folded(const Run& run, Value value) {
  const Samples samples = samples_of(run);
  std::map<std::string, Count> lines;  // Readers take a line whose number is 0 for damage.
  for (const Sample& sample : samples.list) {
    if (!sample.at(value).bytes) continue;
    std::string line;
    for (auto id = sample.stack.rbegin(); id != sample.stack.rend(); ++id) {
      std::string name = samples.frames[*id].function;
      std::ranges::replace(name, ';', ':');
      line += (line.empty() ? "" : ";") + name;
    }
    lines[line] += sample.at(value).bytes;
  }
  std::string text;
  for (const auto& [line, bytes] : lines) text += line + " " + std::to_string(bytes) + "\n";
  return text;
}

}  // namespace cistern::formats
