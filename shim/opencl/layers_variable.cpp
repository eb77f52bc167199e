// See layers_variable.hpp.
#include "shim/opencl/layers_variable.hpp"

#include <elf.h>
#include <stdlib.h>
#include <unistd.h>

#include "pool/base/process_start.hpp"

namespace cistern::opencl {
namespace {

// OPENCL_LAYERS as it stands in environ: [first, last) had no terminator before the loader cut it.
constinit char* layers_first = nullptr;
constinit char* layers_last = nullptr;

}  // namespace

// How long the variable was before the loader cut it: the variables that the process was started with stand back to
// back, between the AT_RANDOM bytes and the AT_EXECFN string. One that the program set itself is left alone.
void note_layers_variable() {
  char* value = getenv("OPENCL_LAYERS");
  char* block_first = reinterpret_cast<char*>(start_value(AT_RANDOM));
  char* after = reinterpret_cast<char*>(start_value(AT_EXECFN));
  if (!value || value < block_first || value > after) return;
  for (char** variable = environ; *variable; ++variable)
    if (*variable > value && *variable < after) after = *variable;
  layers_first = value;
  layers_last = after - 1;
}

void restore_layers_variable() {
  if (!layers_first) return;
  for (char* at = layers_first; at < layers_last; ++at)
    if (*at == '\0') *at = ':';
  layers_first = nullptr;
}

}  // namespace cistern::opencl
