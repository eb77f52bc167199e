// The reader of options over made-up environments: every complaint word by word. For values: option_types_test.cpp.
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
  EXPECT_EQ(complaints, Lines{});
}

TEST(Options, ABadValueKeepsTheDefaultAndSaysSo) {
  EXPECT_TRUE(read({{"CISTERN_OPENCL_POOL", "maybe"}}).opencl_pool);
  EXPECT_EQ(complaints, Lines{"CISTERN_OPENCL_POOL: 'maybe' is not on or off; using on"});
  EXPECT_EQ(read({{"CISTERN_OPENCL_POOL_MAX", "1PB"}}).opencl_pool_max, 1ull << 40);
  EXPECT_EQ(complaints, Lines{"CISTERN_OPENCL_POOL_MAX: '1PB' is not a size such as 512MiB or 1.5GB; using 1TiB"});
  EXPECT_EQ(lines_for("CISTERN_TRIM_INTERVAL", "3d"),
            Lines{"CISTERN_TRIM_INTERVAL: '3d' is not a time such as 250ms, 300s or 1.5h; using 300s"});
  EXPECT_EQ(lines_for("CISTERN_STAGING_THREADS", "4KiB"),
            Lines{"CISTERN_STAGING_THREADS: '4KiB' is not a whole number from 0 to 1024; using 7"});
  EXPECT_EQ(lines_for("CISTERN_FAIL_CODE", "0"),
            Lines{"CISTERN_FAIL_CODE: '0' is not a whole number from 1 to 255; using 23"});
  EXPECT_EQ(lines_for("CISTERN_DEVICE_POOL_PERCENT", "1GiB"),
            Lines{"CISTERN_DEVICE_POOL_PERCENT: '1GiB' is not a percentage from 0 to 1000000; using 115"});
  EXPECT_EQ(lines_for("CISTERN_SYSTEM_CALLS", "CISTERN_REPORT"),
            Lines{"CISTERN_SYSTEM_CALLS: 'CISTERN_REPORT' is not few or all; using all"});
  EXPECT_EQ(lines_for("CISTERN_NUMA", "node:N"),
            Lines{"CISTERN_NUMA: 'node:N' is not local, interleave, node:N or off; using off"});
  EXPECT_EQ(lines_for("CISTERN_REPORT_FORMAT", "xml"),
            Lines{"CISTERN_REPORT_FORMAT: 'xml' is not text, json or both; using text"});
  EXPECT_EQ(lines_for("CISTERN_SITES", "every"), Lines{"CISTERN_SITES: 'every' is not gpu, all or off; using gpu"});
  EXPECT_EQ(lines_for("CISTERN_HUGE_PAGES", "4k"),
            Lines{"CISTERN_HUGE_PAGES: '4k' is not thp, copied, 2m, 1g or off; using off"});
}

TEST(Options, ALimitThatCannotBeReadIsNeverNone) {
  constexpr const char* kNow = "; the limit is half of each device's memory";
  for (const char* text : {"", " ", "8GIb ", "-1", "0x10", "8 G B", "0.0001KiB", "99999999TiB"}) {
    const DeviceLimit limit = read({{"CISTERN_DEVICE_LIMIT", text}}).device_limit;
    EXPECT_EQ(limit.of(1000), 500u) << text;
    EXPECT_EQ(limit.of(1), 1u) << "0 would be none";
    EXPECT_EQ(complaints, Lines{"CISTERN_DEVICE_LIMIT: '"s + text + "' is not a size such as 512MiB or 1.5GB" + kNow});
  }
  EXPECT_EQ(read({{"CISTERN_DEVICE_LIMITS", "1M"}}).device_limit.of(1000), 500u);
  EXPECT_EQ(complaints, Lines{"CISTERN_DEVICE_LIMITS: no such option (did you mean CISTERN_DEVICE_LIMIT?)"s + kNow});
  EXPECT_EQ(read({{"CISTERN_DEVICE_LIMITS", "1M"}, {"CISTERN_DEVICE_LIMIT", "700"}}).device_limit.of(1000), 700u);
  EXPECT_EQ(complaints, Lines{"CISTERN_DEVICE_LIMITS: no such option (did you mean CISTERN_DEVICE_LIMIT?)"});
  EXPECT_FALSE(read({{"CISTERN_DEVICE_LIMIT", "0"}}).device_limit);
  EXPECT_FALSE(read({}).device_limit);
  EXPECT_EQ(complaints, Lines{});
}

