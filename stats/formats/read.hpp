// The JSON report of a process, read into a Run. Nothing in the text is trusted: what is not as the contract has it is
// one error, and the Run stays as it was.
#pragma once
#include <stdexcept>
#include <string_view>
#include <unordered_map>

#include "stats/formats/model.hpp"

namespace cistern::formats {

// Why a text is no report that can be shown, as the end of a line that begins with the file's name.
struct BadReport : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class RunReader {
 public:
  // Throws BadReport.
  void add(std::string_view json);
  void add(Report&& report) { run_.reports.push_back(std::move(report)); }
  const Run& run() const { return run_; }
  Run take() { return std::move(run_); }

  // The id of a stack with these frames; for those who read rows.
  StackId stack_of(const std::vector<Frame>& frames);

 private:
  struct Hash {
    std::size_t operator()(const Frame& frame) const;
    std::size_t operator()(const Stack& stack) const;
  };
  Run run_;
  std::unordered_map<Frame, FrameId, Hash> frame_ids_;
  std::unordered_map<Stack, StackId, Hash> stack_ids_ = {{Stack{}, 0}};
};

}  // namespace cistern::formats
