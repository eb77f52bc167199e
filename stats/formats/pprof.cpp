// See pprof.hpp. Each sample has blocks and bytes of each Value, then its live bytes once more under its kind. The
// names of what Go's heap profiles have, too, are those: inuse_objects and inuse_space.
#include "stats/formats/pprof.hpp"

#include <algorithm>
#include <map>

#include "stats/formats/protobuf.hpp"

namespace cistern::formats {
namespace {

// The fields of profile.proto.
enum ProfileField {
  kSampleType = 1,
  kSample,
  kMapping,
  kLocation,
  kFunction,
  kStringTable,
  kDurationNanos = 10,
  kComment = 13,
  kDefaultSampleType = 14
};
enum ValueTypeField { kType = 1, kUnit };
enum SampleField { kLocationId = 1, kValue, kLabel };
enum LabelField { kKey = 1, kStr };
enum MappingField {
  kMappingId = 1,
  kMemoryStart,
  kMemoryLimit,
  kFilename = 5,
  kBuildId,
  kHasFunctions,
  kHasFilenames,
  kHasLineNumbers,
  kHasInlineFrames
};
enum LocationField { kLocationOwnId = 1, kLocationMapping, kAddress, kLine };
enum LineField { kLineFunction = 1, kLineNumber };
enum FunctionField { kFunctionId = 1, kName, kFunctionFilename = 4 };

struct ValueName {
  const char *blocks, *bytes;
};
ValueName name_of(Value value) {
  return value == Value::live   ? ValueName{"inuse_objects", "inuse_space"}
         : value == Value::lost ? ValueName{"lost_objects", "lost_space"}
                                : ValueName{"peak_objects", "peak_space"};
}

// The same in all profiles, whatever kinds a run has: older versions of pprof compare only such profiles (-diff_base).
constexpr const char* kKinds[] = {"host", "device", "pinned", "managed", "opencl", "other"};

// Of kKinds. Kinds of one device have its number: "device:0", "async:1".
std::string_view general_kind(std::string_view kind) {
  if (kind.find(':') != kind.npos) return "device";
  return std::ranges::find(kKinds, kind) == std::end(kKinds) ? "other" : kind;
}

// Reports do not say where modules were loaded. Here they lie one behind the other, so that addresses differ.
struct Module {
  Count id = 0, start = 0, bytes = 0;
  std::string build_id;
};

class Profile {
 public:
  explicit Profile(const Run& run) : samples_(samples_of(run)) { index_of(""); }  // the first must be the empty one

  std::string write(const Run& run, Value value) {
    write_types();
    place_modules(run);
    for (const Sample& sample : samples_.list) write_sample(sample, run.reports.size() > 1);
    double seconds = 0;
    for (const Report& report : run.reports) {
      seconds = std::max(seconds, report.cistern.wall_s);
      profile_.number(kComment,
                      index_of("cistern " + printable(report.cistern.version) + ", pid " +
                               std::to_string(report.cistern.pid) + ": " + printable(report.cistern.command)));
    }
    profile_.number(kDurationNanos, static_cast<Count>(std::clamp(seconds, 0.0, 1e9) * 1e9));
    profile_.number(kDefaultSampleType, index_of(name_of(value).bytes));
    for (const std::string& text : strings_) profile_.text(kStringTable, text);
    return profile_.bytes();
  }

 private:
  void write_types() {
    for (const Value value : kValues) {
      write_type(name_of(value).blocks, "count");
      write_type(name_of(value).bytes, "bytes");
    }
    for (const std::string kind : kKinds) write_type(kind + "_space", "bytes");
  }
  void write_type(const std::string& name, const char* unit) {
    Message type;
    type.number(kType, index_of(name));
    type.number(kUnit, index_of(unit));
    profile_.message(kSampleType, type);
  }

