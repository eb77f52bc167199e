// Where the host pool's memory lies: CISTERN_NUMA chooses its nodes, CISTERN_HUGE_PAGES its pages. Both hold for whole
// chunks of the region, but for `copied`, and are wishes: what the system refuses stays as it was, after one line that
// says so.
#pragma once
#include <cstddef>

namespace cistern::host {

// Reads the options and applies them to the chunks there are and to come. Called once, early, when it is decided who
// serves; without the options it does nothing. Allocates; may load libnuma.
void prepare_placement();

// Whole pages of one block: on this node, preferably, and huge ones. 0, or an errno value. When the block goes back
// they lie where CISTERN_NUMA says again; the advice for huge pages stays with the memory.
constexpr int kAnyNode = -1;
int place_block(void* memory, std::size_t bytes, int node, bool huge);
void unplace_block(void* memory, std::size_t bytes);

// Huge pages for the block, where CISTERN_HUGE_PAGES=copied asks for them. The advice stays with the memory when the
// block is freed: it may be copied again.
void copied(const void* memory, std::size_t bytes);

}  // namespace cistern::host
