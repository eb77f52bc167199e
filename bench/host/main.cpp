// Runs one workload by its name: host_workloads NAME [THREADS [SEED]]; without arguments it prints all names.
#include "workload.hpp"

int main(int count, char** arguments) {
  using host_bench::Workload;
  if (count < 2) {
    for (const Workload* each = Workload::first(); each != nullptr; each = each->next()) std::puts(each->name());
    return 0;
  }
  const auto threads = static_cast<unsigned>(count > 2 ? std::atoi(arguments[2]) : 2);
  const std::uint64_t seed = count > 3 ? std::strtoull(arguments[3], nullptr, 10) : 1;
  host_bench::require(threads > 0, "THREADS is at least 1");
  for (const Workload* each = Workload::first(); each != nullptr; each = each->next()) {
    if (std::strcmp(each->name(), arguments[1]) != 0) continue;
    each->run({.threads = threads, .seed = seed});
    return 0;
  }
  std::fprintf(stderr, "host_workloads: no workload %s\n", arguments[1]);
  return 2;
}
