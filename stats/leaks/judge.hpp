// Finds the live blocks that can still be reached. It follows pointers from the roots through the blocks of the host
// pool and through other memory that the processor can read. The memory must not change meanwhile: it belongs to a
// child that shares none with the program, or to a test.
//
// In passes, each finding what those before it did not:
//   1 from the program's roots, by pointers to the begins of blocks               reachable
//   2 from there, interior pointers too; then words that are not
//     aligned, and addresses just behind a block that no block begins at          possibly lost
//   3 from drivers' memory, and through what drivers handed out                   held only by the driver
//   4 from each block that is left, in the order of addresses                     lost, or indirectly lost
// Objects that a driver handed out (a context, a queue, a kernel) are blocks of the driver whose address the program
// has. They are not read before the third pass: through the driver's tables they lead to everything.
//
// Memory: a byte for each block and 1 MiB. Hidden pointers (compressed, tagged in their upper bits, on a disk) are not
// found.
//
// Room: which live memory can still be reached.
// May include: pool/base, pool/heap, stats.
#pragma once
#include <span>

#include "pool/heap/picture.hpp"
#include "stats/leaks/python_integers.hpp"
#include "stats/standing.hpp"

namespace cistern::leaks {

// Live memory that is not the host pool's, or a handle (of one byte: the word must be the handle itself).
struct Target {
  std::uintptr_t first;
  std::uint64_t bytes;
  bool is_readable;  // by the processor: pointers in it are followed
  Standing standing = Standing::none;
};

// How to ask which pages hold anything; of the judge's own memory all do.
enum class Residency : std::uint8_t { of_pages, of_file, of_judge };

struct Root {
  std::uintptr_t first, end;
  bool of_driver;
  Residency residency;
};
// The next part of the range that may hold something; false: none. There may be any amount of memory that was never
// touched.
using NextResident = bool (*)(std::uintptr_t first, std::uintptr_t end, Residency residency, std::uintptr_t& there,
                              std::uintptr_t& there_end);

// Addresses of constant data and code: a word that points there may be the pointer to a table of virtual functions.
struct Constants {
  std::uintptr_t first, end;
};

struct World {
  const host_pool::Picture* heap;
  std::span<Target> targets;  // sorted by `first`
  std::span<const Root> roots;
  std::span<const std::uintptr_t> handed_out;    // sorted: what drivers handed out, of whatever type
  std::span<const std::uintptr_t> driver_words;  // the start of drivers' objects
  std::span<const Constants> constants;          // sorted
  NextResident next_resident;                    // null: all is there
  PythonIntegers integers = {};
  std::span<const std::uintptr_t> in_use = {};  // blocks of which only what is a root is looked at: stacks
};

class Judge {
 public:
  static std::size_t scratch_bytes();
  // `marks`: a byte for each number of the picture, zero; `scratch`: of that size, zero.
  // `is_over()`: there is no time left.
  Judge(const World& world, std::uint8_t* marks, void* scratch, bool (*is_over)());

  // False: no time left; then nothing is known.
  bool run();
  std::uint64_t bytes_read() const { return bytes_read_; }

 private:
  struct Scratch;

  void prepare();
  bool has_part(std::uintptr_t word) const;
  bool scan_roots(bool of_driver);
  bool scan(std::uintptr_t first, std::uintptr_t end, Residency residency);
  bool scan_block(std::uintptr_t first, std::uintptr_t end);
  bool read(std::uintptr_t first, std::uintptr_t end);
  void look_at(std::uintptr_t word);
  void look_for_integer(std::uintptr_t at, std::uintptr_t first, std::uintptr_t end);
  bool look_closely();
  bool scan_closely(std::uintptr_t first, std::uintptr_t end, Residency residency);
  void read_closely(std::uintptr_t first, std::uintptr_t end);
  void look_closely_at(std::uintptr_t word);
  void found_end_of_target(std::uintptr_t word);
  void put_candidate(std::uintptr_t word);
  void take_candidate();
  void found_in_heap(std::uintptr_t word);
  void found_target(std::uintptr_t word);
  bool leads_to_begin(const host_pool::PictureBlock& block, std::uintptr_t word) const;
  bool is_constant(std::uintptr_t word) const;
  bool is_drivers(const host_pool::PictureBlock& block) const;
  void reach(const host_pool::PictureBlock& block, std::uint8_t& mark);
  void push(std::uintptr_t first, std::uintptr_t end);
  bool follow();
  bool follow_pending();
  bool follow_interior();
  bool open_what_drivers_handed_out();
  bool judge_the_rest();

  const World world_;
  std::uint8_t* const marks_;
  Scratch& scratch_;
  bool (*const is_over_)();
  Standing pass_ = Standing::reachable;
  std::uintptr_t head_ = 0;  // in the fourth pass: the block that is followed
  std::uintptr_t heap_first_, heap_bytes_;
  std::uint64_t bytes_read_ = 0, next_look_ = 0;
  bool makes_room_ = false;
};

// The class in a mark as run() leaves it.
inline Standing standing_of(std::uint8_t mark) { return static_cast<Standing>(mark & 7); }

}  // namespace cistern::leaks
