// Thrift's compact protocol as bytes (thrift.apache.org, "Thrift compact protocol encoding"), as far as Parquet's
// metadata needs it: a struct is written field by field, in the order of their numbers. Numbers have no sign here.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "stats/formats/model.hpp"

namespace cistern::formats {

class ThriftStruct {
 public:
  // Both are written alike; readers expect one type of a field.
  void number32(int field, Count value) { number(field, kNumber32, value); }
  void number64(int field, Count value) { number(field, kNumber64, value); }
  void text(int field, std::string_view value) {
    begin(field, kText);
    bytes_ += text_bytes(value);
  }
  void structure(int field, const ThriftStruct& value) {
    begin(field, kStruct);
    bytes_ += value.bytes();
  }

  void numbers32(int field, const std::vector<Count>& values) {
    list(field, kNumber32, values, [](Count value) { return varint(zigzag(value)); });
  }
  void texts(int field, const std::vector<std::string>& values) { list(field, kText, values, text_bytes); }
  // Each as its `bytes`.
  void structures(int field, const std::vector<std::string>& values) {
    list(field, kStruct, values, [](const std::string& bytes) { return bytes; });
  }

  std::string bytes() const { return bytes_ + '\0'; }

 private:
  enum Type { kNumber32 = 5, kNumber64 = 6, kText = 8, kList = 9, kStruct = 12 };

  static std::string varint(Count value) {
    std::string bytes;
    for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
    return bytes += static_cast<char>(value);
  }
  static Count zigzag(Count value) { return value << 1; }
  static std::string text_bytes(std::string_view value) { return varint(value.size()).append(value); }

  void begin(int field, Type type) {
    bytes_ += static_cast<char>((field - last_field_) << 4 | type);
    last_field_ = field;
  }
  void number(int field, Type type, Count value) {
    begin(field, type);
    bytes_ += varint(zigzag(value));
  }
  template <class Value, class Encode>
  void list(int field, Type type, const std::vector<Value>& values, Encode encode) {
    constexpr std::size_t kShort = 15;
    begin(field, kList);
    bytes_ += static_cast<char>(std::min(values.size(), kShort) << 4 | type);
    if (values.size() >= kShort) bytes_ += varint(values.size());
    for (const Value& value : values) bytes_ += encode(value);
  }

  std::string bytes_;
  int last_field_ = 0;
};

}  // namespace cistern::formats
