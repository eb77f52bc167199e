// `cistern html`: reports as one page for a browser.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>

#include "shim/command/commands.hpp"
#include "shim/command/input.hpp"
#include "shim/command/pages.hpp"

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

void html(const Arguments& of) {
  const formats::Run run = read_reports(of.inputs);
  const std::string output = of.output.empty() ? beside(of.inputs.front()) : of.output;
  std::puts(write_page(output, [&] { return formats::page(run, of.limits); }).c_str());
}

}  // namespace

void add_html(CLI::App& app, Outcome&) {
  CLI::App* const command = app.add_subcommand("html", "make a page for a browser, in one file");
  const auto of = std::make_shared<Arguments>();
  command->add_option("FILE", of->inputs, "JSON reports, recordings, or folders of them")->required();
  command->add_option("-o,--output", of->output, "the page; beside the first FILE if not given");
  add_page_limits(*command, of->limits);
  command->callback([of] { html(*of); });
}

}  // namespace cistern::command
