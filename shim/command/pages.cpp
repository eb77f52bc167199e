// See pages.hpp.
#include "shim/command/pages.hpp"

#include "shim/command/input.hpp"
#include "shim/command/output.hpp"

namespace cistern::command {

CLI::Option* add_page_limits(CLI::App& command, formats::PageLimits& limits) {
  return command
      .add_option("--max-size", limits.bytes_max, "leave out the smallest sites of the page until it fits (5MB)")
      ->transform(CLI::AsSizeValue(true));
}

std::string write_page(const std::string& path, const std::function<std::string()>& page) {
  std::string html;
  try {
    html = page();
  } catch (const formats::PageTooLarge& error) {
    throw BadInput(std::string(error.what()) + ": give --max-size, or fewer files");
  }
  write_file(path, html);
  return path + "  " + std::to_string((html.size() + 999) / 1000) + " KB";
}

}  // namespace cistern::command
