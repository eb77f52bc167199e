// See rust_names.hpp.
#include "stats/rust_names.hpp"

#include <algorithm>
#include <array>
#include <iterator>

#include "stats/demangled.hpp"

// The part of safe-ctype.c that libiberty's rust-demangle.c needs: bits of the kinds that it asks for, the values those
// of safe-ctype.h.
extern "C" const std::array<unsigned short, 256> cistern_kinds_of_characters;
constexpr std::array<unsigned short, 256> cistern_kinds_of_characters = [] {
  constexpr unsigned short kDigit = 0x4, kLower = 0x8, kUpper = 0x80;
  std::array<unsigned short, 256> kinds{};
  for (unsigned char c = '0'; c <= '9'; ++c) kinds[c] = kDigit;
  for (unsigned char c = 'a'; c <= 'z'; ++c) kinds[c] = kLower;
  for (unsigned char c = 'A'; c <= 'Z'; ++c) kinds[c] = kUpper;
  return kinds;
}();

// As its demangle.h declares it.
extern "C" int rust_demangle_callback(const char* mangled, int options,
                                      void (*print)(const char* text, std::size_t bytes, void* data), void* data);

namespace cistern {
namespace {

constexpr std::size_t kNameBytesMax = 4096;

constexpr std::string_view kLibraryCrates[] = {"std", "core", "alloc", "__rustc", "hashbrown"};

constexpr std::string_view kCallWrappers[] = {"core::ops::function::",
                                              "core::panic::unwind_safe::AssertUnwindSafe<",
                                              "std::panic::",
                                              "std::panicking::",
                                              "std::rt::",
                                              "std::sys::backtrace::__rust_begin_short_backtrace",
                                              "std::sys_common::backtrace::__rust_begin_short_backtrace",
                                              "std::sys::pal::unix::thread::Thread::new::thread_start",
                                              "std::sys::unix::thread::Thread::new::thread_start",
                                              "std::sys::thread::unix::Thread::new::thread_start",
                                              "std::sys::pal::unix::thread::Thread>::new::thread_start",
                                              "std::sys::thread::unix::Thread>::new::thread_start",
                                              "std::thread::"};

// "core::ops::Fn" of "<names::S as core::ops::Fn>::call": what stands at `at` inside the outermost brackets ends there.
std::size_t end_of_brackets(std::string_view name) {
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<') ++depth;
    // "->" is no bracket.
    if (name[i] == '>' && (i == 0 || name[i - 1] != '-') && --depth == 0) return i;
  }
  return name.size();
}

// Where " as " stands in "T as Trait"; npos: it is a type alone.
std::size_t place_of_as(std::string_view inner) {
  int depth = 0;
  for (std::size_t i = 0; i < inner.size(); ++i) {
    if (inner[i] == '<') ++depth;
    if (inner[i] == '>' && (i == 0 || inner[i - 1] != '-')) --depth;
    if (depth == 0 && inner.substr(i).starts_with(" as ")) return i;
  }
  return inner.npos;
}

// For a path, or a type: one without a crate is built into the language.
bool is_in_library(std::string_view path) {
  for (const std::string_view prefix : {"&", "mut ", "dyn "})
    if (path.starts_with(prefix)) path.remove_prefix(prefix.size());
  const auto is_of_identifier = [](char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  const auto crate_end = std::find_if_not(path.begin(), path.end(), is_of_identifier);
  const std::string_view crate = path.substr(0, static_cast<std::size_t>(crate_end - path.begin()));
  if (!path.substr(crate.size()).starts_with("::")) return true;
  return std::find(std::begin(kLibraryCrates), std::end(kLibraryCrates), crate) != std::end(kLibraryCrates);
}

}  // namespace

String rust_name(const char* symbol) {
  const auto demangle = [](const char* mangled, TakeText take, void* data) {
    return rust_demangle_callback(mangled, 0, take, data) != 0;
  };
  return demangled(symbol, demangle, kNameBytesMax);
}

bool is_of_rust_runtime(std::string_view symbol) {
  return symbol.starts_with("__rust_") || symbol.starts_with("__rdl_") || symbol.starts_with("__rg_");
}

bool is_of_rust_library(std::string_view name) {
  if (!name.starts_with('<')) return is_of_rust_runtime(name) || is_in_library(name);
  const std::string_view inner = name.substr(1, end_of_brackets(name) - 1);
  const std::size_t as = place_of_as(inner);
  if (as == inner.npos) return is_in_library(inner);
  return is_in_library(inner.substr(0, as)) && is_in_library(inner.substr(as + 4));
}

bool is_rust_call_wrapper(std::string_view name) {
  if (name.starts_with("__rust_try")) return true;
  if (name.starts_with('<')) {
    const std::string_view inner = name.substr(1, end_of_brackets(name) - 1);
    const std::size_t as = place_of_as(inner);
    if (as != inner.npos && inner.substr(as + 4).starts_with("core::ops::function::Fn")) return true;
  }
  if (!is_of_rust_library(name)) return false;
  const std::string_view path = name.substr(name.starts_with('<') ? 1 : 0);
  return std::any_of(std::begin(kCallWrappers), std::end(kCallWrappers),
                     [&](std::string_view wrapper) { return path.starts_with(wrapper); });
}

}  // namespace cistern
