// Symbols as rustc 1.95 makes them, in both forms, and what is none of Rust's.
#include "stats/rust_names.hpp"

#include <gtest/gtest.h>

#include <string>

namespace cistern {
namespace {

TEST(RustNames, OfTodaysForm) {
  EXPECT_EQ(rust_name("_RNvCs4T4zK9Otvt5_5names8leak_box"), "names::leak_box");
  EXPECT_EQ(rust_name("_RNvMCs4T4zK9Otvt5_5namesINtB2_1SdE6methodB2_"), "<names::S<f64>>::method");
  EXPECT_EQ(rust_name("_RNCNvCs4T4zK9Otvt5_5names4mains_0B3_"), "names::main::{closure#1}");
  EXPECT_EQ(rust_name("_RINvNtCslNYArtu3iFV_5alloc3vec9from_elemhECs4T4zK9Otvt5_5names"),
            "alloc::vec::from_elem::<u8>");
}

TEST(RustNames, OfTheFormBeforeLoseTheirHash) {
  EXPECT_EQ(rust_name("_ZN5names8leak_box17h4f3ac1ef8b8a6a2dE"), "names::leak_box");
  EXPECT_EQ(rust_name("_ZN5names10S$LT$T$GT$6method17hf97ad3a3ff413915E"), "names::S<T>::method");
}

TEST(RustNames, OfOthersAreNone) {
  for (const char* symbol : {"main", "_ZN2ns4loadEi", "_ZNSt6vectorIiSaIiEE9push_backEOi", "_R", "_RNv", "_Rectangle",
                             "_ZN5names8leak_box17h0000000000000000E", ""})
    EXPECT_EQ(rust_name(symbol), "") << symbol;
}

// Each tuple refers to the one before it twice: in full the name would be gigabytes long.
TEST(RustNames, AreOfNoEndlessLengthAndTakeNoEndlessTime) {
  std::string symbol = "_RIC1aTjjE";
  const auto number = [](std::size_t value) {  // in base 62, as references are
    constexpr char kDigits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    std::string text(1, kDigits[value % 62]);
    while (value /= 62) text.insert(0, 1, kDigits[(value) % 62]);
    return text;
  };
  for (std::size_t before = 4; symbol.size() < 300;) {
    const std::size_t here = symbol.size() - 2;
    symbol += "TB" + number(before - 1) + "_B" + number(before - 1) + "_E";
    before = here;
  }
  const String name = rust_name((symbol + "E").c_str());
  EXPECT_EQ(name.size(), 4096u);
  EXPECT_TRUE(name.starts_with("a::<(usize, usize), ((usize, usize), (usize, usize)), ")) << name;
}

TEST(RustLibrary, IsWhatNoTypeAndNoTraitOfAUserHas) {
  for (const char* name :
       {"alloc::alloc::alloc", "<alloc::alloc::Global>::alloc_impl", "__rust_alloc", "__rdl_alloc",
        "<alloc::alloc::Global as core::alloc::Allocator>::allocate",
        "<alloc::raw_vec::RawVec<names::S<f64>>>::with_capacity_in", "<[names::S]>::to_vec",
        "<u8 as alloc::vec::spec_from_elem::SpecFromElem>::from_elem", "__rustc::__rust_alloc",
        "hashbrown::raw::RawTable<T,A>::reserve_rehash", "<fn(usize) -> usize as core::fmt::Debug>::fmt"})
    EXPECT_TRUE(is_of_rust_library(name)) << name;
  for (const char* name :
       {"names::leak_box", "<names::S<f64>>::method", "<names::S as core::fmt::Debug>::fmt",
        "<alloc::vec::Vec<u8> as names::Grow>::grow", "stdx::vec", "<&mut names::S as core::fmt::Debug>::fmt"})
    EXPECT_FALSE(is_of_rust_library(name)) << name;
}

TEST(RustCallWrappers, RunWhatTheyAreGiven) {
  for (const char* name :
       {"core::ops::function::FnOnce::call_once",
        "<names::main::{closure#0} as core::ops::function::FnOnce<()>>::call_once", "std::rt::lang_start::<()>",
        "std::sys::backtrace::__rust_begin_short_backtrace::<fn(), ()>",
        "<core::panic::unwind_safe::AssertUnwindSafe<F> as core::ops::function::FnOnce<()>>::call_once",
        "std::panicking::catch_unwind", "<std::sys::thread::unix::Thread>::new::thread_start",
        "<std::thread::local::LocalKey<u8>>::with", "__rust_try"})
    EXPECT_TRUE(is_rust_call_wrapper(name)) << name;
  for (const char* name : {"names::main", "alloc::vec::from_elem::<u8>", "<names::S as core::iter::Iterator>::next",
                           "<names::S<fn() -> u8>>::method"})
    EXPECT_FALSE(is_rust_call_wrapper(name)) << name;
}

}  // namespace
}  // namespace cistern
