// Names of Rust functions in words, as Rust's compiler mangles them (today's form and the one before), by libiberty.
#pragma once
#include <string_view>

#include "pool/base/internal_memory.hpp"

namespace cistern {

// "<names::S<f64>>::method" of "_RNvMCs4T4zK9Otvt5_5namesINtB2_1SdE6methodB2_", without hashes; empty where the symbol
// is none of Rust's.
String rust_name(const char* symbol);

// For functions that Rust's runtime has under plain names.
bool is_of_rust_runtime(std::string_view symbol);

// Whether it is a function of Rust's own library (std, and what that is made of): no user's type or trait has it.
bool is_of_rust_library(std::string_view name);

// And one that only runs what it is given: a closure, a thread's function, main.
bool is_rust_call_wrapper(std::string_view name);

}  // namespace cistern
