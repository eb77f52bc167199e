// Numbers and strings of reports: whatever the program's locale, command line or file names are.
#include "stats/format.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace cistern {
namespace {

using namespace std::string_view_literals;

TEST(Format, Decimals) {
  EXPECT_EQ(decimal(0, 2), "0.00");
  EXPECT_EQ(decimal(12.5, 2), "12.50");
  EXPECT_EQ(decimal(0.996, 2), "1.00");
  EXPECT_EQ(decimal(0.05, 2), "0.05");
  EXPECT_EQ(decimal(-1.25, 1), "-1.3");
  EXPECT_EQ(decimal(-0.001, 2), "0.00");
  EXPECT_EQ(decimal(41.6, 0), "42");
  EXPECT_EQ(decimal(std::nan(""), 1), "0.0");
}

TEST(Format, Counts) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(1234567), "1,234,567");
  EXPECT_EQ(counted(1, "block"), "1 block");
  EXPECT_EQ(counted(1000, "block"), "1,000 blocks");
}

TEST(Format, Bytes) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1024), "1.0 KiB");
  EXPECT_EQ(human_bytes((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(human_bytes(48 << 20), "48.0 MiB");
  EXPECT_EQ(human_bytes(UINT64_MAX), "16384.0 PiB");
}

TEST(Format, JsonStrings) {
  EXPECT_EQ(json_string("a\"b\\c"), R"("a\"b\\c")");
  EXPECT_EQ(json_string("\n\t\x01\x1f"), R"("\n\t\u0001\u001f")");
  EXPECT_EQ(json_string("\x7f"), R"("\u007f")");
  EXPECT_EQ(json_string("a\0b"sv), R"("a\u0000b")");
  EXPECT_EQ(json_string("größe 日本 🦊"), "\"größe 日本 🦊\"");
}

TEST(Format, BytesThatAreNotUtf8AreReplacedOneByOne) {
  EXPECT_EQ(json_string("a\xff"
                        "b"),
            R"("a\ufffdb")");
  EXPECT_EQ(json_string("\xc3"), R"("\ufffd")");                      // cut off
  EXPECT_EQ(json_string("\xc0\xaf"), R"("\ufffd\ufffd")");            // overlong
  EXPECT_EQ(json_string("\xed\xa0\x80"), R"("\ufffd\ufffd\ufffd")");  // surrogate
  EXPECT_EQ(json_string("\xf5\x80\x80\x80"), R"("\ufffd\ufffd\ufffd\ufffd")");
}

TEST(Format, TerminalsGetNoControlCharacters) {
  EXPECT_EQ(printable("a\x1b[31mb\n"), "a?[31mb?");
  EXPECT_EQ(printable("größe"), "größe");
  EXPECT_EQ(printable("\xff"), "?");
  EXPECT_EQ(printable("abcdef", 3), "abc...");
  EXPECT_EQ(printable("abc", 3), "abc");
  EXPECT_EQ(printable("aö", 2), "a...");  // never half a character
}

}  // namespace
}  // namespace cistern
