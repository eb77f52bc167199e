// Options from the environment: one row each in shim/options.def. Read once, in no set-user-ID program. A bad value
// keeps the default and leaves one line, said when the process first has something to say; so does an unknown CISTERN_*
// name. Where that leaves open what the gate (CISTERN_FAIL_ON) was to be, the gate is shut: a job with a misspelled
// FAIL_ON=any would otherwise always pass. A limit of device memory that cannot be read is in force all the same
// (DeviceLimit).
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "pool/base/internal_memory.hpp"
#include "shim/process/option_types.hpp"

namespace cistern {

struct Options {
#define OPTION(type, name, variable, default_text, accepts, help) option_types::type::Value name{};
#include "shim/options.def"
  bool report_requested = false;   // CISTERN_REPORT was set by the user
  bool leak_check_is_set = false;  // so was CISTERN_LEAK_CHECK
  // Why the gate that was asked for is not known; empty: it is known, or there is none. With a fault, every process
  // that the gate would judge fails.
  String gate_fault;

  // Most nanoseconds for it. A gate that needs the judgement waits for it longer than a report may.
  std::uint64_t judging_limit() const {
    constexpr std::uint64_t kForGate = 60'000'000'000;
    return fail_on.needs_judgement() && !leak_check_is_set ? kForGate : leak_check;
  }

  bool writes_asked_for_report() const { return report_requested && report != "none"; }
  bool has_gate() const { return fail_on || !gate_fault.empty(); }
  // Also for a process that used no GPU memory.
  bool gate_judges_host() const { return sites == "all" && host && (fail_on.counts_host() || !gate_fault.empty()); }
};

using Getenv = const char* (*)(const char* name);

// Defaults overridden by what `getenv` answers; complaints go to `complain`, one line each.
Options read_options(Getenv getenv, char** environment, void (*complain)(std::string_view line));

// The same with one option set otherwise; nothing, after one line to `complain`: there is no such option, or it has no
// such value.
std::optional<Options> with_option(const Options& before, std::string_view name, const char* value,
                                   void (*complain)(std::string_view line));

}  // namespace cistern
