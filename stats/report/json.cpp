// The JSON report. Its fields are the rows of fields.def.
#include <optional>
#include <type_traits>

#include "stats/format.hpp"
#include "stats/report/field_values.hpp"
#include "stats/report/report.hpp"

namespace cistern {
namespace {

// One JSON document, written as it goes: knows where commas and line breaks belong. Its functions are out of line, for
// some 250 rows call them.
class Json {
 public:
  explicit Json(Sink& sink) : sink_(sink) {}

  [[gnu::noinline]] void open(char bracket) {
    sink_.write({&bracket, 1});
    ++depth_;
    first_ = true;
  }
  [[gnu::noinline]] void close(char bracket) {
    --depth_;
    if (!first_) line_break();
    sink_.write({&bracket, 1});
    first_ = false;
  }
  [[gnu::noinline]] void element() {
    if (!first_) sink_.write(",");
    first_ = false;
    line_break();
  }
  [[gnu::noinline]] void key(std::string_view name) {
    element();
    sink_.write(json_string(name));
    sink_.write(": ");
  }
  [[gnu::noinline]] void field(std::string_view name, std::string_view text) {
    key(name);
    sink_.write(json_string(text));
  }
  [[gnu::noinline]] void count(std::string_view name, std::uint64_t value) {
    key(name);
    sink_.print("{}", value);
  }
  [[gnu::noinline]] void number(std::string_view name, double value, int digits) {
    key(name);
    sink_.write(decimal(value, digits));
  }
  [[gnu::noinline]] void flag(std::string_view name, bool value) {
    key(name);
    sink_.write(value ? "true" : "false");
  }
  // In one line.
  void counts(std::string_view name, const Vector<std::uint64_t>& values) {
    key(name);
    for (const char* before = "["; const std::uint64_t value : values) {
      sink_.print("{}{}", before, value);
      before = ", ";
    }
    sink_.write(values.empty() ? "[]" : "]");
  }
  void text(std::string_view value) { sink_.write(json_string(value)); }

