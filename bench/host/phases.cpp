// A program whose sizes change: each phase fills the same number of bytes with blocks of its own size, then frees all
// but every twentieth; those live to the end of the next phase. What can't be reused for the next size shows as peak
// memory. The blocks are linked through themselves, so that the workload keeps no memory besides.
#include "workload.hpp"

namespace host_bench {
namespace {

constexpr std::size_t kPhaseBytes = 24 << 20, kKeptOneIn = 20;
constexpr std::size_t kSizes[] = {32, 600, 48, 3000, 100, 9000, 28, 400, 1500, 80, 20'000, 64};
constexpr unsigned kRepeats = 3;

struct Linked {
  Linked* next;
  std::size_t bytes;
};

class List {
 public:
  void add(Linked* block) {
    ++count_;
    *end_ = block;
    end_ = &block->next;
    block->next = nullptr;
  }
  Linked* take() {
    --count_;
    Linked* block = first_;
    first_ = block->next;
    if (first_ == nullptr) end_ = &first_;
    return block;
  }
  /// A block that was given twice shortens the list.
  bool empty() const {
    require((first_ == nullptr) == (count_ == 0), "blocks are missing");
    return count_ == 0;
  }

 private:
  Linked* first_ = nullptr;
  Linked** end_ = &first_;
  std::size_t count_ = 0;
};

Linked* make(std::size_t bytes) {
  auto* block = static_cast<Linked*>(std::malloc(bytes));
  require(block != nullptr, "malloc returned null");
  block->bytes = bytes;
  std::memset(block + 1, static_cast<int>(bytes % 251), bytes - sizeof(Linked));
  return block;
}

void release(Linked* block) {
  const std::size_t bytes = block->bytes;
  const auto* content = reinterpret_cast<const unsigned char*>(block + 1);
  require(content[0] == bytes % 251 && content[bytes - sizeof(Linked) - 1] == bytes % 251, "a block changed");
  std::free(block);
}

void run(const Setting& setting) {
  Random random(setting.seed);
  List kept, filled;
  for (unsigned repeat = 0; repeat < kRepeats; ++repeat) {
    for (std::size_t bytes : kSizes) {
      for (std::size_t used = 0; used < kPhaseBytes; used += bytes)
        filled.add(make(random.between(bytes - bytes / 8, bytes)));
      while (!kept.empty()) release(kept.take());
      while (!filled.empty()) {
        Linked* block = filled.take();
        if (random.below(kKeptOneIn) == 0)
          kept.add(block);
        else
          release(block);
      }
    }
  }
  while (!kept.empty()) release(kept.take());
}

const Workload phases("phases", run);

}  // namespace
}  // namespace host_bench
