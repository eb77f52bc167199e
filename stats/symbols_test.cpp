// Names and lines of frames in this very program, which is built with debug information.
#include "stats/symbols.hpp"

#include <gtest/gtest.h>

#include <string>

#include "stats/sites.hpp"

namespace symbols_test {

volatile int keep_frame = 0;
constexpr unsigned kPlainLine = __LINE__ + 2;
[[gnu::noinline]] cistern::SiteId plain() {
  const cistern::SiteId site = cistern::capture_site("clCreateBuffer");
  keep_frame = keep_frame + 1;
  return site;
}

constexpr unsigned kInnerLine = __LINE__ + 2;
[[gnu::always_inline]] inline cistern::SiteId inner() {
  const cistern::SiteId site = cistern::capture_site("clCreateBuffer");
  keep_frame = keep_frame + 1;
  return site;
}

constexpr unsigned kOuterLine = __LINE__ + 2;
[[gnu::noinline]] cistern::SiteId outer(int) {
  const cistern::SiteId site = inner();
  keep_frame = keep_frame + 1;
  return site;
}

namespace {
[[gnu::noinline]] cistern::SiteId hidden() {
  const cistern::SiteId site = cistern::capture_site("clCreateBuffer");
  keep_frame = keep_frame + 2;  // or the compiler makes it one with plain
  return site;
}
}  // namespace
cistern::SiteId call_hidden() { return hidden(); }

// As rustc names a function "leak_box" of a crate "names".
// Each pair is of two of the one before it.
[[gnu::noinline]] cistern::SiteId heavy() asm(
    "_Z5heavySt4pairIiiES_IS0_S0_ES_IS1_S1_ES_IS2_S2_ES_IS3_S3_ES_IS4_S4_ES_IS5_S5_ES_IS6_S6_ES_IS7_S7_ES"
    "_IS8_S8_ES_IS9_S9_ES_ISA_SA_ES_ISB_SB_ES_ISC_SC_ES_ISD_SD_ES_ISE_SE_ES_ISF_SF_ES_ISG_SG_ES_ISH_SH_ES"
    "_ISI_SI_ES_ISJ_SJ_ES_ISK_SK_ES_ISL_SL_ES_ISM_SM_ES_ISN_SN_ES_ISO_SO_ES_ISP_SP_ES_ISQ_SQ_ES_ISR_SR_ES"
    "_ISS_SS_ES_IST_ST_E");
cistern::SiteId heavy() {
  const cistern::SiteId site = cistern::capture_site("clCreateBuffer");
  keep_frame = keep_frame + 4;
  return site;
}

// 40 conversions, each of a type that has the next one among its arguments.
[[gnu::noinline]] cistern::SiteId nested() asm(
    "_ZN1acvT_IcvT_IcvT_IcvT_IcvT_IcvT_IcvT_IcvT_IcvT_IcvT_IcvT_IcvT_IcvT_IcvT_IcvT_IcvT_IcvT_IcvT_IcvT_I"
    "cvT_IcvT_IcvT_IcvT_IcvT_IcvT_IcvT_IcvT_IcvT_IcvT_IcvT_IcvT_IcvT_IcvT_IcvT_IcvT_IcvT_IcvT_IcvT_IcvT_I"
    "iEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEv");
cistern::SiteId nested() {
  const cistern::SiteId site = cistern::capture_site("clCreateBuffer");
  keep_frame = keep_frame + 5;
  return site;
}

[[gnu::noinline]] cistern::SiteId rust() asm("_RNvCs4T4zK9Otvt5_5names8leak_box");
cistern::SiteId rust() {
  const cistern::SiteId site = cistern::capture_site("clCreateBuffer");
  keep_frame = keep_frame + 3;
  return site;
}

}  // namespace symbols_test

