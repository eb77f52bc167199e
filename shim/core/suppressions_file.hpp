// The file that CISTERN_SUPPRESSIONS names. A process with a gate reads it at its start: at its end it may have no
// descriptor left, another root folder, or no right to read it, and would fail for that.
#pragma once
#include "pool/base/internal_memory.hpp"

namespace cistern {

struct SuppressionsFile {
  String text;
  String fault;  // why it is not what the user meant; empty: it was read
};

void note_suppressions();
// As it was noted, else as it is now.
SuppressionsFile suppressions_file();

}  // namespace cistern