 private:
  void line_break() {
    sink_.write("\n");
    for (int i = 0; i < depth_; ++i) sink_.write("  ");
  }
  Sink& sink_;
  int depth_ = 0;
  bool first_ = true;
};

// The language of the rows: a type says how its value becomes JSON. The other parts of a type are for the schema.
namespace rows {

struct Text {};
struct Flag {};
struct Integer {};
struct Decimal {
  int digits;
};
struct Values {};
template <class Of>
using Fields = void (*)(Json&, const Of&);  // writes the fields of an object
template <class Of>
struct Object {
  Fields<Of> fields;
};
template <class Of>
struct ListOf {
  Of of;
};
template <class Of, class Item, class Key>
struct MapOf {
  Of of;
  Key Item::*key;
};

constexpr Text text;
constexpr Flag flag;
constexpr Integer count, positive, bytes, version;
constexpr Decimal seconds(int digits) { return {digits}; }
constexpr Decimal nanoseconds(int digits) { return {digits}; }
constexpr Decimal bytes_per_s(int digits) { return {digits}; }
constexpr Decimal ratio(int digits) { return {digits}; }
constexpr Decimal factor(int digits) { return {digits}; }
constexpr Text one_of(Values) { return {}; }
constexpr Text like(const char*, Text) { return {}; }
constexpr Integer between(int, int, Integer) { return {}; }
template <class Of>
constexpr Object<Of> object(Fields<Of> fields) {
  return {fields};
}
constexpr ListOf<Text> list(Text) { return {}; }
constexpr ListOf<Integer> list(Integer) { return {}; }
template <class Of>
constexpr ListOf<Fields<Of>> list(Fields<Of> fields) {
  return {fields};
}
template <class Of, class Key>
constexpr MapOf<Fields<Of>, Of, Key> map(Fields<Of> fields, Key Of::*key, Values = {}) {
  return {fields, key};
}
template <class Item, class Key>
constexpr MapOf<Integer, Item, Key> map(Integer, Key Item::*key) {
  return {{}, key};
}

void put(Json& json, std::string_view name, Text, std::string_view value) { json.field(name, value); }
void put(Json& json, std::string_view name, Flag, bool value) { json.flag(name, value); }
void put(Json& json, std::string_view name, Decimal type, double value) { json.number(name, value, type.digits); }

// Estimates are no integers in the snapshot.
template <class Number>
void put(Json& json, std::string_view name, Integer, Number value) {
  if constexpr (std::is_floating_point_v<Number>)
    json.number(name, value, 0);
  else
    json.count(name, static_cast<std::uint64_t>(value));
}

template <class Of>
void put(Json& json, std::string_view name, Object<Of> type, const Of& value) {
  json.key(name);
  type.fields(json, value);
}

void put(Json& json, std::string_view name, ListOf<Integer>, const Vector<std::uint64_t>& values) {
  json.counts(name, values);
}

template <class Item>
void put(Json& json, std::string_view name, ListOf<Text>, const Vector<Item>& values) {
  json.key(name);
  json.open('[');
  for (const Item& value : values) {
    json.element();
    json.text(value);
  }
  json.close(']');
}

template <class Item>
void put(Json& json, std::string_view name, ListOf<Fields<Item>> type, const Vector<Item>& items) {
  json.key(name);
  json.open('[');
  for (const Item& item : items) {
    json.element();
    type.of(json, item);
  }
  json.close(']');
}

template <class Item>
void put(Json& json, std::string_view name, ListOf<Fields<Item>> type, const Vector<const Item*>& items) {
  json.key(name);
  json.open('[');
  for (const Item* const item : items) {
    json.element();
    type.of(json, *item);
  }
  json.close(']');
}

template <class Item, class Key>
void put(Json& json, std::string_view name, MapOf<Fields<Item>, Item, Key> type, const Vector<Item>& items) {
  json.key(name);
  json.open('{');
  for (const Item& item : items) {
    json.key(item.*type.key);
    type.of(json, item);
  }
  json.close('}');
}

template <class Item, class Key>
void put(Json& json, std::string_view name, MapOf<Integer, Item, Key> type, const Vector<Item>& items) {
  json.key(name);
  json.open('{');
  for (const Item& item : items) json.count(item.*type.key, item.count);
  json.close('}');
}

// FIELD_IF_ANY
template <class Number>
constexpr bool is_any(const Number& number) {
  return number != 0;
}
bool is_any(const String& text) { return !text.empty(); }
template <class Item>
bool is_any(const Vector<Item>& items) {
  return !items.empty();
}

// FIELD_IF_KNOWN
template <class Value>
const Value& known(const std::optional<Value>& value) {
  return *value;
}
std::string_view known(const char* text) { return text; }

// Objects name each other: all are declared first.
#define SCHEMA(number) constexpr unsigned kSchema = number;
#define ENUM(name) constexpr Values name;
#define VALUE(...)
#define END_ENUM
#define OBJECT(name, type, meaning) void name(Json& json, const type& of);
#define RULE(...)
#define FIELD(...)
#define FIELD_IF(...)
#define FIELD_IF_ANY(...)
#define FIELD_IF_KNOWN(...)
#define END
#include "stats/report/fields.def"

#define SCHEMA(number)
#define ENUM(name)
#define OBJECT(name, type, meaning)       \
  void name(Json& json, const type& of) { \
    json.open('{');
#define FIELD(name, type, value, ...) put(json, #name, type, value);
#define FIELD_IF(name, type, condition, value, ...) \
  if (condition) put(json, #name, type, value);
#define FIELD_IF_ANY(name, type, value, ...) \
  if (const auto& any = value; is_any(any)) put(json, #name, type, any);
#define FIELD_IF_KNOWN(name, type, value, ...) \
  if (const auto& some = value) put(json, #name, type, known(some));
#define END        \
  json.close('}'); \
  }
#define VALUE(...)
#define END_ENUM
#define RULE(...)
#include "stats/report/fields.def"

}  // namespace rows
}  // namespace

void render_json(const Snapshot& snapshot, Sink& sink) {
  Json json(sink);
  rows::report(json, snapshot);
  sink.write("\n");
}

}  // namespace cistern
