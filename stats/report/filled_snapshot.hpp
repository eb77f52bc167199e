// An example of every field, made from fields.def: each member of the snapshot that a row names has a value. A new
// field is in it without a line of its own; only what a row works out, and what cannot stand beside another field, is
// added.
#pragma once
#include <algorithm>
#include <optional>
#include <regex>
#include <string_view>
#include <type_traits>

#include "stats/report/field_values.hpp"
#include "stats/report/report_examples.hpp"
#include "stats/stacks.hpp"

namespace cistern::examples {

// The language of the rows: a type says which values its fields may have.
namespace filled {

struct Text {
  const char* const* values = nullptr;  // one of these
  const char* pattern = nullptr;
};
struct Scalar {
  double least = 0, most = 1e9;
};
template <class Of>
using Fields = void (*)(Of&);
template <class Of>
struct Object {
  Fields<Of> fields;
};
template <class Of>
struct ListOf {
  Of of;
};
template <class Of>
struct MapOf {
  Of of;
};

constexpr Text text;
constexpr Scalar flag, count, positive, bytes, version;
constexpr Scalar seconds(int) { return {}; }
constexpr Scalar nanoseconds(int) { return {}; }
constexpr Scalar bytes_per_s(int) { return {}; }
constexpr Scalar ratio(int) { return {0, 0.5}; }
constexpr Scalar factor(int) { return {}; }
constexpr Text one_of(const char* const* values) { return {values}; }
constexpr Text like(const char* pattern, Text) { return {nullptr, pattern}; }
constexpr Scalar between(int least, int most, Scalar) { return {double(least), double(most)}; }
template <class Of>
constexpr Object<Of> object(Fields<Of> fields) {
  return {fields};
}
template <class Of>
constexpr ListOf<Fields<Of>> list(Fields<Of> fields) {
  return {fields};
}
template <class Of>
constexpr ListOf<Of> list(Of of) {
  return {of};
}
template <class Of, class Key>
constexpr MapOf<Fields<Of>> map(Fields<Of> fields, Key, const char* const* = nullptr) {
  return {fields};
}
template <class Key>
constexpr MapOf<Scalar> map(Scalar, Key) {
  return {{}};
}

// The number of the field that is filled. It is made from the field's name, so that a new field leaves the others as
// they are.
inline double number = 0;

inline double number_of(std::string_view object, std::string_view field) {
  std::uint32_t hash = 2166136261;
  for (const std::string_view name : {object, field})
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619;
  return 1000 + hash % 9000;
}

inline const char* sample(Text type) {
  if (type.values) return type.values[0];
  for (const char* const text : {"text", "ab12", "leak:text", "kinds.text"})
    if (!type.pattern || std::regex_search(text, std::regex(type.pattern))) return text;
  return "no text is like the pattern";
}

template <class Number>
requires std::is_arithmetic_v<Number>
void set(Scalar type, Number& value) {
  value =
      static_cast<Number>(std::clamp(std::is_floating_point_v<Number> ? number + 0.5 : number, type.least, type.most));
}
inline void set(Text type, String& value) { value = sample(type); }
inline void set(Text type, const char*& value) { value = sample(type); }
template <class Of>
void set(Object<Of> type, Of& value) {
  type.fields(value);
}
template <class Item>
void set(ListOf<Fields<Item>> type, Vector<Item>& items) {
  type.of(items.emplace_back());
}
template <class Type, class Item>
void set(ListOf<Type> type, Vector<Item>& items) {
  set(type.of, items.emplace_back());
}
// Their keys stay empty: what they are is not in the row's type.
template <class Item>
void set(MapOf<Fields<Item>> type, Vector<Item>& items) {
  type.of(items.emplace_back());
}
inline void set(MapOf<Scalar> type, Vector<UnpooledFigure>& items) {
  items.push_back({"reason", 0});
  set(type.of, items.back().count);
}
template <class Type, class Value>
void set(Type type, std::optional<Value>& value) {
  set(type, value ? *value : value.emplace());
}

// A value that a row computes is not a member.
template <class Type, class Value>
void fill(std::string_view object, std::string_view field, Type type, Value&& value) {
  number = number_of(object, field);
  if constexpr (std::is_lvalue_reference_v<Value> && !std::is_const_v<std::remove_reference_t<Value>>) set(type, value);
}

// For FIELD_IF.
template <class Value>
void hold(std::optional<Value>& value) {
  if (!value) value.emplace();
}
inline void hold(bool) {}

// clang-format off
#define SCHEMA(number) constexpr unsigned kSchema = number;
#define ENUM(name) constexpr const char* name[] = {
#define VALUE(text, ...) text,
#define END_ENUM };
#define OBJECT(name, type, ...) inline void name(type& of);
#define RULE(...)
#define FIELD(...)
#define FIELD_IF(...)
#define FIELD_IF_ANY(...)
#define FIELD_IF_KNOWN(...)
#define END
#include "stats/report/fields.def"

#define SCHEMA(number)
#define ENUM(name)
#define VALUE(...)
#define END_ENUM
#define OBJECT(name, type, ...) inline void name(type& of) {
#define FIELD(name, type, value, ...) fill(__func__, #name, type, value);
#define FIELD_IF(name, type, condition, value, ...) hold(condition), fill(__func__, #name, type, value);
#define FIELD_IF_ANY FIELD
#define FIELD_IF_KNOWN FIELD
#define END }
#define RULE(...)
#include "stats/report/fields.def"
// clang-format on

}  // namespace filled

inline Snapshot filled_snapshot() {
  Snapshot snapshot{};
  filled::report(snapshot);
  snapshot.family.counts = {1, 2, 3, 4};
  snapshot.kinds[0].name = snapshot.fragmentation[0].kind = "host";
  snapshot.fragmentation[0].splits = true;
  snapshot.fragmentation[0].live_peak_bytes = 1000;
  snapshot.fragmentation[0].requested_bytes = snapshot.fragmentation[0].largest_free_bytes = 1;  // parts of others
  snapshot.objects[0].type = "contexts";
  filled::leak(snapshot.leaks.emplace_back());
  LeakFigures& leak = snapshot.leaks[0];
  leak.kind = "opencl";  // others have no references
  leak.trend = {TrendKind::growing, 10, 20, 30};
  // Frames of a module; those of Python and of code in no file other examples have.
  for_each_stack(snapshot, [](auto, Vector<FrameFigures>& frames, auto) { frames[0].python = false; });
  snapshot.host_standings[static_cast<std::size_t>(Standing::lost)] = {1, 2};
  snapshot.judging->why_not = nullptr;
  snapshot.transfers[0].asynchronous = false;  // those of CUDA have no time
  snapshot.frameworks.push_back(framework_named("PyTorch"));
  snapshot.text = "cistern 0.1.0\n";
  return snapshot;
}

}  // namespace cistern::examples
