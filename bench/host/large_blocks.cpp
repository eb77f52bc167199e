// Large blocks, every page written once, about so many of about such a size live: large_blocks HOW KIB LIVE MIB SEED,
// MIB in all. How:
//   random  one at random is replaced by one of a third to five thirds of the size
//   queue   the oldest is replaced by one of the very size
//   phases  all come, then all go
//   grow    the oldest is replaced by one that is resized step by step
#include <string_view>

#include "workload.hpp"

namespace host_bench {
namespace {

constexpr std::size_t kPage = 4096;

void touch(const Block& block, std::size_t from = 0) {
  auto* bytes = static_cast<unsigned char*>(block.at());
  for (std::size_t at = (from / kPage + 1) * kPage; at + 1 < block.bytes(); at += kPage) bytes[at] = 1;
}

struct Load {
  std::size_t bytes, live, total_bytes;
  Random random;

  std::size_t varied() { return random.between(bytes / 3, bytes / 3 * 5); }
  std::size_t replace(Block& block, std::size_t with_bytes) {
    block.release();
    block = Block::make(with_bytes, random.next());
    touch(block);
    return with_bytes;
  }
};

void replace_at_random(Load& load, std::vector<Block>& blocks) {
  for (std::size_t done = 0; done < load.total_bytes;)
    done += load.replace(blocks[load.random.below(load.live)], load.varied());
}

void replace_the_oldest(Load& load, std::vector<Block>& blocks) {
  for (std::size_t done = 0, turn = 0; done < load.total_bytes; ++turn)
    done += load.replace(blocks[turn % load.live], load.bytes);
}

void come_and_go(Load& load, std::vector<Block>& blocks) {
  for (std::size_t done = 0; done < load.total_bytes;) {
    for (Block& block : blocks) done += load.replace(block, load.varied());
    for (Block& block : blocks) block.release();
  }
}

void grow_in_steps(Load& load, std::vector<Block>& blocks) {
  for (std::size_t done = 0, turn = 0; done < load.total_bytes; ++turn) {
    Block& block = blocks[turn % load.live];
    const std::size_t wanted = load.varied();
    load.replace(block, wanted / 4);
    for (std::size_t quarters = 2; quarters <= 4; ++quarters) {
      const std::size_t before = block.bytes();
      block.resize(wanted / 4 * quarters);
      touch(block, before);
    }
    done += wanted;
  }
}

}  // namespace
}  // namespace host_bench

int main(int count, char** arguments) {
  using namespace host_bench;
  if (count != 6) return 2;
  const auto number = [&](int which) { return static_cast<std::size_t>(std::strtoull(arguments[which], nullptr, 10)); };
  Load load{number(2) << 10, number(3), number(4) << 20, Random(number(5))};
  std::vector<Block> blocks(load.live);
  struct {
    std::string_view name;
    void (*run)(Load&, std::vector<Block>&);
  } const loads[] = {
      {"random", replace_at_random}, {"queue", replace_the_oldest}, {"phases", come_and_go}, {"grow", grow_in_steps}};
  for (const auto& [name, run] : loads)
    if (name == arguments[1]) run(load, blocks);
  for (Block& block : blocks) block.release();
  return 0;
}
