// Cistern's C interface, found as a program does that may run without: null there.
#pragma once
#include <dlfcn.h>

#include <cistern/cistern.h>

namespace storm {

struct CisternCalls {
  decltype(&cistern_get_statistics) get_statistics;
  decltype(&cistern_report) report;
  decltype(&cistern_status_text) status_text;
  decltype(&cistern_trim) trim;
};

inline const CisternCalls cistern = {
    reinterpret_cast<decltype(&cistern_get_statistics)>(dlsym(RTLD_DEFAULT, "cistern_get_statistics")),
    reinterpret_cast<decltype(&cistern_report)>(dlsym(RTLD_DEFAULT, "cistern_report")),
    reinterpret_cast<decltype(&cistern_status_text)>(dlsym(RTLD_DEFAULT, "cistern_status_text")),
    reinterpret_cast<decltype(&cistern_trim)>(dlsym(RTLD_DEFAULT, "cistern_trim")),
};

inline cistern_statistics statistics_of(cistern_kind kind) {
  cistern_statistics figures = {};
  figures.struct_bytes = sizeof figures;
  if (cistern.get_statistics) cistern.get_statistics(kind, &figures);
  return figures;
}

}  // namespace storm
