// `cistern diff`: what has grown, gone and come between two runs, as a table and as a page for a browser. Exit code 1:
// something grew by more than the tolerance.
#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>

#include "shim/command/commands.hpp"
#include "shim/command/input.hpp"
#include "shim/command/output.hpp"
#include "shim/command/pages.hpp"
#include "stats/formats/comparison.hpp"
#include "stats/formats/groups.hpp"
#include "stats/formats/summary.hpp"

namespace cistern::command {
namespace {

struct Asked {
  std::string before, after, by = "site", tolerance = "0", page;
  bool lost = false, json = false;
  formats::PageLimits limits;
};

// "5%" of what was there before, or a number of bytes with K, M or G.
struct Tolerance {
  long double part = 0, bytes = 0;
  bool allows(const formats::Change& change, bool lost) const {
    const auto before = static_cast<long double>(lost ? change.before.lost_bytes : change.before.bytes);
    return change.growth(lost) <= std::max(bytes, part * before);
  }
};

Tolerance tolerance_of(const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  const std::string unit(at, end);
  if (error == std::errc() && value >= 0) {
    if (unit == "%") return {.part = value / 100};
    constexpr std::pair<const char*, long double> kUnits[] = {{"", 1},          {"B", 1},        {"K", 1 << 10},
                                                              {"KiB", 1 << 10}, {"M", 1 << 20},  {"MiB", 1 << 20},
                                                              {"G", 1 << 30},   {"GiB", 1 << 30}};
    for (const auto& [name, bytes] : kUnits)
      if (unit == name) return {.bytes = value * bytes};
  }
  throw BadInput("--tolerance: '" + text + "' is neither a size such as 1MiB nor a percentage such as 5%");
}

int diff(const Asked& asked) {
  const Tolerance tolerance = tolerance_of(asked.tolerance);
  const formats::Run before = read_reports({asked.before}), after = read_reports({asked.after});
  const auto changes = formats::changes(before, after, *formats::group_named(asked.by));
  bool grew = false;
  for (const formats::Change& change : changes) grew |= !tolerance.allows(change, asked.lost);
  std::string page_line;
  if (!asked.page.empty())
    page_line = write_page(asked.page, [&] {
      return formats::page(formats::compared(before, asked.before, after, asked.after), asked.limits);
    });
  std::fputs((asked.json ? formats::change_json(changes) : formats::change_table(changes)).c_str(), stdout);
  if (asked.page.empty()) return grew;
  if (asked.json) {
    say(page_line);  // the output stays JSON
  } else {
    std::puts(page_line.c_str());
  }
  return grew;
}

}  // namespace

void add_diff(CLI::App& app, Outcome& outcome) {
  CLI::App* const command = app.add_subcommand("diff", "compare the live memory of two runs; exit code 1: it grew");
  const auto asked = std::make_shared<Asked>();
  command->add_option("OLD", asked->before, "a JSON report, a recording, or a folder of them")->required();
  command->add_option("NEW", asked->after, "the same of the later run")->required();
  command->add_option("--by", asked->by, "site, module, file, python or kind (site)")
      ->check(CLI::IsMember({"site", "module", "file", "python", "kind"}));
  command->add_option("--tolerance", asked->tolerance, "the growth of one row that is no failure: 1MiB, 5% (0)");
  command->add_flag("--lost", asked->lost, "judge by lost memory only");
  command->add_flag("--json", asked->json, "for a machine");
  auto* const page =
      command->add_option("--html", asked->page, "write a page for a browser, by call site, to this file");
  add_page_limits(*command, asked->limits)->needs(page);
  command->callback([asked, &outcome] { outcome.exit_code = diff(*asked); });
}

}  // namespace cistern::command
