// Options from the environment: one row each in shim/options.def. Read once, in no set-user-ID program. A bad value
// keeps the default and leaves one line, said when the process first has something to say; so does an unknown CISTERN_*
// name.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "pool/base/internal_memory.hpp"

namespace cistern {

// Which live memory makes a process fail, from how many bytes on.
struct FailOn {
  enum What : std::uint8_t { nothing, any, lost, possible, growing } what = nothing;
  std::uint64_t bytes_min = 0;
  explicit operator bool() const { return what != nothing; }
};

struct Options {
  using on_off = bool;
  using bytes = std::uint64_t;
  using seconds = std::uint64_t;  // nanoseconds inside
  using text = String;
  using choice = String;
  using failing = FailOn;
#define OPTION(type, name, variable, default_text, help) type name{};
#include "shim/options.def"
  bool report_requested = false;  // CISTERN_REPORT was set by the user
};

using Getenv = const char* (*)(const char* name);

// "on" or "off" in any of its spellings; nothing for other words. Does not allocate.
std::optional<bool> parse_on_off(std::string_view text);

// Defaults overridden by what `getenv` answers; complaints go to `complain`, one line each.
Options read_options(Getenv getenv, char** environment, void (*complain)(std::string_view line));

// The same with one option set otherwise; nothing, after one line to `complain`: there is no such option, or it has no
// such value.
std::optional<Options> with_option(const Options& before, std::string_view name, const char* value,
                                   void (*complain)(std::string_view line));

}  // namespace cistern
