// For tests: a message of Protocol Buffers, taken apart.
#pragma once
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "stats/formats/model.hpp"

namespace cistern::formats {

struct Fields {
  std::map<int, std::vector<Count>> numbers;
  std::map<int, std::vector<std::string>> texts;

  explicit Fields(const std::string& bytes) : bytes_(bytes) {
    while (at_ < bytes_.size()) {
      const Count tag = varint();
      const int field = static_cast<int>(tag >> 3);
      if ((tag & 7) == 0) {
        numbers[field].push_back(varint());
      } else if ((tag & 7) == 2) {
        const Count size = varint();
        texts[field].push_back(bytes_.substr(at_, size));
        if (texts[field].back().size() != size) throw std::runtime_error("a field that is cut off");
        at_ += size;
      } else {
        throw std::runtime_error("a wire type that nobody writes here");
      }
    }
  }

  Count number(int field) const { return numbers.at(field).at(0); }
  const std::string& text(int field) const { return texts.at(field).at(0); }
  Fields message(int field, std::size_t i = 0) const { return Fields(texts.at(field).at(i)); }
  std::vector<Count> packed(int field) const {
    std::vector<Count> values;
    for (Fields all(""); const std::string& part : texts.at(field)) {
      all.bytes_ = part, all.at_ = 0;
      while (all.at_ < part.size()) values.push_back(all.varint());
    }
    return values;
  }

 private:
  Count varint() {
    Count value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes_.at(at_++));
      value |= static_cast<Count>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  }

  std::string bytes_;
  std::size_t at_ = 0;
};

}  // namespace cistern::formats
