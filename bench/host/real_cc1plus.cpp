// A real program for bench/host.py: preprocessed once, then compiled by cc1plus under each allocator.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <regex>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

using Value = std::variant<int, double, std::string, std::vector<int>>;

template <int kNumber>
struct Stage {
  std::map<std::string, Value> values;
  std::unordered_map<int, std::function<std::optional<Value>(const std::string&)>> readers;
  std::optional<Value> read(const std::string& text) {
    readers[kNumber] = [this](const std::string& name) -> std::optional<Value> {
      auto found = values.find(name);
      return found == values.end() ? std::nullopt : std::optional<Value>(found->second);
    };
    values.emplace(text + std::to_string(kNumber), kNumber);
    return readers[kNumber](text);
  }
};

template <int... kNumbers>
int stages(const std::string& text, std::integer_sequence<int, kNumbers...>) {
  return (0 + ... + (Stage<kNumbers>{}.read(text) ? 1 : 0));
}

int run(const std::string& text) {
  std::vector<std::string> found;
  for (std::size_t at = 0, end; (end = text.find('=', at)) != std::string::npos; at = end + 1)
    found.push_back(text.substr(at, end - at));
  std::sort(found.begin(), found.end());
  return stages(text, std::make_integer_sequence<int, 6>()) + static_cast<int>(found.size());
}
