// A Run as pictures of stacks show it: samples, each with its whole stack and what was live, lost and live at the peak.
//
// Outermost in each stack is the kind of memory, and around it, where the Run has several processes, the process.
// Memory without a call site has a frame that says so: the samples' sums are those of the reports.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stats/formats/model.hpp"

namespace cistern::formats {

enum class Value { live, lost, peak };
constexpr Value kValues[] = {Value::live, Value::lost, Value::peak};

struct Amount {
  Count blocks = 0, bytes = 0;
};

struct Sample {
  const Report* report;
  const LiveRow* row;  // null: the sample is not one row of `leaks`
  std::string kind;
  Stack stack;                             // numbers of Samples::frames, innermost first
  std::size_t site_frames;                 // the length of the call site's stack; the kind and the process follow
  Amount live = {}, lost = {}, peak = {};  // `live` is at the end
  const Amount& at(Value value) const;
};

struct Samples {
  std::vector<Frame> frames;  // Each has a function. Texts are UTF-8 without control characters.
  std::vector<Sample> list;
  std::vector<std::string> kinds;
  FrameId no_site = 0, other_sites = 0;  // there if a recording needs them

  // The stack of a call site of a recording's moments.
  Stack stack_of(const Run& run, const MomentSite& site) const {
    if (site.frames) return run.stacks[site.frames];
    return {site.others ? other_sites : no_site};
  }

  // Calls `call` with the frames at one address, innermost first: the calls that were inlined, and the call that they
  // were inlined into.
  template <class Call>
  void visit_places(const Sample& sample, Call&& call) const {
    const std::span<const FrameId> stack = sample.stack;
    for (std::size_t first = 0, end; first < stack.size(); first = end) {
      end = first + 1;
      while (end < sample.site_frames && frames[stack[end - 1]].inlined) ++end;
      call(stack.subspan(first, end - first));
    }
  }
};

Samples samples_of(const Run& run);

// "app", and "rank 3: app".
std::string program_name(const Process& process);
std::string process_name(const Process& process);
std::string rank_or_pid(const Process& process);  // "rank 3", "pid 4711"

// As the text report names it.
std::string function_name(const Frame& frame);

// Bytes that are not UTF-8 become U+FFFD, and control characters become spaces.
std::string printable(std::string_view text);

std::string_view file_name(std::string_view path);

// For formats whose numbers have a sign.
constexpr Count signed_count(Count value) { return value < Count{1} << 63 ? value : (Count{1} << 63) - 1; }

}  // namespace cistern::formats
