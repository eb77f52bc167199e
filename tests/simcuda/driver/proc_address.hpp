// The table of entry points: which exported function answers a name, a version and flags.
#pragma once

namespace simcuda {

enum class StreamVariant { any, legacy, per_thread };

struct EntryRow {
  const char* base;  // as asked of cuGetProcAddress
  int version;       // that introduced this ABI
  StreamVariant stream;
  const char* name;  // as exported
  void* address;     // what cuGetProcAddress answers
};

extern const EntryRow kEntryRows[];
extern const int kEntryRowCount;

bool is_entry_point(const char* exported_name);

}  // namespace simcuda
