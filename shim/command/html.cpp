// `cistern html`: reports as one page for a browser.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>

#include "shim/command/commands.hpp"
#include "shim/command/input.hpp"
#include "shim/command/output.hpp"
#include "stats/formats/page.hpp"

namespace cistern::command {
namespace {

// "run.html" beside "run.json", and beside the folder "run/".
std::string beside(const std::string& input) {
  std::filesystem::path path(input);
  std::error_code none;
  if (std::filesystem::is_directory(path, none)) {
    path = std::filesystem::weakly_canonical(path, none);
    return path.string() + ".html";
  }
  return path.replace_extension(".html").string();
}

struct Arguments {
  std::vector<std::string> inputs;
  std::string output;
  formats::PageLimits limits;
};

void write_page(const Arguments& of) {
  const formats::Run run = read_reports(of.inputs);
  const std::string output = of.output.empty() ? beside(of.inputs.front()) : of.output;
  std::string page;
  try {
    page = formats::page(run, of.limits);
  } catch (const formats::PageTooLarge& error) {
    throw BadInput(std::string(error.what()) + ": give --max-size, or fewer files");
  }
  write_file(output, page);
  std::printf("%s  %zu KB\n", output.c_str(), (page.size() + 999) / 1000);
}

}  // namespace

void add_html(CLI::App& app, Outcome&) {
  CLI::App* const command = app.add_subcommand("html", "make a page for a browser, in one file");
  const auto of = std::make_shared<Arguments>();
  command->add_option("FILE", of->inputs, "JSON reports, or folders of them")->required();
  command->add_option("-o,--output", of->output, "the page; beside the first FILE if not given");
  command->add_option("--max-size", of->limits.bytes_max, "leave out the smallest sites until it fits (5MB)")
      ->transform(CLI::AsSizeValue(true));
  command->callback([of] { write_page(*of); });
}

}  // namespace cistern::command
