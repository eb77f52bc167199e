// See findings.hpp.
#include "shim/doctor/findings.hpp"

#include "shim/doctor/system.hpp"

namespace cistern::doctor {

// In one piece, and one line: names of files may have anything in them.
void Findings::line(std::string_view severity, const String& text) {
  String whole(severity);
  for (const char c : text) whole += static_cast<unsigned char>(c) < ' ' || c == '\x7f' ? '?' : c;
  say(whole + "\n");
}

}  // namespace cistern::doctor
