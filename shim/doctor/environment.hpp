// The environment that a program will have, as far as the doctor can follow it.
#pragma once
#include <algorithm>
#include <string_view>

#include "pool/base/internal_memory.hpp"

namespace cistern::doctor {

class Environment {
 public:
  explicit Environment(char** entries) {
    for (; entries && *entries; ++entries) entries_.emplace_back(*entries);
  }
  // Empty as well where it is not set.
  std::string_view get(std::string_view name) const {
    for (const String& entry : entries_)
      if (is(entry, name)) return std::string_view(entry).substr(name.size() + 1);
    return {};
  }
  bool has(std::string_view name) const { return !get(name).empty(); }
  bool is_set(std::string_view name) const {
    return std::any_of(entries_.begin(), entries_.end(), [name](const String& entry) { return is(entry, name); });
  }
  void unset(std::string_view name) {
    std::erase_if(entries_, [name](const String& entry) { return is(entry, name); });
  }
  // As "NAME=value".
  void set(const String& entry) {
    unset(std::string_view(entry).substr(0, entry.find('=')));
    entries_.push_back(entry);
  }
  void clear() { entries_.clear(); }
  const Vector<String>& entries() const { return entries_; }

 private:
  static bool is(std::string_view entry, std::string_view name) {
    return entry.size() > name.size() && entry[name.size()] == '=' && entry.starts_with(name);
  }
  Vector<String> entries_;
};

// Calls visit(part) for each part of `list` between any of the `separators` that is not empty.
template <class Visit>
void for_each_part(std::string_view list, std::string_view separators, Visit visit) {
  while (!list.empty()) {
    const std::size_t end = list.find_first_of(separators);
    if (end != 0) visit(list.substr(0, end));
    if (end == list.npos) return;
    list.remove_prefix(end + 1);
  }
}

}  // namespace cistern::doctor
