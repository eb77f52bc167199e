// The decision behind the exported dlsym (entry_dlsym.S): answer with an export of ours, or let the real one look.
#pragma once

// Returned in two registers. `replacement` null: the real dlsym is jumped to with `handle`.
struct DlsymDecision {
  void* replacement;
  void* handle;
};

extern "C" [[gnu::visibility("hidden")]] DlsymDecision cistern_dlsym_replacement(void* handle, const char* name,
                                                                                 const void* caller);
