// A document tree: nested text is parsed into objects with maps, lists and strings, printed again, compared, and freed
// as a whole; several documents live at once.
#include <map>
#include <memory>
#include <string>

#include "workload.hpp"

namespace host_bench {
namespace {

constexpr unsigned kDocuments = 25, kAlive = 8, kDepth = 7;

struct Value {
  std::string text;
  std::vector<std::unique_ptr<Value>> list;
  std::map<std::string, std::unique_ptr<Value>> members;
};

// [a,b] is a list, {k:v,} the members in order of their keys, everything else text.
void write_random(std::string& out, Random& random, unsigned depth) {
  if (depth == 0 || random.chance(10)) {
    out += "text-";
    out.append(random.between(1, random.chance(10) ? 300 : 20), static_cast<char>('a' + random.below(26)));
    return;
  }
  const bool list = random.chance(50);
  out += list ? '[' : '{';
  for (std::size_t part = 0, parts = random.between(3, 7); part < parts; ++part) {
    if (!list) out += "member-" + std::to_string(part) + ':';
    write_random(out, random, depth - 1);
    out += ',';
  }
  out += list ? ']' : '}';
}

std::string word(const char*& at) {
  const char* begin = at;
  while (*at != ',' && *at != ':' && *at != ']' && *at != '}' && *at != 0) ++at;
  return {begin, at};
}

std::unique_ptr<Value> parse(const char*& at) {
  auto value = std::make_unique<Value>();
  if (*at == '[') {
    for (++at; *at != ']'; ++at) value->list.push_back(parse(at));
    ++at;
  } else if (*at == '{') {
    for (++at; *at != '}'; ++at) {
      std::string key = word(at);
      value->members.emplace(std::move(key), parse(++at));
    }
    ++at;
  } else {
    value->text = word(at);
  }
  return value;
}

void print(const Value& value, std::string& out) {
  if (!value.list.empty()) {
    out += '[';
    for (const auto& part : value.list) {
      print(*part, out);
      out += ',';
    }
    out += ']';
  } else if (!value.members.empty()) {
    out += '{';
    for (const auto& [key, member] : value.members) {
      out += key + ':';
      print(*member, out);
      out += ',';
    }
    out += '}';
  } else {
    out += value.text;
  }
}

void run(const Setting& setting) {
  Random random(setting.seed);
  std::vector<std::unique_ptr<Value>> alive(kAlive);
  for (unsigned document = 0; document < kDocuments; ++document) {
    std::string text, again;
    write_random(text, random, kDepth);
    const char* at = text.c_str();
    std::unique_ptr<Value>& place = alive[random.below(kAlive)];
    place = parse(at);
    print(*place, again);
    require(again == text, "a document changed");
  }
}

const Workload document("document", run);

}  // namespace
}  // namespace host_bench
