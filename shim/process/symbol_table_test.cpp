// Names looked up in loaded objects' own tables, compared with what dlsym finds there.
#include "pool/base/symbol_table.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <set>

#include "shim/process/lookup.hpp"

namespace cistern {
namespace {

const link_map* loaded(const char* file) {
  void* const library = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
  return static_cast<const link_map*>(library);
}

TEST(SymbolTable, FindsWhatDlsymFinds) {
  for (const char* file : {"libc.so.6", "libm.so.6", "libstdc++.so.6"}) {
    const link_map* const module = loaded(file);
    ASSERT_TRUE(module) << file;
    const SymbolTable table(*module);
    for (const char* name : {"puts", "qsort", "calloc", "cos", "lgamma", "_ZNSt9exceptionD1Ev", "__cxa_throw"}) {
      void* found = dlsym(const_cast<link_map*>(module), name);
      if (module_of(found) != module) found = nullptr;  // of its dependencies
      EXPECT_EQ(table.defines(name), found != nullptr) << file << " " << name;
    }
    dlerror();
    EXPECT_EQ(table.address_of("no_such_function"), nullptr);
    EXPECT_FALSE(table.defines(""));
    EXPECT_EQ(dlerror(), nullptr) << "a message was left";
  }
  const link_map* const c_library = loaded("libc.so.6");
  EXPECT_EQ(SymbolTable(*c_library).address_of("qsort"), dlsym(const_cast<link_map*>(c_library), "qsort"));
}

TEST(SymbolTable, AnImportIsNoDefinition) { EXPECT_FALSE(SymbolTable(*loaded("libstdc++.so.6")).defines("fputc")); }

// The C library has some functions twice, for old programs and for new ones.
TEST(SymbolTable, EveryVersionIsADefinition) {
  const SymbolTable table(*loaded("libc.so.6"));
  std::set<const void*> found;
  table.for_each_definition("pthread_cond_wait", [&](const ElfW(Sym) & symbol) { found.insert(&symbol); });
  int once = 0;
  table.for_each_definition("qsort", [&](const ElfW(Sym)&) { ++once; });
  EXPECT_EQ(once, 1);
#if defined(__x86_64__)
  EXPECT_GE(found.size(), 2u);
#endif
}

TEST(SymbolTable, AllOfThemLieBelowTheCount) {
  const SymbolTable table(*loaded("libc.so.6"));
  ASSERT_GT(table.count(), 1000u);
  for (const char* name : {"qsort", "malloc", "strtol", "write"}) {
    table.for_each_definition(name, [&](const ElfW(Sym) & symbol) {
      EXPECT_GE(&symbol, table.symbols());
      EXPECT_LT(&symbol, table.symbols() + table.count()) << name;
    });
  }
}

TEST(NextDefinition, IsTheCLibrarysForThisProgram) {
  EXPECT_EQ(next_definition("qsort"), dlsym(RTLD_DEFAULT, "qsort"));
  EXPECT_EQ(next_definition("no_such_function"), nullptr);
  EXPECT_TRUE(is_c_library(*c_library()));
}

}  // namespace
}  // namespace cistern
