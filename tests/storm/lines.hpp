// A file of long lines, and reading it: the stream's lock is held across the allocation of each line.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <string>

namespace storm {

// Null: there is none.
inline FILE* make_lines(int count, size_t bytes) {
  FILE* const stream = tmpfile();
  const std::string line(bytes, 'x');
  for (int i = 0; stream && i < count; ++i) fprintf(stream, "%s\n", line.c_str());
  return stream;
}

inline void read_lines(FILE* stream) {
  rewind(stream);
  char* line = nullptr;
  size_t bytes = 0;
  while (getline(&line, &bytes, stream) > 0) {
    free(line);
    line = nullptr;
    bytes = 0;
  }
  free(line);
}

}  // namespace storm
