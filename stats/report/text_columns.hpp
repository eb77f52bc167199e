// Tables of the text report: a column is a header, a width and a cell. The cell of a field that stands there as it is
// comes from its row in fields.def, by the row's type: cells::of_OBJECT::show_FIELD.
#pragma once
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

#include "stats/format.hpp"
#include "stats/report/field_values.hpp"
#include "stats/report/text_parts.hpp"

namespace cistern {

template <class Row>
struct Column {
  const char* header;
  int width;  // less than 0: from the left
  String (*cell)(const Row&);
  int gap = 2;  // before the column
};

[[gnu::noinline]] inline void write_cell(std::string_view cell, int width, int gap, Sink& sink) {
  if (width < 0)
    sink.print("{:{}}{:<{}}", "", gap, cell, -width);
  else
    sink.print("{:{}}{:>{}}", "", gap, cell, width);
}

template <class Row>
void write_headers(std::span<const Column<Row>> columns, Sink& sink) {
  for (const Column<Row>& column : columns) write_cell(column.header, column.width, column.gap, sink);
  sink.write("\n");
}

template <class Row>
void write_row(std::span<const Column<Row>> columns, const Row& row, Sink& sink) {
  for (const Column<Row>& column : columns) write_cell(column.cell(row), column.width, column.gap, sink);
  sink.write("\n");
}

namespace cells {

struct Text {};
struct Count {};
struct Bytes {};
struct Rate {};
struct Ratio {};
struct Other {};  // no column has one

constexpr Text text;
constexpr Count count, positive, version;
constexpr Bytes bytes;
constexpr Other flag;
constexpr Rate bytes_per_s(int) { return {}; }
constexpr Ratio ratio(int) { return {}; }
constexpr Other seconds(int) { return {}; }
constexpr Other nanoseconds(int) { return {}; }
constexpr Other factor(int) { return {}; }
constexpr Text one_of(Other) { return {}; }
constexpr Text like(const char*, Text) { return {}; }
constexpr Count between(int, int, Count) { return {}; }
constexpr Other object(Other) { return {}; }
template <class Of>
constexpr Other list(Of) {
  return {};
}
template <class Of, class Key>
constexpr Other map(Of, Key, Other = {}) {
  return {};
}

inline String cell(Text, std::string_view value) { return printable(String(value)); }
inline String cell(Count, std::uint64_t value) { return grouped(value); }
inline String cell(Bytes, std::uint64_t value) { return human_bytes(value); }
inline String cell(Rate, double value) { return decimal(value / (1024.0 * 1024 * 1024), 2); }
inline String cell(Ratio, double value) { return percent(value); }

template <class Type, class Value>
String cell_if_known(Type type, const std::optional<Value>& value) {
  return value ? cell(type, *value) : String("-");
}
inline String cell_if_known(Text type, const char* value) { return value ? cell(type, value) : String("-"); }

// A cell is code only where a column has it.
// clang-format off
#define SCHEMA(number)
#define ENUM(name) constexpr Other name;
#define VALUE(...)
#define END_ENUM
#define OBJECT(name, type, ...) constexpr Other name;
#define RULE(...)
#define FIELD(...)
#define FIELD_IF(...)
#define FIELD_IF_ANY(...)
#define FIELD_IF_KNOWN(...)
#define END
#include "stats/report/fields.def"

#define SCHEMA(number) constexpr unsigned kSchema = number;
#define ENUM(name)
#define OBJECT(name, type, ...) struct of_##name {
#define CELL(name, result) static String show_##name([[maybe_unused]] const auto& of) { return result; }
#define FIELD(name, type, value, ...) CELL(name, cell(type, value))
#define FIELD_IF(name, type, condition, value, ...) CELL(name, (condition) ? cell(type, value) : String("-"))
#define FIELD_IF_ANY(name, type, value, ...) CELL(name, (value) ? cell(type, value) : String("-"))
#define FIELD_IF_KNOWN(name, type, value, ...) CELL(name, cell_if_known(type, value))
#define END };
#define VALUE(...)
#define END_ENUM
#define RULE(...)
#include "stats/report/fields.def"
#undef CELL
// clang-format on

}  // namespace cells
}  // namespace cistern
