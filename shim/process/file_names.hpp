// Names of a process's files that lie beside others.
#pragma once
#include <string_view>

#include "pool/base/internal_memory.hpp"

namespace cistern {

// "run.json" -> "run.1234.json", "run" -> "run.1234"; the n-th try for n > 1: "run.1234-2.json".
String path_with_pid(std::string_view path, int pid, int attempt);
// The path of an earlier run's report: "run.1234.old.json"
String path_of_earlier(std::string_view path, int pid, int attempt);

// A program that executes another keeps its number, and so the name of its recording: the other one's has the number
// once more, and there are so many names at most.
constexpr int kNamesOfRecording = 16;
String name_of_recording(std::string_view path, int pid, int nth);

}  // namespace cistern
