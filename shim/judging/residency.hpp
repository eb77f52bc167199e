// Which pages of the judged process have contents: of memory that was never touched there may be any amount. What the
// parent has and the child has not is fetched on the way. For the child alone.
#pragma once
#include <cstddef>
#include <cstdint>

#include "shim/judging/plan.hpp"

namespace cistern::judging {

// Before all others. False: there was no memory for it.
bool prepare_residency();
bool can_read_own_pagemap();
std::size_t residency_bytes();

// As leaks::NextResident.
bool next_resident(std::uintptr_t first, std::uintptr_t end, leaks::Residency residency, std::uintptr_t& there,
                   std::uintptr_t& there_end);

enum class Touched { yes, no, unknown };  // unknown: the kernel cannot say without a look at each page
Touched any_page_touched(std::uintptr_t first, std::uintptr_t end);

// Pages that nobody may touch, in the midst of a mapping that may be read (MADV_GUARD_INSTALL): stacks have some. None:
// both are `end`.
AddressRange next_guard(std::uintptr_t first, std::uintptr_t end);

}  // namespace cistern::judging
