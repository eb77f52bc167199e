// The reader of options over made-up environments: every type, every complaint word by word.
#include "shim/process/options.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace cistern {
namespace {

using namespace std::literals;

// One environment at a time: what getenv answers, and what stands in environ.
std::map<std::string, std::string> variables;
std::vector<std::string> complaints;

const char* answer(const char* name) {
  auto found = variables.find(name);
  return found == variables.end() ? nullptr : found->second.c_str();
}
const char* answer_nothing(const char*) { return nullptr; }
void complain(std::string_view line) { complaints.emplace_back(line); }

Options read(std::map<std::string, std::string> set, Getenv getenv = answer) {
  variables = std::move(set);
  complaints.clear();
  std::vector<std::string> entries;
  for (const auto& [name, value] : variables) entries.push_back(name + "=" + value);
  std::vector<char*> environment;
  for (std::string& entry : entries) environment.push_back(entry.data());
  environment.push_back(nullptr);
  return read_options(getenv, environment.data(), complain);
}

std::vector<std::string> lines_for(const std::string& name, const std::string& value) {
  read({{name, value}});
  return complaints;
}
using Lines = std::vector<std::string>;

TEST(Options, DefaultsAreThoseOfTheTable) {
  const Options options = read({});
  EXPECT_EQ(complaints, Lines{});
  EXPECT_EQ(options.report, "");
  EXPECT_FALSE(options.report_requested);
  EXPECT_EQ(options.report_format, "text");
  EXPECT_EQ(options.sites, "gpu");
  EXPECT_TRUE(options.opencl_pool);
  EXPECT_EQ(options.opencl_pool_max, 1ull << 40);
  EXPECT_EQ(options.opencl_object_max, 512ull << 20);
  EXPECT_EQ(options.trim_interval, 300'000'000'000ull);
  EXPECT_TRUE(options.host);
  EXPECT_EQ(options.numa, "off");
  EXPECT_EQ(options.huge_pages, "off");
}

TEST(Options, ValuesOfEachType) {
  EXPECT_EQ(read({{"CISTERN_REPORT", "/a b/%p"}}).report, "/a b/%p");
  EXPECT_TRUE(read({{"CISTERN_REPORT", "none"}}).report_requested);
  EXPECT_EQ(read({{"CISTERN_REPORT_FORMAT", "JSON"}}).report_format, "json");
  EXPECT_EQ(read({{"CISTERN_NUMA", "node:1"}}).numa, "node:1");
  for (const char* word : {"thp", "copied", "2m", "1g", "off"})
    EXPECT_EQ(read({{"CISTERN_HUGE_PAGES", word}}).huge_pages, word) << word;
  for (const char* word : {"off", "0", "FALSE", "no"}) EXPECT_FALSE(read({{"CISTERN_HOST", word}}).host) << word;
  for (const char* word : {"on", "1", "True", "yes"}) EXPECT_TRUE(read({{"CISTERN_HOST", word}}).host) << word;
  const std::map<std::string, std::uint64_t> sizes = {{"0", 0},
                                                      {"17", 17},
                                                      {"17B", 17},
                                                      {"2K", 2048},
                                                      {"2KiB", 2048},
                                                      {"3mib", 3 << 20},
                                                      {"3M", 3 << 20},
                                                      {"5GiB", 5ull << 30},
                                                      {"5G", 5ull << 30},
                                                      {"1TiB", 1ull << 40},
                                                      {"2t", 2ull << 40},
                                                      {"18446744073709551615", ~0ull},
                                                      {"17179869183GiB", 17179869183ull << 30}};
  for (const auto& [text, bytes] : sizes)
    EXPECT_EQ(read({{"CISTERN_OPENCL_POOL_MAX", text}}).opencl_pool_max, bytes) << text;
  const std::map<std::string, std::uint64_t> times = {
      {"0", 0}, {"2", 2'000'000'000}, {"2s", 2'000'000'000}, {"250ms", 250'000'000}, {"5min", 300'000'000'000}};
  for (const auto& [text, nanoseconds] : times)
    EXPECT_EQ(read({{"CISTERN_TRIM_INTERVAL", text}}).trim_interval, nanoseconds) << text;
  EXPECT_EQ(complaints, Lines{});
}

TEST(Options, ABadValueKeepsTheDefaultAndSaysSo) {
  EXPECT_TRUE(read({{"CISTERN_OPENCL_POOL", "maybe"}}).opencl_pool);
  EXPECT_EQ(complaints, Lines{"CISTERN_OPENCL_POOL: 'maybe' is not on or off; using on"});
  for (const char* text : {"-1", "1.5GiB", "GiB", "1 GiB", "1TB", "0x10", "18446744073709551616", "17179869184GiB"}) {
    EXPECT_EQ(read({{"CISTERN_OPENCL_POOL_MAX", text}}).opencl_pool_max, 1ull << 40);
    EXPECT_EQ(complaints, Lines{"CISTERN_OPENCL_POOL_MAX: '"s + text + "' is not a size such as 512MiB; using 1TiB"});
  }
  EXPECT_EQ(lines_for("CISTERN_TRIM_INTERVAL", "3h"),
            Lines{"CISTERN_TRIM_INTERVAL: '3h' is not a time such as 300s; using 300s"});
  EXPECT_EQ(lines_for("CISTERN_REPORT_FORMAT", "xml"),
            Lines{"CISTERN_REPORT_FORMAT: 'xml' is not text or json; using text"});
  EXPECT_EQ(lines_for("CISTERN_SITES", "every"), Lines{"CISTERN_SITES: 'every' is not gpu, all or off; using gpu"});
  EXPECT_EQ(lines_for("CISTERN_HUGE_PAGES", "4k"),
            Lines{"CISTERN_HUGE_PAGES: '4k' is not thp, copied, 2m, 1g or off; using off"});
}

TEST(Options, AnEmptyVariableIsUnset) {
  const Options options = read({{"CISTERN_REPORT", ""}, {"CISTERN_HOST", ""}, {"CISTERN_TRIM_INTERVAL", ""}});
  EXPECT_FALSE(options.report_requested);
  EXPECT_TRUE(options.host);
  EXPECT_EQ(complaints, Lines{});
}

using Sizes = decltype(FailOn::bytes_min);

TEST(Gate, OneOfSeveralIsEnoughEachFromItsSize) {
  EXPECT_EQ(read({{"CISTERN_FAIL_ON", "any"}}).fail_on.bytes_min, (Sizes{0}));
  EXPECT_EQ(read({{"CISTERN_FAIL_ON", "Lost:1MiB,GROWING:2k,any"}}).fail_on.bytes_min,
            (Sizes{0, 1 << 20, std::nullopt, 2048}));
  EXPECT_FALSE(read({{"CISTERN_FAIL_ON", "off"}}).has_gate());
  EXPECT_FALSE(read({}).has_gate());
  EXPECT_EQ(complaints, Lines{});
}

TEST(Gate, AWrongValueShutsIt) {
  constexpr const char* kLine =
      "' is not off, or any, lost, possible, growing, each with or without :SIZE, with commas between";
  for (const char* text :
       {"",          " ",       "any ",    " any",       "all",      "true",      "1",    "0",
        "any:",      "any:1XB", "any:-1",  "any:1.5MiB", "any;lost", "any,",      ",any", "any,,lost",
        "any, lost", "any,any", "any,off", "lost:1 MiB", "\"any\"",  "lost=1MiB", "grows"}) {
    const Options options = read({{"CISTERN_FAIL_ON", text}});
    EXPECT_EQ(options.gate_fault, ("CISTERN_FAIL_ON: '"s + text + kLine).c_str());
    EXPECT_EQ(complaints, Lines{"CISTERN_FAIL_ON: '"s + text + kLine + "; so processes that used GPU memory fail"});
  }
}

TEST(Gate, ANameThatIsNearlyItsOwnShutsIt) {
  for (const char* name : {"CISTERN_FAILON", "CISTERN_FAIL", "CISTERN_FAIL_ONN", "CISTERN_FAIL_ON ", "CISTERN_FAIL_IF",
                           "CISTERN_FAIL_ON_LEAK", "CISTERN_fail_on", "cistern_fail_on", "CISTERNFAIL_ON",
                           "CISTRN_FAIL_ON", "CISTERN.FAIL.ON"}) {
    EXPECT_TRUE(read({{name, "any"}}).has_gate()) << name;
    EXPECT_EQ(
        complaints,
        Lines{name + ": no such option (did you mean CISTERN_FAIL_ON?); so processes that used GPU "s + "memory fail"});
  }
  for (const char* name : {"CISTERN_ON", "CISTERN_SUPPRESSION", "CISTERN_SITE", "CUDA_FAIL_ON", "CONTINUE_FAIL_ON",
                           "CI_TEST_FAIL_ON", "CLUSTER_FAIL_ON", "CISTERN_FAILOVER"})
    EXPECT_FALSE(read({{name, "any"}}).has_gate()) << name;
}

TEST(Gate, NamesThatAreOnlyALittleLikeThoseItDependsOnLeaveItOpen) {
  for (const char* name : {"CISTERN_CHECKS", "CISTERN_POST", "CISTERN_CODE", "CI_TEST_FAIL_ON"})
    EXPECT_EQ(read({{name, "1"}, {"CISTERN_FAIL_ON", "any"}}).gate_fault, "") << name;
}

TEST(Gate, WhatItDependsOnShutsItBesideIt) {
  const std::vector<std::pair<std::string, std::string>> wrong = {{"CISTERN_FAIL_CODE", "300"},
                                                                  {"CISTERN_FAIL_CODE", "0"},
                                                                  {"CISTERN_FAIL_CODE", "one"},
                                                                  {"CISTERN_UNDECIDED_CODE", "256"},
                                                                  {"CISTERN_FAIL_CHILDREN", "maybe"},
                                                                  {"CISTERN_LEAK_CHECK", "10sec"},
                                                                  {"CISTERN_LEAK_THREADS", "held"},
                                                                  {"CISTERN_SITES", "every"},
                                                                  {"CISTERN_HOST", "2"},
                                                                  {"CISTERN_SUPPRESSION", "file"},
                                                                  {"CISTERN_SITE", "all"},
                                                                  {"CISTERN_LEAKCHECK", "1s"}};
  for (const auto& [name, value] : wrong) {
    EXPECT_EQ(read({{name, value}}).gate_fault, "") << name;
    EXPECT_EQ(complaints.size(), 1u) << name;
    EXPECT_NE(read({{name, value}, {"CISTERN_FAIL_ON", "any"}}).gate_fault, "") << name << value;
    EXPECT_EQ(complaints.size(), 1u) << name;
    EXPECT_EQ(read({{name, value}, {"CISTERN_FAIL_ON", "off"}}).gate_fault, "") << name;
  }
  EXPECT_EQ(read({{"CISTERN_REPORT_FORMAT", "xml"}, {"CISTERN_FAIL_ON", "any"}}).gate_fault, "");
  EXPECT_EQ(read({{"CISTERN_FAIL_CODE", "300"}, {"CISTERN_FAIL_ON", "any"}}).fail_code, 23u);
  EXPECT_EQ(read({{"CISTERN_UNDECIDED_CODE", "0"}, {"CISTERN_FAIL_ON", "any"}}).undecided_code, 0u);
  EXPECT_EQ(complaints, Lines{});
}

TEST(Gate, HostMemoryIsJudgedWhereEveryBlockHasItsSite) {
  EXPECT_FALSE(read({{"CISTERN_FAIL_ON", "lost"}}).gate_judges_host());
  EXPECT_FALSE(read({{"CISTERN_FAIL_ON", "any"}, {"CISTERN_SITES", "all"}}).gate_judges_host());
  EXPECT_FALSE(
      read({{"CISTERN_FAIL_ON", "lost"}, {"CISTERN_SITES", "all"}, {"CISTERN_HOST", "off"}}).gate_judges_host());
  for (const char* value : {"lost", "possible:1MiB", "any,growing", "nonsense"})
    EXPECT_TRUE(read({{"CISTERN_FAIL_ON", value}, {"CISTERN_SITES", "all"}}).gate_judges_host()) << value;
}

TEST(Options, UnknownNames) {
  EXPECT_EQ(lines_for("CISTERN_POOOL", "1"),
            Lines{"CISTERN_POOOL: no such option (did you mean CISTERN_OPENCL_POOL?)"});
  EXPECT_EQ(lines_for("CISTERN_REPROT", "x"), Lines{"CISTERN_REPROT: no such option (did you mean CISTERN_REPORT?)"});
  EXPECT_EQ(lines_for("CISTERN_SITE", "x"), Lines{"CISTERN_SITE: no such option (did you mean CISTERN_SITES?)"});
  EXPECT_EQ(lines_for("CISTERN_", "x"), Lines{"CISTERN_: no such option"});
  EXPECT_EQ(lines_for("CISTERN_XYZZYPLUGH", "x"), Lines{"CISTERN_XYZZYPLUGH: no such option"});
  EXPECT_EQ(lines_for("CISTERNA", "x"), Lines{});
  EXPECT_EQ(lines_for("cistern_report", "x"), Lines{});
}

TEST(Options, ShownValuesAreBoundedAndPrintable) {
  const Lines lines = lines_for("CISTERN_HOST", "a\nb\x1b" + std::string(1000, 'c'));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0], "CISTERN_HOST: 'a?b?" + std::string(76, 'c') + "...' is not on or off; using on");
  EXPECT_LT(lines_for("CISTERN_" + std::string(5000, 'X'), "x").at(0).size(), 200u);
}

TEST(Options, ASecureEnvironmentHasNoVariables) {
  const Options options =
      read({{"CISTERN_REPORT", "/etc/x"}, {"CISTERN_HOST", "bad"}, {"CISTERN_POOOL", "1"}}, answer_nothing);
  EXPECT_EQ(options.report, "");
  EXPECT_FALSE(options.report_requested);
  EXPECT_EQ(complaints, Lines{});
}

TEST(Options, NoEnvironmentAtAll) {
  variables.clear();
  complaints.clear();
  EXPECT_EQ(read_options(answer, nullptr, complain).sites, "gpu");
  EXPECT_EQ(complaints, Lines{});
}

}  // namespace
}  // namespace cistern