TEST(Options, ByCallTheyAreReadAsFromTheEnvironment) {
  const Options before = read({{"CISTERN_DEVICE_LIMIT", "wrong"}});
  complaints.clear();
  EXPECT_EQ(with_option(before, "CISTERN_DEVICE_LIMIT", "1.5 GiB", complain)->device_limit.of(1000), 3u << 29);
  EXPECT_EQ(complaints, Lines{});
  EXPECT_FALSE(with_option(before, "CISTERN_DEVICE_LIMIT", "", complain));
  EXPECT_FALSE(with_option(before, "CISTERN_FAIL_CODE", "256", complain));
  EXPECT_FALSE(with_option(before, "CISTERN_SITES", "every", complain));
  EXPECT_EQ(complaints,
            (Lines{"CISTERN_DEVICE_LIMIT: '' is not a size such as 512MiB or 1.5GB; the option is unchanged",
                   "CISTERN_FAIL_CODE: '256' is not a whole number from 1 to 255; the option is unchanged",
                   "CISTERN_SITES: 'every' is not gpu, all or off; the option is unchanged"}));
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
  EXPECT_EQ(read({{"CISTERN_FAIL_ON", "lost:1.5MB,any:1 KiB"}}).fail_on.bytes_min, (Sizes{1024, 1'500'000}));
  EXPECT_FALSE(read({{"CISTERN_FAIL_ON", "off"}}).has_gate());
  EXPECT_FALSE(read({}).has_gate());
  EXPECT_EQ(complaints, Lines{});
}

TEST(Gate, AWrongValueShutsIt) {
  constexpr const char* kLine =
      "' is not off or a comma-separated list of any, lost, possible, growing, each with an optional :SIZE";
  for (const char* text :
       {"",          " ",       "any ",    " any",         "all",      "true",      "1",    "0",
        "any:",      "any:1XB", "any:-1",  "any:1.5.5MiB", "any;lost", "any,",      ",any", "any,,lost",
        "any, lost", "any,any", "any,off", "lost:1  MiB",  "\"any\"",  "lost=1MiB", "grows"}) {
    const Options options = read({{"CISTERN_FAIL_ON", text}});
    EXPECT_EQ(options.gate_fault, ("CISTERN_FAIL_ON: '"s + text + kLine).c_str());
    EXPECT_EQ(complaints, Lines{"CISTERN_FAIL_ON: '"s + text + kLine + "; processes that used GPU memory will fail"});
  }
}

TEST(Gate, ANameThatIsNearlyItsOwnShutsIt) {
  for (const char* name : {"CISTERN_FAILON", "CISTERN_FAIL", "CISTERN_FAIL_ONN", "CISTERN_FAIL_ON ", "CISTERN_FAIL_IF",
                           "CISTERN_FAIL_ON_LEAK", "CISTERN_fail_on", "cistern_fail_on", "CISTERNFAIL_ON",
                           "CISTRN_FAIL_ON", "CISTERN.FAIL.ON"}) {
    EXPECT_TRUE(read({{name, "any"}}).has_gate()) << name;
    EXPECT_EQ(complaints, Lines{name + ": no such option (did you mean CISTERN_FAIL_ON?); processes that used "s +
                                "GPU memory will fail"});
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
  EXPECT_EQ(lines_for("CISTERN_HOST", "\xff\xfeon"), Lines{"CISTERN_HOST: '??on' is not on or off; using on"});
  EXPECT_EQ(lines_for("CISTERN_HOST", "\u00e4\u00b5"),
            Lines{"CISTERN_HOST: '\u00e4\u00b5' is not on or off; using on"});
  EXPECT_EQ(lines_for("CISTERN_HOST", std::string(79, 'c') + "\u00e4"),
            Lines{"CISTERN_HOST: '" + std::string(79, 'c') + "...' is not on or off; using on"});
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
