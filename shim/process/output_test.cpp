// The path rules of CISTERN_REPORT.
#include "shim/process/output.hpp"

#include <gtest/gtest.h>

#include "shim/process/environment.hpp"

namespace cistern {
namespace {

TEST(ReportPath, PartsAreReplaced) {
  const PathValues values{1234, "node7", 3};
  EXPECT_EQ(expand_report_path("/r/%h/%r-%p.json", values), "/r/node7/3-1234.json");
  EXPECT_EQ(expand_report_path("100%%-%x-%", values), "100%-%x-%");
  EXPECT_EQ(expand_report_path("%%p", values), "%p");
  EXPECT_EQ(expand_report_path("", values), "");
  EXPECT_EQ(expand_report_path("%r", {1, "h", {}}), "0");
}

TEST(ReportPath, AbsolutePathsStay) { EXPECT_EQ(from_start_directory("/a/b"), "/a/b"); }

TEST(ReportPath, RelativePathsAreBelowTheStart) {
  note_start_directory([](const char*) -> const char* { return "/absolute"; });
  EXPECT_EQ(from_start_directory("b"), "b") << "not noted when it is not needed";
  note_start_directory([](const char*) -> const char* { return "relative"; });
  const String path = from_start_directory("b");
  EXPECT_TRUE(path.starts_with("/"));
  EXPECT_TRUE(path.ends_with("/b"));
}

}  // namespace
}  // namespace cistern
