// The libraries that the program's own loader would load, and whether the object to preload is one of them.
#pragma once
#include "shim/doctor/environment.hpp"
#include "shim/doctor/findings.hpp"

namespace cistern::doctor {

enum class Cistern : std::uint8_t { no, to_preload, to_link };
Cistern what_is(const String& file);

// The loader's list, made without running the program. Its order is the order of look-ups.
struct Loaded {
  struct Library {
    String name, path;  // as it was asked for; path is empty where there is none
  };
  Vector<Library> libraries;
  Vector<String> complaints;
  int status = 0;                               // how the loader ended, as of wait; -1: it could not be started
  String path_of(std::string_view name) const;  // empty: not found
};
// `preloads`: in place of LD_PRELOAD; empty: as it is.
Loaded ask_loader(const String& file, const Environment& environment, const String& preloads = {});

// The files that LD_PRELOAD names: the path of the object to preload, or nothing and why.
String examine_preload_list(const Environment& environment, Findings& findings);
// Whether the loader takes it, and who else brings a malloc.
void examine_loading(const String& file, const String& cistern, const Environment& environment, Findings& findings);

}  // namespace cistern::doctor
