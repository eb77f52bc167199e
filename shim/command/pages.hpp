// Pages for a browser: how commands that make one limit its size, write it and name it.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "stats/formats/page.hpp"

namespace cistern::command {

CLI::Option* add_page_limits(CLI::App& command, formats::PageLimits& limits);

// The line that names the file and its size, without its end. Throws BadInput.
std::string write_page(const std::string& path, const std::function<std::string()>& page);

}  // namespace cistern::command
