// The list of names in one text.
#include "pool/base/name_list.hpp"

#include <gtest/gtest.h>

#include <string>

namespace cistern {
namespace {

constexpr char kText[] =
    "cuInit\0"
    "cu\0"
    "cuMemAlloc_v2\0";
constexpr NameList kNames(kText);

TEST(NameList, NamesAreWholeAndInTheirOrder) {
  std::string all;
  kNames.visit_until([&](std::string_view name) { return all += name, all += '|', false; });
  EXPECT_EQ(all, "cuInit|cu|cuMemAlloc_v2|");
  EXPECT_EQ(kNames.count(), 3u);
  EXPECT_EQ(kNames.index_of("cuInit"), 0u);
  EXPECT_EQ(kNames.index_of("cuMemAlloc_v2"), 2u);
  EXPECT_TRUE(kNames.has("cu"));
  for (const char* other : {"", "cuMemAlloc", "cuI", "Init", "cuMemAlloc_v2x"})
    EXPECT_FALSE(kNames.has(other)) << other;
}

TEST(NameList, AVisitEndsWhenItIsToldTo) {
  int visits = 0;
  kNames.visit_until([&](std::string_view name) { return ++visits, name == "cu"; });
  EXPECT_EQ(visits, 2);
}

}  // namespace
}  // namespace cistern
