// Blocks of more than a system page that are sampled where they lie. A bit in their page's descriptor says so.
#pragma once
#include "pool/heap/medium_pages.hpp"
#include "pool/heap/sampling.hpp"

namespace cistern::host_pool {

// `number`: which of their page's.
inline bool is_sampled_in_place(const Page& page, unsigned number) {
  return page.sited.load(std::memory_order_relaxed) >> number % 32 & 1;
}
void sample_in_place(Page& page, unsigned number, std::size_t bytes, unsigned doublings);
void forget_in_place(Page& page, unsigned number);               // if it is one
std::uint32_t site_in_place(const Page& page, unsigned number);  // 0: none
void note_size_in_place(Page& page, unsigned number, std::size_t bytes);
bool visit_samples_in_place(void (*visit)(void* context, const Sample& sample), void* context, AtFork at_fork);
void samples_in_place_before_fork();
void samples_in_place_after_fork();

}  // namespace cistern::host_pool
