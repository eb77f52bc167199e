// See interpreter.hpp.
#include "stats/python/interpreter.hpp"

#include <elf.h>

#include "pool/base/process_start.hpp"
#include "pool/base/symbol_table.hpp"

namespace cistern::python {
namespace {

template <class Function>
bool find(const SymbolTable& symbols, Function& function, const char* name) {
  function = reinterpret_cast<Function>(symbols.address_of(name));
  return function != nullptr;
}

// "3.9.18 (default, ...": 0x030912f0.
unsigned version_of(const char* text) {
  unsigned parts[3] = {};
  for (unsigned& part : parts) {
    for (; *text >= '0' && *text <= '9'; ++text) part = part * 10 + static_cast<unsigned>(*text - '0');
    if (*text == '.') ++text;
  }
  return parts[0] << 24 | parts[1] << 16 | parts[2] << 8 | 0xf0;
}

unsigned version_of(const SymbolTable& symbols) {
  if (const void* const number = symbols.address_of("Py_Version")) return *static_cast<const unsigned*>(number);
  const char* (*text)();
  return find(symbols, text, "Py_GetVersion") ? version_of(text()) : 0;
}

// 3.13 and later begin with a table of their own offsets, for debuggers: a cookie, the version, whether threads run
// without the GIL.
bool is_free_threaded(const SymbolTable& symbols, unsigned minor) {
  struct Head {
    char cookie[8];
    std::uint64_t version, free_threaded;
  };
  const auto* const head = static_cast<const Head*>(symbols.address_of("_PyRuntime"));
  return minor >= 13 && head && head->free_threaded;
}

bool find_functions(const SymbolTable& symbols, Interpreter& found) {
  if (!find(symbols, found.own_state, "PyGILState_GetThisThreadState")) return false;
  if (!find(symbols, found.is_finalizing, "_Py_IsFinalizing") && !find(symbols, found.is_finalizing, "Py_IsFinalizing"))
    return false;
  if (found.layout->minor >= 12) return true;
  return find(symbols, found.current_state, "_PyThreadState_UncheckedGet") &&
         find(symbols, found.first, "PyInterpreterState_Head") && find(symbols, found.next, "PyInterpreterState_Next");
}

const char* why_not(const SymbolTable& symbols, Interpreter& found) {
  const unsigned major = found.version >> 24, minor = found.version >> 16 & 255;
  found.layout = layout_of(major, minor);
  if (!found.layout) return "its version is not supported";
  if (is_free_threaded(symbols, minor)) return "it is built without the GIL";
  if (symbols.defines("_Py_AddToAllObjects")) return "it is built to trace references";
  if (!found.code_type || !find_functions(symbols, found)) return "it does not export what is needed";
  return nullptr;
}

}  // namespace

std::optional<Interpreter> interpreter_in(const dl_find_object& module) {
  const link_map& map = *module.dlfo_link_map;
  const SymbolTable symbols(map);
  if (!symbols.defines("_PyRuntime")) return std::nullopt;
  Interpreter found{};
  found.start = reinterpret_cast<std::uintptr_t>(module.dlfo_map_start);
  found.end = reinterpret_cast<std::uintptr_t>(module.dlfo_map_end);
  found.is_program = found.holds(start_value(AT_PHDR));
  found.unwind_tables = module.dlfo_eh_frame;
  found.code_type = symbols.address_of("PyCode_Type");
  found.integer_type = symbols.address_of("PyLong_Type");
  found.version = version_of(symbols);
  symbols.for_each_definition("_PyEval_EvalFrameDefault", [&](const ElfW(Sym) & symbol) {
    found.eval_start = map.l_addr + symbol.st_value;
    found.eval_end = found.eval_start + symbol.st_size;
  });
  found.why_not = why_not(symbols, found);
  if (found.why_not) found.layout = nullptr;
  return found;
}

void note_interpreter(const Interpreter& found) {
  const unsigned count = interpreter_count.load(std::memory_order_relaxed);
  if (count == kInterpretersMax) return;
  interpreters[count] = found;
  interpreter_count.store(count + 1, std::memory_order_release);
}

}  // namespace cistern::python