  void place_modules(const Run& run) {
    constexpr Count kPage = 4096, kLargest = Count{1} << 46;
    std::vector<std::string> paths;
    for (const Frame& frame : samples_.frames) {
      if (frame.module.empty()) continue;
      const auto [at, is_new] = modules_.try_emplace(frame.module);
      if (is_new) paths.push_back(frame.module);
      Module& module = at->second;
      module.bytes = std::max(module.bytes, std::min(frame.offset, kLargest) / kPage * kPage + kPage);
      module.build_id = frame.build_id;
    }
    // pprof takes the first mapping for the program. The program `python3` is the file python3.11.
    std::stable_partition(paths.begin(), paths.end(), [&](const std::string& path) {
      return file_name(path).starts_with(program_name(run.reports.front().cistern));
    });
    Count start = Count{1} << 22;
    for (const std::string& path : paths) {
      Module& module = modules_[path];
      module.id = ++mapping_ids_;
      module.start = start;
      start += module.bytes;
      Message mapping;
      mapping.number(kMappingId, module.id);
      mapping.number(kMemoryStart, module.start);
      mapping.number(kMemoryLimit, start);
      mapping.number(kFilename, index_of(path));
      mapping.number(kBuildId, index_of(module.build_id));
      // Otherwise pprof looks for names itself, and finds them in whatever file has this path now.
      for (const int has : {kHasFunctions, kHasFilenames, kHasLineNumbers, kHasInlineFrames}) mapping.number(has, 1);
      profile_.message(kMapping, mapping);
    }
  }

  void write_sample(const Sample& sample, bool several_processes) {
    std::vector<Count> values;
    for (const Value value : kValues) {
      values.push_back(signed_count(sample.at(value).blocks));
      values.push_back(signed_count(sample.at(value).bytes));
    }
    for (const std::string_view kind : kKinds)
      values.push_back(kind == general_kind(sample.kind) ? signed_count(sample.live.bytes) : 0);
    std::vector<Count> locations;
    samples_.visit_places(sample, [&](std::span<const FrameId> place) { locations.push_back(location_of(place)); });
    Message message;
    message.packed(kLocationId, locations);
    message.packed(kValue, values);
    const auto label = [&](const char* key, const std::string& value) {
      if (value.empty()) return;
      Message pair;
      pair.number(kKey, index_of(key));
      pair.number(kStr, index_of(value));
      message.message(kLabel, pair);
    };
    label("kind", printable(sample.kind));
    if (sample.row) {
      label("class", printable(sample.row->leak_class));
      label("object", printable(sample.row->object));
      label("call", printable(sample.row->api));
      label("owner", printable(sample.row->owner));
    }
    if (several_processes) label("process", samples_.frames[sample.stack.back()].function);
    profile_.message(kSample, message);
  }

  Count location_of(std::span<const FrameId> place) {
    const auto [at, is_new] = locations_.try_emplace(Stack(place.begin(), place.end()), locations_.size() + 1);
    if (!is_new) return at->second;
    const Frame& outermost = samples_.frames[place.back()];
    Message location;
    location.number(kLocationOwnId, at->second);
    if (const auto module = modules_.find(outermost.module); module != modules_.end()) {
      location.number(kLocationMapping, module->second.id);
      location.number(kAddress, module->second.start + std::min(outermost.offset, module->second.bytes - 1));
    } else {
      location.number(kAddress, outermost.address);
    }
    for (const FrameId id : place) {
      Message line;
      line.number(kLineFunction, function_of(samples_.frames[id]));
      line.number(kLineNumber, signed_count(samples_.frames[id].line));
      location.message(kLine, line);
    }
    profile_.message(kLocation, location);
    return at->second;
  }

  Count function_of(const Frame& frame) {
    const auto [at, is_new] = functions_.try_emplace({frame.function, frame.file}, functions_.size() + 1);
    if (!is_new) return at->second;
    Message function;
    function.number(kFunctionId, at->second);
    function.number(kName, index_of(frame.function));
    function.number(kFunctionFilename, index_of(frame.file));
    profile_.message(kFunction, function);
    return at->second;
  }

  Count index_of(const std::string& text) {
    const auto [at, is_new] = string_ids_.try_emplace(text, strings_.size());
    if (is_new) strings_.push_back(text);
    return at->second;
  }

  Samples samples_;
  Message profile_;
  Count mapping_ids_ = 0;
  std::map<std::string, Module> modules_;
  std::map<Stack, Count> locations_;
  std::map<std::pair<std::string, std::string>, Count> functions_;
  std::map<std::string, Count> string_ids_;
  std::vector<std::string> strings_;
};

}  // namespace

std::string pprof(const Run& run, Value value) { return Profile(run).write(run, value); }

}  // namespace cistern::formats
