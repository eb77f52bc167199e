// See csv.hpp.
#include "stats/formats/csv.hpp"

#include "stats/formats/table.hpp"

namespace cistern::formats {
namespace {

class Line {
 public:
  void add(std::string_view value) {
    const bool quoted = value.find_first_of(",\"") != value.npos;
    text_ += is_first_ ? "" : ",";
    is_first_ = false;
    text_ += quoted ? "\"" : "";
    for (const char character : value) {
      if (character == '"') text_ += '"';
      text_ += character;
    }
    text_ += quoted ? "\"" : "";
  }
  std::string end() const { return text_ + "\n"; }

 private:
  std::string text_;
  bool is_first_ = true;
};

struct Names {
  Line line;
  void operator()(const char* name, const auto&) { line.add(name); }
};

struct Values {
  Line line;
  void operator()(const char*, const std::string& value) { line.add(value); }
  void operator()(const char*, bool value) { line.add(value ? "1" : "0"); }
  void operator()(const char*, Count value) { line.add(std::to_string(value)); }
  void operator()(const char*, const auto& optional) { line.add(optional ? std::to_string(*optional) : ""); }
};

}  // namespace

std::string csv(const Run& run) {
  Names names;
  visit_columns(names, {});
  std::string text = names.line.end();
  for_each_table_row(run, [&](const TableRow& row) {
    Values values;
    visit_columns(values, row);
    text += values.line.end();
  });
  return text;
}

}  // namespace cistern::formats
