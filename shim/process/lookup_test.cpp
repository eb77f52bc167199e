// Finding real functions, and leaving no trace in dlerror.
#include "shim/process/lookup.hpp"

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <gtest/gtest.h>
#include <link.h>

namespace cistern {
namespace {

TEST(Lookup, TheRealDlsymFindsWhatTheOrdinaryDoes) {
  EXPECT_EQ(real_dlsym()(RTLD_DEFAULT, "puts"), dlsym(RTLD_DEFAULT, "puts"));
  EXPECT_EQ(real_dlsym(), real_dlsym());
}

TEST(Lookup, AFailureLeavesNoReasonBehind) {
  dlerror();
  EXPECT_EQ(next_symbol("no_such_function"), nullptr);
  EXPECT_EQ(dlerror(), nullptr);
  EXPECT_EQ(real_symbol("no_such_function", "libm.so.6"), nullptr);
  EXPECT_EQ(real_symbol("no_such_function", "libnosuchlibrary.so.1", Loading::allowed), nullptr);
  EXPECT_EQ(dlerror(), nullptr);
}

TEST(Lookup, TheFirstDefinitionIsWhatACallReaches) {
  EXPECT_EQ(first_definition("pthread_create"), dlsym(RTLD_DEFAULT, "pthread_create"));
  EXPECT_EQ(first_definition("no_such_function"), nullptr);
}

TEST(Lookup, OnlyLoadedLibrariesUnlessAllowed) {
  constexpr char kLibrary[] = "libanl.so.1";  // no other library needs it
  if (library_is_loaded("libanl")) GTEST_SKIP() << "already loaded here";
  EXPECT_EQ(real_symbol("no_such_function", kLibrary), nullptr);
  EXPECT_FALSE(library_is_loaded("libanl"));
  void* library = dlopen(kLibrary, RTLD_LAZY | RTLD_NOLOAD);
  EXPECT_EQ(library, nullptr);
  real_symbol("no_such_function", kLibrary, Loading::allowed);
  EXPECT_TRUE(library_is_loaded("libanl"));
}

TEST(Lookup, ModulesOfAddresses) {
  EXPECT_EQ(own_module(), main_module());
  EXPECT_EQ(module_of(reinterpret_cast<const void*>(&real_symbol)), own_module());
  const void* in_c_library = reinterpret_cast<const void*>(&gnu_get_libc_version);
  EXPECT_TRUE(lies_in_library(in_c_library, "libc.so"));
  EXPECT_FALSE(lies_in_library(in_c_library, "libOpenCL.so"));
  EXPECT_FALSE(lies_in_library(nullptr, ""));
  EXPECT_TRUE(library_is_loaded("libc.so"));
  EXPECT_FALSE(library_is_loaded("libnosuchlibrary"));
}

}  // namespace
}  // namespace cistern
