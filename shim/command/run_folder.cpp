// See run_folder.hpp.
#include "shim/command/run_folder.hpp"

#include <cctype>
#include <cstring>

#include "shim/command/output.hpp"
#include "shim/command/ranks.hpp"

namespace cistern::command {
namespace {

namespace fs = std::filesystem;

std::string folder_name(const std::string& program, pid_t pid) {
  const std::string name = printable_name(fs::path(program).filename());
  return "cistern-" + name + "-" + (in_ranks() ? printable_name(job_name()) : std::to_string(pid));
}

bool has_reports(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".json" || at->path().extension() == ".rec") return true;
  return false;
}

// Empty: it can be used.
std::string make(const fs::path& path, RunFolder& folder) {
  std::error_code error;
  const fs::path whole = fs::absolute(path, error);
  if (error) return error.message();
  const bool is_new = fs::create_directories(whole, error);
  if (error) return error.message();
  if (!is_new && !in_ranks() && has_reports(whole)) return "it has reports of another run";
  folder = {whole, is_new};
  return {};
}

std::string path_in(const RunFolder& folder, const char* suffix) {
  std::string path;
  for (const char c : folder.path.native()) path.append(c == '%' ? 2 : 1, c);
  return path + (in_ranks() ? "/rank-%r-%h-%p" : "/%p") + suffix;
}

}  // namespace

std::string printable_name(std::string name) {
  constexpr std::size_t kLengthMax = 100;
  if (name.size() > kLengthMax) name.resize(kLengthMax);
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && !std::strchr("._+-", c)) c = '_';
  return name;
}

RunFolder make_run_folder(const std::string& wanted, const std::string& program, pid_t pid) {
  RunFolder folder;
  const fs::path first = wanted.empty() ? fs::path(folder_name(program, pid)) : fs::path(wanted);
  const std::string why_not = make(first, folder);
  if (why_not.empty()) return folder;
  std::error_code error;
  const fs::path temporary = fs::temp_directory_path(error);
  const fs::path second = (error ? fs::path("/tmp") : temporary) / folder_name(program, pid);
  const std::string why_not_there = make(second, folder);
  say(first.native() + ": " + why_not + "; " +
      (why_not_there.empty() ? "the reports go to " + second.native()
                             : "there will be no reports (" + second.native() + ": " + why_not_there + ")"));
  return folder;
}

void remove_unused(const RunFolder& folder) {
  std::error_code error;
  if (folder.is_new) fs::remove(folder.path, error);
}

std::string report_path_in(const RunFolder& folder) { return path_in(folder, ".json"); }

std::string recording_path_in(const RunFolder& folder) { return path_in(folder, ".rec"); }

}  // namespace cistern::command
