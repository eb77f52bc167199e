// The types of options: which texts are a value of each, and which value.
#include "shim/process/option_types.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace cistern {
namespace {

constexpr OptionRow kNone{};

std::optional<std::uint64_t> bytes(std::string_view text) { return option_types::bytes::parse(text, kNone); }
std::optional<std::uint64_t> duration(std::string_view text) { return option_types::duration::parse(text, kNone); }

TEST(OptionTypes, Sizes) {
  const std::map<std::string, std::uint64_t> right = {{"0", 0},
                                                      {"000", 0},
                                                      {"0.0GiB", 0},
                                                      {"17", 17},
                                                      {"0017", 17},
                                                      {"17B", 17},
                                                      {"17 B", 17},
                                                      {"2K", 2048},
                                                      {"2KiB", 2048},
                                                      {"2kb", 2000},
                                                      {"3mib", 3 << 20},
                                                      {"3M", 3 << 20},
                                                      {"64MB", 64'000'000},
                                                      {"64 MiB", 64 << 20},
                                                      {"5GiB", 5ull << 30},
                                                      {"5G", 5ull << 30},
                                                      {"5GB", 5'000'000'000},
                                                      {"1TiB", 1ull << 40},
                                                      {"1TB", 1'000'000'000'000},
                                                      {"2t", 2ull << 40},
                                                      {"1.5GiB", 3ull << 29},
                                                      {"1.5 GB", 1'500'000'000},
                                                      {"0.1KiB", 102},
                                                      {"0.0009765625KiB", 1},
                                                      {"1.99999999999999999999999999999999999KiB", 2047},
                                                      {"0.3333333333333333333333333333TiB", 366'503'875'925},
                                                      {"18446744073709551615", ~0ull},
                                                      {"17179869183GiB", 17179869183ull << 30},
                                                      {"17179869183.9999999999GiB", ~0ull}};
  for (const auto& [text, value] : right) EXPECT_EQ(bytes(text), value) << text;
  for (const char* wrong : {"",
                            " ",
                            "-1",
                            "+1",
                            "GiB",
                            ".5GiB",
                            "1.GiB",
                            "1,5GiB",
                            "1..5GiB",
                            "1.5",
                            "1.5B",
                            "1e9",
                            "0x10",
                            "0b1",
                            "1  GiB",
                            "1 ",
                            " 1",
                            "1\tGiB",
                            "1GiB ",
                            "1GiB\r",
                            "1Gi",
                            "1GiBs",
                            "1XB",
                            "1Mo",
                            "1PB",
                            "1GiB1",
                            "1GiB 512MiB",
                            "0.0001KiB",
                            "\xff",
                            "1\u00a0GiB",
                            "\uff11",
                            "1\u00b5",
                            "18446744073709551616",
                            "17179869184GiB",
                            "99999999999999999999999GiB"})
    EXPECT_EQ(bytes(wrong), std::nullopt) << wrong;
  EXPECT_EQ(bytes(std::string(100'000, '0') + "1"), 1u);
  EXPECT_EQ(bytes(std::string(100'000, '9')), std::nullopt);
  EXPECT_EQ(bytes("1." + std::string(100'000, '9') + "K"), 2047u);
  EXPECT_EQ(bytes(std::string_view("1\0K", 3)), std::nullopt);
}

TEST(OptionTypes, Times) {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  const std::map<std::string, std::uint64_t> right = {{"0", 0},
                                                      {"2", 2 * kSecond},
                                                      {"2s", 2 * kSecond},
                                                      {"0.5", kSecond / 2},
                                                      {"250ms", kSecond / 4},
                                                      {"250 ms", kSecond / 4},
                                                      {"10us", 10'000},
                                                      {"5min", 300 * kSecond},
                                                      {"5m", 300 * kSecond},
                                                      {"1h", 3600 * kSecond},
                                                      {"1.5H", 5400 * kSecond},
                                                      {"5124095h", 5124095 * (3600 * kSecond)}};
  for (const auto& [text, value] : right) EXPECT_EQ(duration(text), value) << text;
  for (const char* wrong : {"", "-1s", "s", "1d", "10sec", "1h30m", "1 h ", "5124096h", "0.0000000001s", "1:30", "ms"})
    EXPECT_EQ(duration(wrong), std::nullopt) << wrong;
}

TEST(OptionTypes, CountsAndPercentages) {
  constexpr OptionRow kCode{"", "", "1 to 255"};
  for (const char* text : {"1", "255", "007"}) EXPECT_TRUE(option_types::count::parse(text, kCode)) << text;
  for (const char* text : {"0", "256", "", "1B", "1.0", "-1", " 1", "0x1", "1%", "18446744073709551617"})
    EXPECT_FALSE(option_types::count::parse(text, kCode)) << text;
  constexpr OptionRow kPercent{"", "", "0 to 1000"};
  EXPECT_EQ(option_types::percent::parse("115", kPercent), 115u);
  EXPECT_EQ(option_types::percent::parse("115%", kPercent), 115u);
  for (const char* text : {"%", "1%%", "1 %", "1001", "1GiB", "1.5%", ""})
    EXPECT_FALSE(option_types::percent::parse(text, kPercent)) << text;
}

TEST(OptionTypes, Words) {
  constexpr OptionRow kRow{"", "", "local, node:N, 2m, off"};
  const auto choice = [&](std::string_view text) { return option_types::choice::parse(text, kRow).value_or("-"); };
  EXPECT_EQ(choice("LOCAL"), "local");
  EXPECT_EQ(choice("2M"), "2m");
  EXPECT_EQ(choice("off"), "off");
  EXPECT_EQ(choice("Node:17"), "node:17");
  EXPECT_EQ(choice("node:4294967295"), "node:4294967295");
  for (const char* wrong : {"", ",", "local,", "local, 2m", "loca", "locall", "node", "node:", "node:N", "node:n",
                            "node:-1", "node:1 ", "node:4294967296", "0", "on"})
    EXPECT_EQ(choice(wrong), "-") << wrong;
  EXPECT_EQ(option_types::choice::wanted(kRow), "local, node:N, 2m or off");
}

TEST(OptionTypes, AWordBetweenOnAndOff) {
  constexpr OptionRow kRow{"", "", "on, ranges, off"};
  const auto choice = [&](std::string_view text) { return option_types::choice::parse(text, kRow).value_or("-"); };
  for (const char* on : {"on", "1", "TRUE", "yes"}) EXPECT_EQ(choice(on), "on") << on;
  for (const char* off : {"off", "0", "False", "no"}) EXPECT_EQ(choice(off), "off") << off;
  EXPECT_EQ(choice("Ranges"), "ranges");
  for (const char* wrong : {"", "2", "range", "onn"}) EXPECT_EQ(choice(wrong), "-") << wrong;
}

// Else an option that is not set would have the value that its type begins with.
TEST(OptionTypes, EveryDefaultIsAValueOfItsType) {
#define OPTION(type, name, variable, default_text, accepts, help) \
  EXPECT_TRUE(option_types::type::parse(default_text, OptionRow{#variable, default_text, accepts})) << #variable;
#include "shim/options.def"
}

}  // namespace
}  // namespace cistern
