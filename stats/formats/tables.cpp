// Groups and changes as text and JSON: see summary.hpp.
#include <nlohmann/json.hpp>

#include "stats/format.hpp"
#include "stats/formats/summary.hpp"
#include "stats/sink.hpp"

namespace cistern::formats {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kNameBytes = 160;

std::string plain(const String& text) { return plain_lines({text.data(), text.size()}); }

String signed_bytes(long double bytes) {
  const auto size = static_cast<Count>(bytes < 0 ? -bytes : bytes);
  return (bytes < 0 ? "-" : "+") + human_bytes(size);
}

const char* word_of(const Change& change) {
  if (!change.before.blocks) return "new";
  if (!change.after.blocks) return "gone";
  return change.growth(false) > 0 ? "grown" : change.growth(false) < 0 ? "shrunk" : "other blocks";
}

Json json_of(const Group& group) {
  return {{"blocks", group.blocks},
          {"bytes", group.bytes},
          {"lost_blocks", group.lost_blocks},
          {"lost_bytes", group.lost_bytes}};
}

std::string dumped(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace

std::string group_table(const std::vector<Group>& groups) {
  StringSink sink;
  sink.print("{:>12}  {:>12}  {:>12}  {}\n", "LIVE", "BLOCKS", "LOST", "NAME");
  for (const Group& group : groups)
    sink.print("{:>12}  {:>12}  {:>12}  {}\n", human_bytes(group.bytes), grouped(group.blocks),
               group.lost_blocks ? human_bytes(group.lost_bytes) : String("-"), printable(group.name, kNameBytes));
  return plain(sink.text());
}

std::string change_table(const std::vector<Change>& changes) {
  StringSink sink;
  if (changes.empty()) sink.write("nothing has changed\n");
  if (!changes.empty())
    sink.print("{:>12}  {:>12}  {:>12}  {:>12}  {:<12}  {}\n", "CHANGE", "BEFORE", "AFTER", "LOST", "", "NAME");
  for (const Change& change : changes)
    sink.print("{:>12}  {:>12}  {:>12}  {:>12}  {:<12}  {}\n", signed_bytes(change.growth(false)),
               human_bytes(change.before.bytes), human_bytes(change.after.bytes),
               change.growth(true) == 0 ? String("-") : signed_bytes(change.growth(true)), word_of(change),
               printable(change.after.name, kNameBytes));
  return plain(sink.text());
}

std::string change_json(const std::vector<Change>& changes) {
  Json all = Json::array();
  for (const Change& change : changes)
    all.push_back({{"name", change.after.name},
                   {"change", word_of(change)},
                   {"before", json_of(change.before)},
                   {"after", json_of(change.after)}});
  return dumped({{"changes", all}});
}

std::string group_json(const std::vector<Group>& groups) {
  Json all = Json::array();
  for (const Group& group : groups) {
    Json one = {{"name", group.name}};
    one.update(json_of(group));
    all.push_back(one);
  }
  return dumped({{"groups", all}});
}

}  // namespace cistern::formats
