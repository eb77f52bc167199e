// See text_parts.hpp.
#include "stats/report/text_parts.hpp"

#include <algorithm>

#include "pool/base/path.hpp"
#include "stats/format.hpp"
#include "stats/scripts.hpp"

namespace cistern {
namespace {

// "libfoo.so+0x1a2b": what the offline tools need where names are missing.
String place_in_module(const FrameFigures& frame) {
  const bool known = !frame.module.empty();
  StringSink number;
  number.print("{:#x}", known ? frame.offset : frame.address);
  if (!known) return number.text() + " (generated code)";
  return printable(String(basename_of(frame.module)), kPathBytesShown) + "+" + number.text();
}

void write_frame(const FrameFigures& frame, int width, Sink& sink) {
  if (frame.function.empty() && frame.file.empty()) return sink.print("     {}\n", place_in_module(frame));
  String place = place_in_module(frame);
  if (!frame.file.empty()) place = printable(frame.python ? short_file(frame.file) : frame.file, kPathBytesShown);
  if (!frame.file.empty() && frame.line) place += ":" + decimal(frame.line, 0);
  const String function = frame.function.empty() ? String("?") : printable(frame.function, kPathBytesShown);
  sink.print("     {:<{}}  {}{}\n", function, width, place, frame.inlined ? "  (inlined)" : "");
}

// The frames behind main, or behind a thread's function, are the C library's and say nothing.
std::size_t frames_to_main(const Vector<FrameFigures>& frames) {
  for (std::size_t i = 0; i < frames.size(); ++i)
    if (frames[i].function == "main" && !frames[i].python) return i + 1;
  const auto is_start = [](const FrameFigures& frame) {
    return frame.function.empty() && basename_of(frame.module).starts_with("libc.so.");
  };
  std::size_t telling = frames.size();
  while (telling > 1 && is_start(frames[telling - 1])) --telling;
  return telling;
}

// The first that lies in main's module, or is a script's: however deep in libraries, there the user's own code begins.
// Past the end: none.
std::size_t first_of_program(const Vector<FrameFigures>& frames) {
  if (frames.empty()) return 0;
  const FrameFigures& last = frames.back();
  std::size_t first = 0;
  if (std::any_of(frames.begin(), frames.end(), [](const FrameFigures& frame) { return frame.python; })) {
    while (first < frames.size() && !(frames[first].python && !is_installed(frames[first].file))) ++first;
    return first;
  }
  if (last.function != "main") return frames.size();
  while (frames[first].module != last.module) ++first;
  return first;
}

// One line for all native code, which names what Python called.
void write_folded(const Vector<FrameFigures>& frames, Sink& sink) {
  const auto count =
      std::count_if(frames.begin(), frames.end(), [](const FrameFigures& frame) { return frame.folded; });
  if (!count || !frames.front().folded) return;
  const FrameFigures& innermost = frames.front();
  sink.print("     through {}{}\n", place_in_module(innermost),
             count > 1 ? " and " + counted(static_cast<std::uint64_t>(count - 1), "native frame") : String());
}

// A frame of the machinery of import, which Python leaves out of tracebacks as well.
bool is_importing(const FrameFigures& frame) { return frame.python && frame.file.starts_with("<frozen importlib."); }

Vector<FrameFigures> unfolded(const Vector<FrameFigures>& frames) {
  Vector<FrameFigures> shown;
  const bool any_else = std::any_of(frames.begin(), frames.end(),
                                    [](const FrameFigures& frame) { return frame.python && !is_importing(frame); });
  for (const FrameFigures& frame : frames)
    if (!frame.folded && !(any_else && is_importing(frame))) shown.push_back(frame);
  return shown;
}

// The part of a stack that is shown: its inner frames, and further out the program's first frame, if that is not among
// them.
struct Excerpt {
  Vector<FrameFigures> inner, of_program;
  std::size_t between = 0, behind = 0;  // frames that are left out

  Excerpt(const Vector<FrameFigures>& all, std::size_t frames_max) : inner(unfolded(all)) {
    inner.resize(frames_to_main(inner));
    const std::size_t count = inner.size(), shown = std::min(count, frames_max), first = first_of_program(inner);
    behind = count - shown;
    if (first >= shown && first != count) {
      of_program.push_back(inner[first]);
      between = first - shown;
      behind = count - first - 1;
    }
    inner.resize(shown);
  }
};

}  // namespace

String seconds(double value) { return decimal(value, value < 10 ? 2 : 1) + " s"; }
String duration(double value) {
  return value < 0.1 ? decimal(value * 1000, value < 0.01 ? 2 : 1) + " ms" : seconds(value);
}
String percent(double ratio) { return decimal(ratio * 100, 1) + " %"; }

String blocks_and_bytes(std::uint64_t blocks, std::uint64_t bytes) {
  return blocks ? human_bytes(bytes) + " in " + grouped(blocks) : String("-");
}

String bytes_in_blocks(std::uint64_t blocks, std::uint64_t bytes) {
  return human_bytes(bytes) + " in " + counted(blocks, "block");
}

String hit_rate(std::uint64_t hits, std::uint64_t allocations) {
  if (!allocations) return "-";
  return decimal(100 * static_cast<double>(std::min(hits, allocations)) / static_cast<double>(allocations), 1);
}

String shown_frames(const Vector<FrameFigures>& all, std::size_t frames_max) {
  const Excerpt excerpt(all, frames_max);
  StringSink text;
  for (const FrameFigures& frame : excerpt.inner) write_frame(frame, 0, text);
  for (const FrameFigures& frame : excerpt.of_program) write_frame(frame, 0, text);
  write_folded(all, text);
  return text.text();
}

void write_frames(const Vector<FrameFigures>& all, std::size_t frames_max, Sink& sink, std::size_t stacks) {
  const Excerpt excerpt(all, frames_max);
  std::size_t width = 12;
  for (const FrameFigures& frame : excerpt.inner)
    width = std::max(width, std::min<std::size_t>(frame.function.size(), 40));
  for (const FrameFigures& frame : excerpt.inner) write_frame(frame, static_cast<int>(width), sink);
  const auto leave_out = [&](std::size_t count) {
    if (count && frames_max == kFramesFull && stacks == 1) sink.print("     ... {} more\n", count);
  };
  leave_out(excerpt.between);
  for (const FrameFigures& frame : excerpt.of_program) write_frame(frame, static_cast<int>(width), sink);
  leave_out(excerpt.behind);
  if (stacks > 1) sink.print("     ... {}, which differ only in frames that are not shown\n", counted(stacks, "stack"));
  write_folded(all, sink);
}

}  // namespace cistern
