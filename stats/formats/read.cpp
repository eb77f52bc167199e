// See read.hpp.
#include "stats/formats/read.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

namespace cistern::formats {
namespace {

using Json = nlohmann::ordered_json;

constexpr Count kSchema = 4;  // SCHEMA of fields.def

// Reads the members of one object. A member that is not there leaves its default.
class Members {
 public:
  Members(const Json& object, const char* name, RunReader& stacks) : object_(object), name_(name), stacks_(stacks) {
    if (!object.is_object()) refuse("is no object");
  }

  template <class Value>
  void operator()(const char* name, Value& value) {
    if (const auto found = object_.find(name); found != object_.end()) Member{*found, name, stacks_}.read(value);
  }
  void stack(const char* name, StackId& id) {
    std::vector<Frame> frames;
    (*this)(name, frames);
    id = stacks_.stack_of(frames);
  }

 private:
  [[noreturn]] void refuse(const char* what) const {
    throw BadReport(std::string("is no report of Cistern: '") + name_ + "' " + what);
  }

  struct Member {
    const Json& json;
    const char* name;
    RunReader& stacks;

    [[noreturn]] void refuse(const char* what) const {
      throw BadReport(std::string("is no report of Cistern: '") + name + "' " + what);
    }
    void read(std::string& value) const {
      if (!json.is_string()) refuse("is no text");
      value = json.get_ref<const std::string&>();
    }
    void read(Count& value) const {
      if (!json.is_number_unsigned()) refuse("is no count");
      value = json.get<Count>();
    }
    void read(double& value) const {
      if (!json.is_number() || !std::isfinite(json.get<double>())) refuse("is no number");
      value = json.get<double>();
    }
    void read(bool& value) const {
      if (!json.is_boolean()) refuse("is neither true nor false");
      value = json.get<bool>();
    }
    template <class Value>
    void read(std::optional<Value>& value) const {
      read(value.emplace());
    }
    template <class Value>
    void read(std::vector<Value>& values) const {
      if (!json.is_array()) refuse("is no list");
      values.reserve(json.size());
      for (const Json& element : json) Member{element, name, stacks}.read(values.emplace_back());
    }
    template <class Value>
    void read(Named<Value>& values) const {
      if (!json.is_object()) refuse("is no object");
      for (const auto& [key, element] : json.items())
        Member{element, name, stacks}.read(values.emplace_back(key, Value()).second);
    }
    template <class Object>
    requires std::is_class_v<Object>
    void read(Object& object) const {
      Members members(json, name, stacks);
      visit_fields(members, object);
    }
  };

  const Json& object_;
  const char* name_;
  RunReader& stacks_;
};

// `process`: the member `cistern`.
void require_schema(const Json& process) {
  const auto schema = process.find("schema");
  if (schema == process.end() || !schema->is_number_unsigned()) throw BadReport("is JSON, but no report of Cistern");
  const Count version = schema->get<Count>();
  if (version == kSchema) return;
  throw BadReport(std::string(version > kSchema ? "is from a newer" : "is from an older") + " Cistern (schema " +
                  std::to_string(version) + ", this one reads " + std::to_string(kSchema) + ")");
}

void require_contract(const Json& report) {
  if (report.is_object() && report.contains("cistern_merge"))
    throw BadReport("is a merged report: cistern merge shows it");
  const auto process = report.is_object() ? report.find("cistern") : report.end();
  if (!report.is_object() || process == report.end() || !process->is_object())
    throw BadReport("is JSON, but no report of Cistern");
  require_schema(*process);
}

// False: the section has no rows by call site.
bool add_row(Report& report, const std::string& section, const Json& row, RunReader& stacks) {
  const auto read = [&](auto& rows) {
    Members members(row, section.c_str(), stacks);
    visit_fields(members, rows.emplace_back());
    return true;
  };
  if (section == "leaks") return read(report.leaks);
  if (section == "at_peak") return read(report.at_peak);
  if (section == "in_loops") return read(report.in_loops);
  if (section == "growing") return read(report.growing);
  if (section == "copy_sites") return read(report.copy_sites);
  if (section == "waits") return read(report.waits);
  return false;
}

}  // namespace

// Rows are read and dropped one by one as they are parsed: a report may be large, and a tree of it ten times as large.
void RunReader::add(std::string_view text) {
  if (text.empty()) throw BadReport("is empty");
  Report report;
  std::string section;  // the member of the report that is being parsed
  constexpr int kMember = 1, kRow = 2;
  const auto read_rows = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::key && depth == kMember) section = parsed.get_ref<const std::string&>();
    if (event == Json::parse_event_t::object_end && depth == kMember && section == "cistern") require_schema(parsed);
    if (event != Json::parse_event_t::object_end || depth != kRow) return true;
    return !add_row(report, section, parsed, *this);
  };
  Json json;
  try {
    json = Json::parse(text, read_rows);
  } catch (const Json::exception&) {
    throw BadReport(text.front() == '{' ? "is damaged or cut off: its JSON does not end" : "is no JSON report");
  }
  require_contract(json);
  Members members(json, "report", *this);
  visit_fields(members, report);
  run_.reports.push_back(std::move(report));
}

StackId RunReader::stack_of(const std::vector<Frame>& frames) {
  Stack stack;
  stack.reserve(frames.size());
  for (const Frame& frame : frames) {
    const auto [at, is_new] = frame_ids_.try_emplace(frame, static_cast<FrameId>(run_.frames.size()));
    if (is_new) run_.frames.push_back(frame);
    stack.push_back(at->second);
  }
  const auto [at, is_new] = stack_ids_.try_emplace(stack, static_cast<StackId>(run_.stacks.size()));
  if (is_new) run_.stacks.push_back(std::move(stack));
  return at->second;
}

std::size_t RunReader::Hash::operator()(const Frame& frame) const {
  const std::hash<std::string> hash;
  return ((hash(frame.function) * 31 + hash(frame.file)) * 31 + hash(frame.module)) * 31 + frame.line * 7 +
         frame.offset;
}

std::size_t RunReader::Hash::operator()(const Stack& stack) const {
  std::size_t hash = stack.size();
  for (const FrameId id : stack) hash = hash * 1'000'003 + id;
  return hash;
}

}  // namespace cistern::formats
