// Options by call: a process each, as they are read once.
#include <cistern/cistern.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/library/captured.hpp"
#include "tests/library/kinds.hpp"

namespace {

std::string said_of(const char* name, const char* value, cistern_status expected) {
  Captured said;
  EXPECT_EQ(cistern_set_option(name, value), expected) << name;
  return said.text();
}

TEST(Options, AreSetUntilTheyAreInUse) {
  EXPECT_STREQ(cistern_status_text(CISTERN_TOO_LATE), "the option is in use already") << "it puts none in use";
  EXPECT_EQ(said_of("CISTERN_SITES", "all", CISTERN_OK), "");
  EXPECT_EQ(said_of("CISTERN_SITES", "al", CISTERN_INVALID),
            "cistern: CISTERN_SITES: 'al' is not gpu, all or off; the option is unchanged\n");
  EXPECT_EQ(said_of("CISTERN_SITE", "all", CISTERN_INVALID),
            "cistern: CISTERN_SITE: no such option (did you mean CISTERN_SITES?)\n");
  EXPECT_EQ(said_of("CISTERN_FAIL_CODE", "256", CISTERN_INVALID),
            "cistern: CISTERN_FAIL_CODE: '256' is not a whole number from 1 to 255; the option is unchanged\n");
  EXPECT_EQ(said_of("CISTERN_FAIL_CODE", "9", CISTERN_OK), "");
  EXPECT_EQ(said_of("X", "all", CISTERN_INVALID), "cistern: X: no such option\n");
  EXPECT_EQ(said_of("", "", CISTERN_INVALID), "cistern: : no such option\n");
  EXPECT_EQ(said_of(nullptr, "all", CISTERN_INVALID), "");
  EXPECT_EQ(said_of("CISTERN_SITES", nullptr, CISTERN_INVALID), "");
  EXPECT_EQ(said_of("CISTERN", "off", CISTERN_TOO_LATE), "");
  void* const block = cistern_allocate(100, 0);
  ASSERT_NE(block, nullptr);
  // It was followed: each block has its site.
  struct Seen {
    const void* block;
    std::size_t frames;
  } seen{block, 0};
  EXPECT_EQ(cistern_visit(
                CISTERN_HOST,
                [](const cistern_block* of, void* user) {
                  Seen& seen = *static_cast<Seen*>(user);
                  if (of->address == seen.block) seen.frames = of->frame_count;
                  return 0;
                },
                &seen),
            CISTERN_OK);
  if (kHostPoolServes) EXPECT_GT(seen.frames, 1u);
  EXPECT_EQ(said_of("CISTERN_SITES", "off", CISTERN_TOO_LATE), "");
  EXPECT_EQ(said_of("CISTERN_REPORT_FORMAT", "json", CISTERN_OK), "");
  EXPECT_EQ(cistern_deallocate(block), CISTERN_OK);
}

}  // namespace
