// See perfetto_archive.hpp.
#include "stats/formats/perfetto_archive.hpp"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "stats/formats/perfetto.hpp"
#include "stats/formats/read.hpp"

namespace cistern::formats {
namespace {

// --- POSIX ustar
constexpr std::size_t kBlock = 512;

struct Head {
  char name[100], mode[8], owner[8], group[8], bytes[12], time[12], sum[8], type;
  char linked[100], magic[6], version[2], owner_name[32], group_name[32], device[16], folder[155], unused[12];
};
static_assert(sizeof(Head) == kBlock);

// The name is shorter than its field. Without owners and times the same content is the same archive.
Head head_of(const std::string& name, std::size_t bytes) {
  constexpr std::size_t kBytesMax = std::size_t{1} << 33;
  if (bytes >= kBytesMax) throw BadReport("has a larger trace than a tar has room for");
  Head head = {};
  name.copy(head.name, sizeof head.name - 1);
  for (char* const field : {head.owner, head.group}) std::snprintf(field, sizeof head.owner, "%07o", 0);
  std::snprintf(head.mode, sizeof head.mode, "%07o", 0644);
  std::snprintf(head.time, sizeof head.time, "%011o", 0);
  std::snprintf(head.bytes, sizeof head.bytes, "%011zo", bytes);
  head.type = '0';
  std::snprintf(head.magic, sizeof head.magic, "ustar");
  head.version[0] = head.version[1] = '0';
  // The sum is that of a head with spaces in its place.
  unsigned sum = sizeof head.sum * ' ';
  for (std::size_t at = 0; at < sizeof head; ++at) sum += reinterpret_cast<const unsigned char*>(&head)[at];
  std::snprintf(head.sum, sizeof head.sum, "%06o", sum);
  head.sum[sizeof head.sum - 1] = ' ';
  return head;
}

std::string trace_name(const std::string& machine) { return machine + ".pftrace"; }

}  // namespace

void PerfettoArchive::add(const Run& run) {
  const Process& process = run.reports.front().cistern;
  // A rank may be of several processes, and their clocks are not one: each has a machine of its own.
  std::string machine = rank_or_pid(process);
  for (int number = 2; !names_.insert(machine).second; ++number)
    machine = rank_or_pid(process) + " (" + std::to_string(number) + ")";
  put(trace_name(machine), perfetto(run));
  machines_.push_back(machine);
  if (first_.empty() || (process.start_unix_s && (!first_s_ || *process.start_unix_s < *first_s_)))
    first_ = machine, first_s_ = process.start_unix_s;
}

void PerfettoArchive::end() {
  using Json = nlohmann::ordered_json;
  Json files = Json::array();
  for (const std::string& machine : machines_)
    files.push_back({{"path", trace_name(machine)}, {"machine", {{"name", machine}}}});
  // Perfetto drops what is before the beginning of the clock that it shows.
  const Json clock = {{"clock", "BOOTTIME"}, {"file", trace_name(first_)}};
  const Json manifest = {{"perfetto_manifest", {{"version", 1}, {"trace_time", clock}, {"files", files}}}};
  put("perfetto_manifest.json", manifest.dump() + "\n");
  write_(std::string(2 * kBlock, '\0'));
}

void PerfettoArchive::put(const std::string& name, const std::string& content) {
  const Head head = head_of(name, content.size());
  write_({reinterpret_cast<const char*>(&head), sizeof head});
  write_(content);
  write_(std::string((kBlock - content.size() % kBlock) % kBlock, '\0'));
}

}  // namespace cistern::formats
