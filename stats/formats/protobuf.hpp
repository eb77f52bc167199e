// Protocol Buffers as bytes (protobuf.dev/programming-guides/encoding): a message is written field by field. The
// writer of a format names its field numbers.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "stats/formats/model.hpp"

namespace cistern::formats {

class Message {
 public:
  void number(int field, Count value) {
    tag(field, kVarint);
    varint(value);
  }
  void text(int field, std::string_view value) {
    tag(field, kBytes);
    varint(value.size());
    bytes_ += value;
  }
  void message(int field, const Message& value) { text(field, value.bytes_); }
  void packed(int field, std::span<const Count> values) {
    Message all;
    for (const Count value : values) all.varint(value);
    message(field, all);
  }

  const std::string& bytes() const { return bytes_; }

 private:
  static constexpr Count kVarint = 0, kBytes = 2;  // wire types

  void tag(int field, Count wire_type) { varint(static_cast<Count>(field) << 3 | wire_type); }
  void varint(Count value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

}  // namespace cistern::formats
