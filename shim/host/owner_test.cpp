// The library is a part of this program and interposes nothing. Under a sanitizer, or with another allocator preloaded,
// somebody else's malloc stands behind it all the same.
#include "shim/host/owner.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "shim/process/lookup.hpp"

namespace cistern::host {
namespace {

TEST(HostOwner, APartOfTheProgramOwnsItsCalls) { EXPECT_EQ(find_ownership().owner, Owner::us); }

TEST(HostOwner, WhoseMallocIsNext) {
  const Ownership ownership = find_ownership();
  EXPECT_EQ(ownership.next, module_of(dlsym(RTLD_NEXT, "malloc")));
  EXPECT_EQ(ownership.next_is_c_library, is_c_library(*ownership.next));
}

TEST(HostOwner, NothingStandsBeforeTheProgram) { EXPECT_FALSE(defined_before_us("malloc\0free\0qsort\0")); }

}  // namespace
}  // namespace cistern::host
