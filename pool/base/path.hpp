// The last part of a path.
#pragma once
#include <string_view>

namespace cistern {

constexpr std::string_view basename_of(std::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace cistern
