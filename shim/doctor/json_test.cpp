// The doctor's reader of JSON: what it takes, what it refuses, and that nothing makes it read beyond the text.
#include "shim/doctor/json.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cistern::doctor {
namespace {

String string_of(std::string_view text) {
  const std::optional<Json> json = Json::parse(text);
  return json && json->string() ? *json->string() : "-";
}

TEST(Json, TakesWhatTheStandardAllows) {
  for (const char* text : {"null", " true ", "false", "0", "-0", "12.50", "1e9", "-1.5E-3", "\"\"", "[]", "{}", "[ ]",
                           "{ }", "[1,[2,{\"a\":[]}],\"b\"]", "\r\n\t{ \"a\" : 1 , \"a\" : null }\n"})
    EXPECT_TRUE(Json::parse(text)) << text;
}

TEST(Json, RefusesEverythingElse) {
  for (const char* text :
       {"",          " ",           "nul",       "True",    "01",       "+1",         ".5",    "1.",    "1e",
        "1e+",       "-",           "--1",       "0x1",     "NaN",      "'a'",        "\"",    "\"a",   "\"\n\"",
        "\"\\x\"",   "\"\\u12g4\"", "\"\\u12\"", "\"\\\"",  "[",        "]",          "[1",    "[1,",   "[1,]",
        "[,1]",      "[1 2]",       "{",         "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{a:1}", "{1:1}", "{\"a\" 1}",
        "{\"a\":1]", "[1}",         "{} {}",     "1 2",     "[]]",      "// a\n1"})
    EXPECT_FALSE(Json::parse(text)) << text;
  EXPECT_FALSE(Json::parse(std::string_view("1\0", 2)));
}

TEST(Json, NoPartOfAReportIsTakenForTheWhole) {
  const std::string text =
      R"({"cistern": {"command": "a \"b\" \u00e4", "n": -1.5e3}, "kinds": {"host": {"allocations": 7}}})";
  EXPECT_TRUE(Json::parse(text));
  for (std::size_t bytes = 0; bytes < text.size(); ++bytes) {
    const std::vector<char> cut(text.begin(), text.begin() + static_cast<long>(bytes));  // its end is seen by ASan
    EXPECT_FALSE(Json::parse({cut.data(), cut.size()})) << bytes;
  }
}

TEST(Json, DepthIsBounded) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(Json::parse(nested(Json::kDepthMax)));
  EXPECT_FALSE(Json::parse(nested(Json::kDepthMax + 1)));
  EXPECT_FALSE(Json::parse(std::string(5'000'000, '[')));
}

TEST(Json, Strings) {
  EXPECT_EQ(string_of(R"("a\"\\\/\b\f\n\r\tz")"), "a\"\\/\b\f\n\r\tz");
  EXPECT_EQ(string_of(R"("\u0041\u00e4\u20AC\ud83d\ude00")"), "A\u00e4\u20ac\U0001f600");
  EXPECT_EQ(string_of(R"("\ud83d")"), "\ufffd");
  EXPECT_EQ(string_of(R"("\ud83dx")"), "\ufffdx");
  EXPECT_EQ(string_of(R"("\ud83d\n")"), "\ufffd\n");
  EXPECT_EQ(string_of(R"("\ud83d\u0041")"), "\ufffdA");
  EXPECT_EQ(string_of(R"("\ude00")"), "\ufffd");
  EXPECT_EQ(string_of("\"\u00e4\xff\""), "\u00e4\xff");
  EXPECT_EQ(string_of("1"), "-");
}

TEST(Json, Members) {
  const Json json = *Json::parse(R"({"kinds": {"a": {"n": 1}, "b\n": {"n": 2}}, "other": "\"kinds\": {", "kinds": 3})");
  String seen;
  json["kinds"].for_each_member([&](const String& name, Json value) {
    seen += name;
    seen += static_cast<char>('0' + *value["n"].count());
  });
  EXPECT_EQ(seen, "a1b\n2");
  EXPECT_EQ(json["other"].string(), "\"kinds\": {");
  EXPECT_FALSE(json["none"].string());
  EXPECT_FALSE(json["none"]["deeper"].count());
  EXPECT_FALSE(json["other"]["deeper"].count());
}

TEST(Json, Counts) {
  EXPECT_EQ(Json::parse("18446744073709551615")->count(), ~std::uint64_t{0});
  for (const char* text : {"18446744073709551616", "-1", "1.0", "1e3", "\"1\"", "[1]", "null"})
    EXPECT_FALSE(Json::parse(text)->count()) << text;
}

}  // namespace
}  // namespace cistern::doctor
