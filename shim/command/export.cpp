// `cistern export`: a report in the format of another tool.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "shim/command/commands.hpp"
#include "shim/command/input.hpp"
#include "shim/command/output.hpp"
#include "stats/formats/csv.hpp"
#include "stats/formats/folded.hpp"
#include "stats/formats/gzip.hpp"
#include "stats/formats/heaptrack.hpp"
#include "stats/formats/memory_viz.hpp"
#include "stats/formats/parquet.hpp"
#include "stats/formats/perfetto.hpp"
#include "stats/formats/perfetto_archive.hpp"
#include "stats/formats/pprof.hpp"
#include "stats/formats/rmm.hpp"
#include "stats/formats/speedscope.hpp"

namespace cistern::command {
namespace {

using formats::Run;
using formats::Value;

struct Format {
  std::string (*write)(const Run&, Value);  // null: one of the others below is there
  const char* suffix;
  bool always_packed;  // others: where the file's name ends in .gz
  const char* opened_by;
  void (*write_recording)(const formats::Recording&, const Write&) = nullptr;
  // One process after another. Beside `write`: where the file's name is that of an archive.
  void (*write_each)(const std::vector<std::string>& paths, const Write&) = nullptr;
};

// A run has a folder of its own, as `cistern run` makes it.
std::string run_name(const std::string& report) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(report, error)) return {};
  return std::filesystem::weakly_canonical(report, error).parent_path().filename();
}

void write_parquet(const std::vector<std::string>& paths, const Write& write) {
  formats::Parquet table(write);
  for_each_report(paths, [&](const std::string& file) { table.add(run_name(file), read_reports({file})); });
  table.end();
}

bool is_archive(const std::string& name) { return name.ends_with(".tar") || name.ends_with(".tar.gz"); }

void write_perfetto_archive(const std::vector<std::string>& paths, const Write& write) {
  formats::PerfettoArchive archive(write);
  for_each_report(paths, [&](const std::string& file) { archive.add(read_reports({file})); });
  archive.end();
}

const std::map<std::string, Format> kFormats = {
    {"csv", {[](const Run& run, Value) { return formats::csv(run); }, ".csv", false, "a spreadsheet or a database"}},
    {"folded", {formats::folded, ".folded", false, "flamegraph.pl, speedscope.app, ui.perfetto.dev"}},
    {"heaptrack", {formats::heaptrack, ".heaptrack.gz", false, "heaptrack_gui, heaptrack_print"}},
    {"memory_viz",
     {nullptr, ".pickle", false, "docs.pytorch.org/memory_viz, python -m torch.cuda._memory_viz",
      [](const formats::Recording& recording, const Write& write) { write(formats::memory_viz(recording)); }}},
    {"parquet", {nullptr, ".parquet", false, "DuckDB, pandas, Polars, Spark", nullptr, write_parquet}},
    {"perfetto",
     {[](const Run& run, Value) { return formats::perfetto(run); }, ".pftrace", false, "ui.perfetto.dev", nullptr,
      write_perfetto_archive}},
    {"pprof", {formats::pprof, ".pb.gz", true, "go tool pprof"}},
    {"rmm", {nullptr, ".csv", false, "RMM's replay, a data frame", formats::rmm}},
    {"speedscope", {formats::speedscope, ".speedscope.json", false, "speedscope.app"}},
};
const std::map<std::string, Value> kSamples = {{"live", Value::live}, {"lost", Value::lost}, {"peak", Value::peak}};

struct Arguments {
  std::vector<std::string> paths;
  std::string format, out;
  Value sample = Value::live;
};

void write_to_standard_output(const std::function<void(const Write&)>& produce) {
  bool complete = true;
  produce([&](std::string_view part) { complete &= std::fwrite(part.data(), 1, part.size(), stdout) == part.size(); });
  if (std::fflush(stdout) || !complete) throw BadInput(std::string("standard output: ") + std::strerror(errno));
}

// "reports/" and "app.json" become "reports.pb.gz" and "app.pb.gz", in the folder where the command runs.
std::string name_beside(const std::string& input, const char* suffix) {
  const std::filesystem::path path = std::filesystem::weakly_canonical(input);
  return (path.extension() == ".json" || path.extension() == ".rec" ? path.stem() : path.filename()).string() + suffix;
}

void produce_from_recording(const Format& format, const Arguments& arguments, const Write& write) {
  for (const std::string& path : arguments.paths)
    if (arguments.paths.size() > 1 || !is_recording(path))
      throw BadInput(path + ": --to " + arguments.format + " is made of one recording");
  with_recording(arguments.paths.front(),
                 [&](const formats::Recording& recording) { format.write_recording(recording, write); });
}

void produce(const Format& format, const Arguments& arguments, const Write& write) {
  if (format.write_recording) return produce_from_recording(format, arguments, write);
  try {
    if (format.write_each && (!format.write || is_archive(arguments.out)))
      return format.write_each(arguments.paths, write);
    write(format.write(read_reports(arguments.paths), arguments.sample));
  } catch (const formats::BadReport& error) {
    throw BadInput(arguments.paths.front() + " " + error.what());
  }
}

void run_export(Arguments arguments) {
  const Format& format = kFormats.at(arguments.format);
  const bool to_standard_output = arguments.out.empty() && !isatty(STDOUT_FILENO);
  const bool choose_name = arguments.out.empty() && !to_standard_output;
  if (choose_name) arguments.out = name_beside(arguments.paths.front(), format.suffix);
  std::function<void(const Write&)> parts = [&](const Write& write) { produce(format, arguments, write); };
  if (format.always_packed || arguments.out.ends_with(".gz"))
    parts = [parts](const Write& write) {
      std::string bytes;
      parts([&](std::string_view part) { bytes += part; });
      write(formats::gzip(bytes));
    };
  if (to_standard_output) return write_to_standard_output(parts);
  write_file(arguments.out, parts);
  if (choose_name) say(arguments.out + ", for " + format.opened_by);
}

}  // namespace

void add_export(CLI::App& app, Outcome&) {
  CLI::App* const command = app.add_subcommand("export", "write a report in the format of another tool");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("FILE", arguments->paths, "JSON reports, recordings, or folders of them")->required();
  command->add_option("--to", arguments->format, "the format")->required()->check(CLI::IsMember(&kFormats));
  command->add_option("-o,--output", arguments->out, "the file to write; standard output, unless that is a terminal");
  command
      ->add_option("--sample", arguments->sample,
                   "the memory that folded and heaptrack have, and that pprof and speedscope show first: what is live "
                   "at the end, lost, or was live at the peak")
      ->transform(CLI::CheckedTransformer(&kSamples))
      ->option_text("live|lost|peak");
  command->callback([arguments] { run_export(std::move(*arguments)); });
}

}  // namespace cistern::command
