// The Python interpreters of this process, recognised when a stack shows one's module first: by the symbols that it
// exports, wherever it was loaded, by whatever name, however late.
#pragma once
#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstdint>
#include <optional>

#include "stats/python/layout.hpp"

namespace cistern::python {

struct Interpreter {
  std::uintptr_t start, end;            // its module
  std::uintptr_t eval_start, eval_end;  // the function that runs Python code
  bool is_program;                      // which stays; else:
  const void* unwind_tables;            // by these it is told from another one at its place
  const void* code_type;
  const void* integer_type;
  unsigned version;      // as Py_Version: 0x030b02f0
  const Layout* layout;  // null: its frames cannot be read
  const char* why_not;   // then

  // Functions of it that neither allocate nor lock.
  const char* (*own_state)();      // this thread's, with the GIL or without
  const char* (*current_state)();  // the state of the thread that has the GIL; null from 3.12 on, where own_state is
                                   // always right
  int (*is_finalizing)();
  const void* (*first)();                  // interpreter state
  const void* (*next)(const void* state);  // null: there is one

  bool holds(std::uintptr_t address) const { return address - start < end - start; }
  bool evaluates(std::uintptr_t address) const { return address - eval_start < eval_end - eval_start; }
};

inline constexpr unsigned kInterpretersMax = 16;
inline constinit Interpreter interpreters[kInterpretersMax] = {};
inline constinit std::atomic<unsigned> interpreter_count{0};

// Nothing: the module is no interpreter. It is asked for its version, so no lock is held.
std::optional<Interpreter> interpreter_in(const dl_find_object& module);
// One thread at a time.
void note_interpreter(const Interpreter& found);

}  // namespace cistern::python
