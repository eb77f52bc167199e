// Inlined calls of programs built with `-gsplit-dwarf`. Such a program has the lines of its code, which libbacktrace
// reads, and skeletons of its units. A skeleton says where the unit's code lies. It names the file beside the program
// (.dwo), or the unit in the package of such files (PROGRAM.dwp), that has the functions. This code reads those.
#pragma once
#include <optional>

#include "stats/dwarf_unit.hpp"

namespace cistern {

// A function whose code holds an address: mangled if the compiler wrote so. Where it was inlined, its caller's line.
struct HoldingFunction {
  String symbol;
  String call_file;
  unsigned call_line;
};

// The split units of one program or library. Reads files; not for use by several threads at the same time.
class SplitUnits {
 public:
  // `program`: its file, which may be opened as `opened` only (/proc/self/exe).
  SplitUnits(const String& opened, const String& program);

  // The innermost first; `address` is one of the program's file. Empty where no split unit has it, or the file with
  // that is gone, damaged, or of another build.
  Vector<HoldingFunction> functions_at(std::uint64_t address);

 private:
  struct Skeleton {
    std::uint64_t at;  // in .debug_info of the program
    std::uint64_t low, high;
  };
  // One function's entry about its code; there are several if the code lies in several places.
  struct Scope {
    std::uint64_t low, high;
    std::uint64_t entry;
    bool is_inlined;
  };
  // One that was asked for.
  struct Split {
    explicit Split(std::uint64_t skeleton) : skeleton_at(skeleton) {}
    const std::uint64_t skeleton_at;
    std::optional<DebugFile> file;  // its own; none where it is in the package
    dwarf::Unit unit;
    dwarf::Abbreviations abbreviations;
    Growing<Scope> scopes{1 << 20};
    std::uint64_t lines_at = 0;
    String directory;
  };
  // A skeleton's facts about the unit that was split from it.
  struct Origin {
    dwarf::Unit unit;
    String directory, file;
    std::uint64_t lines_at = 0;
  };

  void read_skeletons();
  void note_skeleton(const dwarf::Unit& unit);
  std::optional<Origin> read_skeleton(dwarf::Unit& unit, dwarf::CodeExtent& extent);
  Split* split_of(std::uint64_t address);
  bool find_in_package(Split& split, const Origin& origin);
  bool find_in_file(Split& split, const Origin& origin);
  bool take(Split& split, const Origin& origin, const dwarf::Sections& sections, std::uint64_t at);
  void read_scopes(Split& split);
  String symbol_of(const Split& split, std::uint64_t entry, unsigned depth) const;
  HoldingFunction function_of(const Split& split, const Scope& scope);
  DebugFile* package();

  DebugFile program_file_;
  const String program_;
  dwarf::Sections sections_;
  Growing<Skeleton> skeletons_{1 << 20};
  bool are_skeletons_read_ = false;
  dwarf::Abbreviations abbreviations_;
  Growing<dwarf::CodeRange> ranges_{1 << 20};
  std::optional<DebugFile> package_;
  Deque<Split> splits_;
};

}  // namespace cistern
