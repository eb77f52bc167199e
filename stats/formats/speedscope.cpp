// See speedscope.hpp.
#include "stats/formats/speedscope.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace cistern::formats {
namespace {

using Json = nlohmann::ordered_json;

const char* title_of(Value value) {
  return value == Value::live ? "live at the end" : value == Value::lost ? "lost" : "at the peak";
}

Json frames_of(const Samples& samples) {
  Json list = Json::array();
  for (const Frame& frame : samples.frames) {
    Json& json = list.emplace_back(Json{{"name", frame.function}});
    const std::string& file = frame.file.empty() ? frame.module : frame.file;
    if (!file.empty()) json["file"] = file;
    if (frame.line) json["line"] = frame.line;
  }
  return list;
}

Json profile_of(const Samples& samples, Value value, Count Amount::*figure) {
  Json stacks = Json::array(), weights = Json::array();
  Count sum = 0;
  for (const Sample& sample : samples.list) {
    const Count weight = sample.at(value).*figure;
    if (!weight) continue;
    stacks.push_back(std::vector<FrameId>(sample.stack.rbegin(), sample.stack.rend()));
    weights.push_back(weight);
    sum += weight;
  }
  const bool bytes = figure == &Amount::bytes;
  return {{"type", "sampled"},
          {"name", std::string(title_of(value)) + (bytes ? ", bytes" : ", blocks")},
          {"unit", bytes ? "bytes" : "none"},
          {"startValue", 0},
          {"endValue", sum},
          {"samples", std::move(stacks)},
          {"weights", std::move(weights)}};
}

}  // namespace

std::string speedscope(const Run& run, Value value) {
  const Samples samples = samples_of(run);
  Json profiles = Json::array();
  std::size_t first = 0;
  for (const auto figure : {&Amount::bytes, &Amount::blocks}) {
    for (const Value each : kValues) {
      const bool wanted = each == value && figure == &Amount::bytes;
      Json profile = profile_of(samples, each, figure);
      if (wanted) first = profiles.size();
      if (wanted || !profile["samples"].empty()) profiles.push_back(std::move(profile));
    }
  }
  const std::string name = run.reports.empty() ? "" : process_name(run.reports.front().cistern);
  const Json file = {{"$schema", "https://www.speedscope.app/file-format-schema.json"},
                     {"shared", {{"frames", frames_of(samples)}}},
                     {"profiles", std::move(profiles)},
                     {"name", name},
                     {"activeProfileIndex", first},
                     {"exporter", "cistern@" CISTERN_VERSION}};
  return file.dump() + "\n";
}

}  // namespace cistern::formats
