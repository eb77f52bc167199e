// See merged.hpp.
#include "stats/formats/merged.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "stats/formats/read.hpp"
#include "stats/formats/samples.hpp"

namespace cistern::formats {
namespace {

using Json = nlohmann::ordered_json;

constexpr Count kSchema = 1;
constexpr char kHead[] = "cistern_merge";

bool is_larger(const Spread::At& one, const Spread::At& other) {
  return one.value != other.value ? one.value > other.value : one.process < other.process;
}

bool is_smaller(const Spread::At& one, const Spread::At& other) {
  return one.value != other.value ? one.value < other.value : one.process < other.process;
}

void keep_largest(std::vector<Spread::At>& all) {
  std::ranges::sort(all, is_larger);
  if (all.size() > MergedKind::kLargestMax) all.resize(MergedKind::kLargestMax);
}

Frame shown(const Frame& frame) {
  Frame one;
  one.function = frame.function, one.file = frame.file, one.module = frame.module, one.line = frame.line;
  one.python = frame.python, one.inlined = frame.inlined;
  // Without a name only the place in the module tells two frames apart.
  if (frame.function.empty()) one.offset = frame.offset;
  return one;
}

// A figure that a file invents does not make the sum of all a small one.
void add(Count& sum, Count value) { sum = value > UINT64_MAX - sum ? UINT64_MAX : sum + value; }

std::string key_of(const MergedSite& site) {
  std::string key = site.kind + '\0' + site.leak_class + '\0' + site.object + '\0' + site.api;
  for (const Frame& frame : site.frames)
    key += '\0' + frame.function + '\0' + frame.file + '\0' + frame.module + '\0' + std::to_string(frame.line) + '+' +
           std::to_string(frame.offset);
  return key;
}

// Where a process has a site in several rows, its bytes are those of all.
void add_sites(Merged& merged, const Run& run, const Report& report) {
  struct Held {
    MergedSite site;
    Count bytes = 0;
  };
  std::map<std::string, Held> held;
  for (const LiveRow& row : report.leaks) {
    if (row.suppressed) continue;
    MergedSite site{row.kind, row.leak_class, row.object, row.api, {}, 0, {}};
    for (const FrameId id : run.stacks[row.frames]) site.frames.push_back(shown(run.frames[id]));
    std::string key = key_of(site);
    Held& all = held.try_emplace(std::move(key), Held{std::move(site)}).first->second;
    add(all.site.blocks, row.blocks);
    add(all.bytes, row.bytes);
  }
  for (auto& [key, one] : held) {
    MergedSite& into =
        merged.sites
            .try_emplace(
                key,
                MergedSite{one.site.kind, one.site.leak_class, one.site.object, one.site.api, one.site.frames, 0, {}})
            .first->second;
    add(into.blocks, one.site.blocks);
    into.bytes.add(one.bytes, rank_or_pid(report.cistern));
  }
}

// --- JSON
Json json_of(const Spread::At& at) { return {{"value", at.value}, {"process", at.process}}; }
Json json_of(const Spread& spread) {
  return {{"processes", spread.processes},
          {"sum", spread.sum},
          {"least", json_of(spread.least)},
          {"most", json_of(spread.most)}};
}

[[noreturn]] void refuse(const char* what) { throw BadReport(std::string("is no merged report: ") + what); }

const Json& member(const Json& json, const char* name) {
  const auto found = json.is_object() ? json.find(name) : json.end();
  if (!json.is_object() || found == json.end()) refuse(name);
  return *found;
}
Count count_in(const Json& json, const char* name) {
  const Json& value = member(json, name);
  if (!value.is_number_unsigned()) refuse(name);
  return value.get<Count>();
}
std::string text_in(const Json& json, const char* name) {
  const Json& value = member(json, name);
  if (!value.is_string()) refuse(name);
  return value.get<std::string>();
}
Spread::At at_in(const Json& json) { return {count_in(json, "value"), text_in(json, "process")}; }
Spread spread_in(const Json& json, const char* name, Count processes_max) {
  const Json& value = member(json, name);
  Spread spread = {count_in(value, "processes"), count_in(value, "sum"), at_in(member(value, "least")),
                   at_in(member(value, "most"))};
  if (!spread.processes || spread.processes > processes_max) refuse("processes");
  if (spread.least.value > spread.most.value || spread.most.value > spread.sum) refuse(name);
  return spread;
}
template <class Use>
void each(const Json& json, const char* name, Use use) {
  const Json& list = member(json, name);
  if (!list.is_array()) refuse(name);
  for (const Json& element : list) use(element);
}

MergedKind kind_in(const Json& json, Count processes) {
  MergedKind kind{spread_in(json, "live_bytes", processes),
                  spread_in(json, "peak_bytes", processes),
                  spread_in(json, "allocations", processes),
                  spread_in(json, "failed", processes),
                  {}};
  each(json, "largest", [&](const Json& at) { kind.largest.push_back(at_in(at)); });
  keep_largest(kind.largest);
  return kind;
}

MergedSite site_in(const Json& json, Count processes) {
  MergedSite site{text_in(json, "kind"),
                  text_in(json, "class"),
                  text_in(json, "object"),
                  text_in(json, "api"),
                  {},
                  count_in(json, "blocks"),
                  spread_in(json, "bytes", processes)};
  each(json, "frames", [&](const Json& one) {
    Frame frame;
    frame.function = text_in(one, "function"), frame.file = text_in(one, "file"), frame.module = text_in(one, "module");
    frame.line = count_in(one, "line"), frame.offset = count_in(one, "offset");
    frame.python = member(one, "python") == true, frame.inlined = member(one, "inlined") == true;
    site.frames.push_back(frame);
  });
  return site;
}

}  // namespace

void Spread::add(Count value, const std::string& process) { merge({1, value, {value, process}, {value, process}}); }

void Spread::merge(const Spread& other) {
  if (!other.processes) return;
  if (!processes || is_smaller(other.least, least)) least = other.least;
  if (!processes || is_larger(other.most, most)) most = other.most;
  formats::add(processes, other.processes);
  formats::add(sum, other.sum);
}

void MergedKind::merge(const MergedKind& other) {
  live_bytes.merge(other.live_bytes), peak_bytes.merge(other.peak_bytes);
  allocations.merge(other.allocations), failed.merge(other.failed);
  largest.insert(largest.end(), other.largest.begin(), other.largest.end());
  keep_largest(largest);
}

Merged merged(const Run& run) {
  Merged all;
  for (const Report& report : run.reports) {
    const std::string process = rank_or_pid(report.cistern);
    ++all.processes;
    for (const auto& [name, kind] : report.kinds) {
      MergedKind one;
      one.live_bytes.add(kind.live_bytes, process), one.peak_bytes.add(kind.peak_bytes, process);
      one.allocations.add(kind.allocations, process), one.failed.add(kind.failed, process);
      one.largest.push_back({kind.peak_bytes, process});
      all.kinds[name].merge(one);
    }
    add_sites(all, run, report);
  }
  return all;
}

void merge(Merged& into, const Merged& other) {
  add(into.processes, other.processes);
  for (const auto& [name, kind] : other.kinds) into.kinds[name].merge(kind);
  for (const auto& [key, site] : other.sites) {
    const auto [at, is_new] = into.sites.try_emplace(key, site);
    if (is_new) continue;
    add(at->second.blocks, site.blocks);
    at->second.bytes.merge(site.bytes);
  }
}

std::string merged_json(const Merged& merged) {
  Json json = {{kHead, {{"version", CISTERN_VERSION}, {"schema", kSchema}, {"processes", merged.processes}}},
               {"kinds", Json::object()},
               {"sites", Json::array()}};
  for (const auto& [name, kind] : merged.kinds) {
    Json largest = Json::array();
    for (const Spread::At& at : kind.largest) largest.push_back(json_of(at));
    json["kinds"][name] = {{"live_bytes", json_of(kind.live_bytes)},
                           {"peak_bytes", json_of(kind.peak_bytes)},
                           {"allocations", json_of(kind.allocations)},
                           {"failed", json_of(kind.failed)},
                           {"largest", largest}};
  }
  for (const auto& [key, site] : merged.sites) {
    Json frames = Json::array();
    for (const Frame& frame : site.frames)
      frames.push_back({{"function", frame.function},
                        {"file", frame.file},
                        {"line", frame.line},
                        {"module", frame.module},
                        {"offset", frame.offset},
                        {"python", frame.python},
                        {"inlined", frame.inlined}});
    json["sites"].push_back({{"kind", site.kind},
                             {"class", site.leak_class},
                             {"object", site.object},
                             {"api", site.api},
                             {"blocks", site.blocks},
                             {"bytes", json_of(site.bytes)},
                             {"frames", frames}});
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

bool looks_merged(std::string_view json) {
  const std::size_t at = json.find('"');
  return json.starts_with('{') && at != json.npos && json.substr(at + 1).starts_with(kHead);
}

Merged read_merged(std::string_view text) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception&) {
    throw BadReport("is damaged or cut off: its JSON does not end");
  }
  const Json& head = member(json, kHead);
  if (count_in(head, "schema") != kSchema) throw BadReport("is a merged report of another version of Cistern");
  Merged merged;
  merged.processes = count_in(head, "processes");
  const Json& kinds = member(json, "kinds");
  if (!kinds.is_object()) refuse("kinds");
  for (const auto& [name, kind] : kinds.items()) merged.kinds[name] = kind_in(kind, merged.processes);
  each(json, "sites", [&](const Json& one) {
    MergedSite site = site_in(one, merged.processes);
    std::string key = key_of(site);
    merged.sites.insert_or_assign(std::move(key), std::move(site));
  });
  return merged;
}

}  // namespace cistern::formats
