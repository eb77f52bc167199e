// The types that an option may have (shim/options.def): the value of each inside the library, which texts are such a
// value, and how a user is told what is wanted. Upper and lower case are the same, whatever the locale.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "pool/base/internal_memory.hpp"

namespace cistern {

// The columns of a row beside its type: the words of a choice or a list ("gpu, all, off"; "node:N" takes a number), the
// range of a number ("1 to 255"). Arrays, not pointers: the loader has nothing to relocate.
struct OptionRow {
  char variable[32];
  char default_text[16];
  char accepts[32];
};

// The gate: which live memory makes a process fail, each from how many bytes on. One of them is enough.
struct FailOn {
  enum What : std::uint8_t { any, lost, possible, growing, count };  // as the row lists them
  std::array<std::optional<std::uint64_t>, count> bytes_min{};
  explicit operator bool() const {
    return std::any_of(bytes_min.begin(), bytes_min.end(), [](auto& of) { return !!of; });
  }
  // `any` counts GPU memory only; programs leave host memory to the system.
  bool needs_judgement() const { return bytes_min[lost] || bytes_min[possible]; }
  bool counts_host() const { return bytes_min[lost] || bytes_min[possible] || bytes_min[growing]; }
};

// How much of a device a program may take.
struct DeviceLimit {
  std::uint64_t bytes = 0;  // 0: no limit
  // A limit was asked for, and its value could not be read. None at all would take the memory that others were
  // promised; half of the device leaves the program and them something.
  bool is_unclear = false;
  explicit operator bool() const { return bytes || is_unclear; }
  // The limit on a device with so many bytes; 0: no limit.
  std::uint64_t of(std::uint64_t device_bytes) const {
    return is_unclear ? std::max<std::uint64_t>(device_bytes / 2, 1) : bytes;
  }
};

namespace option_types {

#define OPTION_TYPE(name, type)                                                     \
  struct name {                                                                     \
    using Value = type;                                                             \
    static std::optional<Value> parse(std::string_view text, const OptionRow& row); \
    /* Completes "'x' is not ...". */                                               \
    [[gnu::cold]] static String wanted(const OptionRow& row);                       \
  }
OPTION_TYPE(on_off, bool);             // Also 1 and 0, true and false, yes and no.
OPTION_TYPE(count, std::uint64_t);     // A whole number in the row's range.
OPTION_TYPE(percent, std::uint64_t);   // The same, with or without %.
OPTION_TYPE(bytes, std::uint64_t);     // "64MiB", "1.5 GB".
OPTION_TYPE(limit, DeviceLimit);       // Bytes; a wrong or empty value never means that there is no limit.
OPTION_TYPE(duration, std::uint64_t);  // "250ms", "1.5h"; nanoseconds inside.
OPTION_TYPE(choice, String);           // One of the row's words, as it is spelled there; on ... off also as above.
OPTION_TYPE(path, String);             // Any text: whether the file can be opened is seen when it is opened.
OPTION_TYPE(list, FailOn);             // "off", or some of the row's words, each with or without :SIZE.
#undef OPTION_TYPE

}  // namespace option_types

// "on" or "off" in any of its spellings; nothing for other words. Does not allocate.
std::optional<bool> parse_on_off(std::string_view text);

// In ASCII.
char lower(char c);
bool same_word(std::string_view a, std::string_view b);

}  // namespace cistern