namespace cistern {
namespace allocation {

// Stands for the linked library's own functions, which are no part of a site.
[[gnu::noinline]] SiteId through_the_library() {
  const SiteId site = symbols_test::plain();
  symbols_test::keep_frame = symbols_test::keep_frame + 1;
  return site;
}

namespace {
[[gnu::noinline]] SiteId hook() {
  const SiteId site = capture_site("cistern_allocate");
  symbols_test::keep_frame = symbols_test::keep_frame + 1;
  return site;
}
}  // namespace

[[gnu::noinline]] SiteId from_the_library() {
  const SiteId site = hook();
  symbols_test::keep_frame = symbols_test::keep_frame + 1;
  return site;
}

}  // namespace allocation
}  // namespace cistern

extern "C" [[gnu::noinline]] cistern::SiteId user_of_the_library() {
  const cistern::SiteId site = cistern::allocation::from_the_library();
  symbols_test::keep_frame = symbols_test::keep_frame + 1;
  return site;
}

namespace cistern {
namespace {

constexpr unsigned kEnoughMs = 60000;

Vector<FrameFigures> named_frames(SiteId site, unsigned budget_ms = kEnoughMs) {
  Vector<LeakFigures> leaks(1);
  leaks[0].frames = site_frames(site);
  symbolise(leaks, budget_ms);
  return leaks[0].frames;
}

bool is_this_file(const String& file) { return file.ends_with("stats/symbols_test.cpp"); }

TEST(Symbols, GiveFunctionFileAndLineOfTheCall) {
  const Vector<FrameFigures> frames = named_frames(symbols_test::plain());
  ASSERT_FALSE(frames.empty());
  EXPECT_EQ(frames[0].function, "symbols_test::plain");
  EXPECT_TRUE(is_this_file(frames[0].file)) << frames[0].file;
  EXPECT_EQ(frames[0].line, symbols_test::kPlainLine);
  EXPECT_FALSE(frames[0].inlined);
}

TEST(Symbols, QualifyFunctionsThatOnlyTheirFileSees) {
  const Vector<FrameFigures> frames = named_frames(symbols_test::call_hidden());
  ASSERT_FALSE(frames.empty());
  EXPECT_EQ(frames[0].function, "symbols_test::hidden");
}

TEST(Symbols, NameFunctionsOfRust) {
  const Vector<FrameFigures> frames = named_frames(symbols_test::rust());
  ASSERT_FALSE(frames.empty());
  EXPECT_EQ(frames[0].function, "names::leak_box");
  EXPECT_TRUE(frames[0].rust);
  EXPECT_FALSE(named_frames(symbols_test::plain())[0].rust);
}

TEST(Symbols, OfNoEndlessLengthTakeNoEndlessTime) {
  const Vector<FrameFigures> frames = named_frames(symbols_test::heavy());
  ASSERT_FALSE(frames.empty());
  EXPECT_EQ(frames[0].function, "heavy");
}

TEST(Symbols, ThatTakeLongToReadStayAsTheyAre) {
  const Vector<FrameFigures> frames = named_frames(symbols_test::nested());
  ASSERT_FALSE(frames.empty());
  EXPECT_TRUE(frames[0].function.starts_with("_ZN1acvT_IcvT_I")) << frames[0].function;
}

TEST(Symbols, ShowInlinedCalls) {
  const Vector<FrameFigures> frames = named_frames(symbols_test::outer(1));
  ASSERT_GE(frames.size(), 2u);
  EXPECT_EQ(frames[0].function, "symbols_test::inner");
  EXPECT_EQ(frames[0].line, symbols_test::kInnerLine);
  EXPECT_TRUE(frames[0].inlined);
  EXPECT_EQ(frames[1].function, "symbols_test::outer");
  EXPECT_EQ(frames[1].line, symbols_test::kOuterLine);
  EXPECT_FALSE(frames[1].inlined);
  EXPECT_EQ(frames[0].offset, frames[1].offset);
}

TEST(Symbols, LeaveModuleAndOffsetWhenTimeIsUp) {
  const SiteId site = symbols_test::plain();
  const Vector<FrameFigures> frames = named_frames(site, 0);
  ASSERT_EQ(frames.size(), site_frames(site).size());
  for (const FrameFigures& frame : frames) {
    EXPECT_TRUE(frame.function.empty() && frame.file.empty() && !frame.line) << frame.function;
    EXPECT_FALSE(frame.module.empty());
    EXPECT_NE(frame.offset, 0u);
  }
}

TEST(Symbols, LeaveOutTheLinkedLibraryOnlyWhereItLeads) {
  const Vector<FrameFigures> leading = named_frames(user_of_the_library());
  ASSERT_FALSE(leading.empty());
  EXPECT_EQ(leading[0].function, "user_of_the_library");
  const Vector<FrameFigures> inside = named_frames(allocation::through_the_library());
  ASSERT_GE(inside.size(), 2u);
  EXPECT_EQ(inside[0].function, "symbols_test::plain");
  EXPECT_EQ(inside[1].function, "cistern::allocation::through_the_library");
}

TEST(Symbols, NameNothingThatWasUnloaded) {
  Vector<LeakFigures> leaks(1);
  leaks[0].frames = site_frames(symbols_test::plain());
  leaks[0].frames[0].address = 0;
  const std::uint64_t offset = leaks[0].frames[0].offset;
  symbolise(leaks, kEnoughMs);
  EXPECT_TRUE(leaks[0].frames[0].function.empty());
  EXPECT_EQ(leaks[0].frames[0].offset, offset);
}

TEST(Symbols, NameEveryStackOfASnapshot) {
  Snapshot snapshot{};
  const SiteId site = symbols_test::plain();
  snapshot.leaks.resize(1);
  snapshot.leaks[0].frames = site_frames(site);
  snapshot.transfers.resize(1);
  snapshot.transfers[0].frames = site_frames(site);
  symbolise(snapshot, kEnoughMs);
  ASSERT_FALSE(snapshot.leaks[0].frames.empty());
  EXPECT_EQ(snapshot.leaks[0].frames[0].function, "symbols_test::plain");
  ASSERT_FALSE(snapshot.transfers[0].frames.empty());
  EXPECT_EQ(snapshot.transfers[0].frames[0].function, "symbols_test::plain");
}

TEST(Symbols, NameFunctionsOfLibraries) {
  // With the C library's debug information or without: it exports the function.
  static SiteId site;
  int values[2] = {2, 1};
  std::qsort(values, 2, sizeof values[0], [](const void*, const void*) {
    site = symbols_test::plain();
    return 1;
  });
  bool found = false;
  for (const FrameFigures& frame : named_frames(site))
    if (frame.module.ends_with("libc.so.6")) found = found || frame.function.find("qsort") != String::npos;
  EXPECT_TRUE(found);
}

TEST(Names, LoseReturnTypeAndParameters) {
  EXPECT_EQ(short_function_name("main"), "main");
  EXPECT_EQ(short_function_name("load(int, float*)"), "load");
  EXPECT_EQ(short_function_name("ns::A::get() const"), "ns::A::get");
  EXPECT_EQ(short_function_name("void ns::load<int, std::pair<int, int> >(void (*)(int))"),
            "ns::load<int, std::pair<int, int> >");
  EXPECT_EQ(short_function_name("ns::(anonymous namespace)::load(int) [clone .cold]"), "ns::load");
  EXPECT_EQ(short_function_name("(anonymous namespace)::A<(anonymous namespace)::B>::get()"), "A<B>::get");
  EXPECT_EQ(short_function_name("ns::Functor::operator()(int) const"), "ns::Functor::operator()");
  EXPECT_EQ(short_function_name("operator new(unsigned long)"), "operator new");
  EXPECT_EQ(short_function_name("A::operator bool() const"), "A::operator bool");
  EXPECT_EQ(short_function_name("run()::{lambda(int)#1}::operator()(int) const"), "run()::{lambda(int)#1}::operator()");
}

}  // namespace
}  // namespace cistern
