// See child.hpp.
#include "shim/judging/child.hpp"

#include <algorithm>

#include "pool/base/page_size.hpp"
#include "shim/judging/residency.hpp"
#include "shim/judging/roots.hpp"

namespace cistern::judging {
namespace {

// What objects of drivers begin with: OpenCL's all point to their driver's table of functions.
std::span<const std::uintptr_t> driver_words(const Plan& plan, const Roots& roots, std::uintptr_t* words) {
  std::size_t count = 0;
  for (const std::uintptr_t handle : plan.handed_out) {
    host_pool::PictureBlock block;
    if (!plan.findings->heap.find(handle, block) || !block.live) continue;
    const std::uintptr_t word = *reinterpret_cast<const std::uintptr_t*>(block.first);
    if (count < kDriverWordsMax && roots.is_of_driver(word) && std::find(words, words + count, word) == words + count)
      words[count++] = word;
  }
  std::sort(words, words + count);
  return {words, count};
}

}  // namespace

bool judge_in_copy(void* context) {
  const Plan& plan = *static_cast<const Plan*>(context);
  Findings& findings = *plan.findings;
  if (!findings.heap.take(plan.picture_table, plan.picture_bytes) || findings.heap.numbers() > plan.marks.size())
    return true;
  void* const scratch = take_in_copy(leaks::Judge::scratch_bytes());
  if (!prepare_residency() || !scratch) return true;
  plan.threads->await_second_look();
  Roots roots(plan);
  roots.read();
  findings.cannot_read = roots.cannot_read() || !can_read_own_pagemap();
  if (roots.is_short() || findings.cannot_read) return true;
  std::uintptr_t words[kDriverWordsMax];
  const leaks::World world{
      &findings.heap,    plan.targets,  roots.all(),   plan.handed_out,       driver_words(plan, roots, words),
      roots.constants(), next_resident, plan.integers, roots.stacks_in_heap()};
  leaks::Judge judge(world, plan.marks.data(), scratch, copy_time_is_over);
  const bool in_time = judge.run();
  findings.unseen_threads = roots.unseen_threads();
  findings.unreadable_bytes = unreadable_bytes();
  findings.bytes_read = judge.bytes_read();
  findings.is_complete = in_time;
  return in_time;
}

std::size_t child_bytes() {
  constexpr std::size_t kRoundedParts = 16;
  return Roots::kBytes + residency_bytes() + leaks::Judge::scratch_bytes() + kRoundedParts * page_bytes();
}

}  // namespace cistern::judging
