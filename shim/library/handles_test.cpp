// Handles of the library: one call at a time uses a record. A call that comes back on the same thread, out of a
// driver's callback, is refused; it once waited for itself.
#include "shim/library/handles.hpp"

#include <gtest/gtest.h>

namespace cistern::library {
namespace {

struct Record {
  static constexpr char kWhat[] = "test record";
  int value = 0;
  void begin_anew() { value = 0; }
};
struct Handle;
using All = Handles<Record, Handle, 5>;

TEST(Handles, AreUsedByOneCallOfAThreadAtATime) {
  static All all;
  Handle* const handle = all.make([](Record& record) { record.value = 3; });
  ASSERT_TRUE(handle);
  {
    const All::Use first(all, "first", handle);
    ASSERT_TRUE(first);
    EXPECT_EQ(locks_held, 0) << "its driver is called";
    const All::Use second(all, "second", handle);
    EXPECT_FALSE(second);
    EXPECT_EQ(first->value, 3);
  }
  const All::Use again(all, "again", handle);
  EXPECT_TRUE(again);
}

}  // namespace
}  // namespace cistern::library
