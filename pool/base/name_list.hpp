// A constant list of names, as one text. A table of pointers would be relocated in every process, in pages that hold
// nothing else, although few processes ever look at it.
#pragma once
#include <cstddef>
#include <string_view>

namespace cistern {

class NameList {
 public:
  // Each name is ended by a zero byte.
  template <std::size_t size>
  consteval explicit NameList(const char (&text)[size]) : text_(text, size - 1) {
    for (const char c : text_) count_ += c == '\0';
  }

  // Calls visit(std::string_view) for each, in their order, until it returns true.
  template <class Visit>
  constexpr void visit_until(Visit visit) const {
    for (std::size_t at = 0, end; at < text_.size(); at = end + 1) {
      end = text_.find('\0', at);
      if (visit(text_.substr(at, end - at))) return;
    }
  }
  constexpr std::size_t count() const { return count_; }
  // count() where there is none of that name; else the number of the first, from 0.
  constexpr std::size_t index_of(std::string_view name) const {
    std::size_t index = 0;
    visit_until([&](std::string_view other) { return other == name || (++index, false); });
    return index;
  }
  constexpr bool has(std::string_view name) const { return index_of(name) != count(); }

 private:
  const std::string_view text_;
  std::size_t count_ = 0;
};

}  // namespace cistern
