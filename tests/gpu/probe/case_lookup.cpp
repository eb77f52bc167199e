// What cuGetProcAddress answers: the odd names, versions and flags, and every look-up that NVIDIA's runtime 13 makes
// (driver-lookups.txt beside the probe), with the exported symbol that each pointer turns out to be.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "driver.hpp"
#include "probe.hpp"

namespace probe {
namespace {

using GetProcAddress = decltype(Driver::cuGetProcAddress);

struct Lookup {
  CUresult result;
  void* pointer;
  CUdriverProcAddressQueryResult status;
};

Lookup look_up(GetProcAddress function, const char* name, int version, cuuint64_t flags) {
  // A value that no answer has, so that "not written" shows.
  Lookup made{CUDA_SUCCESS, &made, static_cast<CUdriverProcAddressQueryResult>(99)};
  made.result = function(name, &made.pointer, version, flags, &made.status);
  if (made.pointer == &made) made.pointer = reinterpret_cast<void*>(1);
  return made;
}

std::string status_name(CUdriverProcAddressQueryResult status) {
  switch (static_cast<int>(status)) {
    case 0:
      return "found";
    case 1:
      return "symbol_not_found";
    case 2:
      return "version_too_low";
    case 99:
      return "unwritten";
    default:
      return std::to_string(static_cast<int>(status));
  }
}

std::string text_of(const Lookup& made) {
  const char* pointer = made.pointer == nullptr                      ? "null"
                        : made.pointer == reinterpret_cast<void*>(1) ? "unwritten"
                                                                     : "pointer";
  return name_of(made.result) + " " + pointer + " " + status_name(made.status);
}

// Every exported name that one asked for could stand for.
std::vector<std::string> candidates(const std::string& name) {
  std::vector<std::string> all;
  for (const char* version : {"", "_v2", "_v3", "_v4"}) {
    for (const char* stream : {"", "_ptsz", "_ptds"}) all.push_back(name + version + stream);
  }
  return all;
}

std::string export_with_address(const std::string& name, void* address) {
  for (const std::string& candidate : candidates(name)) {
    if (dlsym(driver().library, candidate.c_str()) == address) return candidate;
  }
  return "";
}

struct Row {
  std::string name;
  int version;
  unsigned long long flags;
};

std::vector<Row> rows() {
  const char* given = std::getenv("PROBE_LOOKUPS");
  const std::string path = given != nullptr ? given : own_folder() + "/driver-lookups.txt";
  FILE* file = std::fopen(path.c_str(), "r");
  std::vector<Row> all;
  if (file == nullptr) {
    std::fprintf(stderr, "probe: no list of look-ups at %s\n", path.c_str());
    return all;
  }
  char line[512];
  while (std::fgets(line, sizeof line, file) != nullptr) {
    const char* version = std::strstr(line, "v=");
    const char* flags = std::strstr(line, "f=");
    if (version == nullptr || flags == nullptr) continue;
    std::string name(line, static_cast<size_t>(version - line));
    while (!name.empty() && name.back() == ' ') name.pop_back();
    all.push_back({name, std::atoi(version + 2), std::strtoull(flags + 2, nullptr, 10)});
  }
  std::fclose(file);
  return all;
}

void run_rows() {
  PROBE_MUST(driver().cuInit(0));
  const auto ask = driver().cuGetProcAddress;
  const auto asked_again =
      reinterpret_cast<GetProcAddress>(look_up(ask, "cuGetProcAddress", 12000, CU_GET_PROC_ADDRESS_DEFAULT).pointer);
  int total = 0, found = 0, exported = 0, repeated = 0, through_itself = 0;
  for (const Row& row : rows()) {
    const Lookup made = look_up(ask, row.name.c_str(), row.version, row.flags);
    const bool answered = made.result == CUDA_SUCCESS && made.pointer != nullptr;
    const std::string name = answered ? export_with_address(row.name, made.pointer) : "";
    ++total;
    found += answered;
    exported += !name.empty();
    repeated += look_up(ask, row.name.c_str(), row.version, row.flags).pointer == made.pointer;
    through_itself += asked_again != nullptr &&
                      look_up(asked_again, row.name.c_str(), row.version, row.flags).pointer == made.pointer;
    detail("lookup", {{"name", row.name},
                      {"version", std::to_string(row.version)},
                      {"flags", std::to_string(row.flags)},
                      {"answer", text_of(made)},
                      {"export", name}});
  }
  const auto of_total = [&](int count) {
    return count == total ? "all" : std::to_string(count) + " of " + std::to_string(total);
  };
  answer("lookup.rows", std::to_string(total));
  answer("lookup.rows_found", of_total(found));
  answer("lookup.found_rows_that_are_exports", std::to_string(exported) + " of " + std::to_string(found));
  answer("lookup.same_pointer_when_asked_twice", of_total(repeated));
  answer("lookup.same_pointer_through_the_answered_cuGetProcAddress", of_total(through_itself));
}

void run_odd() {
  PROBE_MUST(driver().cuInit(0));
  const auto ask = driver().cuGetProcAddress;
  const auto text = [&](const char* name, int version, cuuint64_t flags) {
    return text_of(look_up(ask, name, version, flags));
  };
  answer("lookup.empty_name", text("", 0, 0));
  answer("lookup.unknown_name", text("cuNoSuchFunction", 13000, 0));
  answer("lookup.version_0", text("cuMemAlloc", 0, 0));
  answer("lookup.version_below_the_first", text("cuMemAllocAsync", 11010, 0));
  answer("lookup.version_of_the_future", text("cuMemAlloc", 99990, 0));
  answer("lookup.suffixed_name", text("cuMemAlloc_v2", 13000, 0));
  answer("lookup.unknown_flags", text("cuMemAlloc", 13000, 64));
  const auto same = [&](const char* name, int first, cuuint64_t first_flags, int second, cuuint64_t second_flags) {
    return look_up(ask, name, first, first_flags).pointer == look_up(ask, name, second, second_flags).pointer
               ? "same"
               : "different";
  };
  answer("lookup.cuMemAlloc_2000_and_3020", same("cuMemAlloc", 2000, 0, 3020, 0));
  answer("lookup.cuMemAlloc_3020_and_13000", same("cuMemAlloc", 3020, 0, 13000, 0));
  answer("lookup.cuMemAlloc_legacy_and_per_thread", same("cuMemAlloc", 3020, 1, 3020, 2));
  answer("lookup.cuMemcpyHtoDAsync_default_and_legacy", same("cuMemcpyHtoDAsync", 3020, 0, 3020, 1));
  answer("lookup.cuMemcpyHtoDAsync_legacy_and_per_thread", same("cuMemcpyHtoDAsync", 3020, 1, 7000, 2));
  answer("lookup.cuGetProcAddress_11030_is_the_export",
         yes_or_no(look_up(ask, "cuGetProcAddress", 11030, 0).pointer == dlsym(driver().library, "cuGetProcAddress")));
  answer("lookup.cuGetProcAddress_12000_is_the_export", yes_or_no(look_up(ask, "cuGetProcAddress", 12000, 0).pointer ==
                                                                  dlsym(driver().library, "cuGetProcAddress_v2")));
}

std::string look_up_no_name() {
  PROBE_MUST(driver().cuInit(0));
  return text_of(look_up(driver().cuGetProcAddress, nullptr, 13000, 0));
}

std::string look_up_to_nowhere() {
  PROBE_MUST(driver().cuInit(0));
  CUdriverProcAddressQueryResult status{};
  return name_of(driver().cuGetProcAddress("cuMemAlloc", nullptr, 13000, 0, &status));
}

void run_null_status() {
  PROBE_MUST(driver().cuInit(0));
  void* pointer = nullptr;
  answer("lookup.null_status_argument", name_of(driver().cuGetProcAddress("cuMemAlloc", &pointer, 13000, 0, nullptr)));
}

void run_before_initialisation() {
  answer("lookup.before_cuInit", text_of(look_up(driver().cuGetProcAddress, "cuMemAlloc", 3020, 0)));
}

const Registration rows_case({"lookup_rows",
                              "every look-up of the runtime, and the exports that they answer",
                              20,
                              {{"lookup.rows", "440"},
                               {"lookup.rows_found", ""},
                               {"lookup.found_rows_that_are_exports", ""},
                               {"lookup.same_pointer_when_asked_twice", "all"},
                               {"lookup.same_pointer_through_the_answered_cuGetProcAddress", "all"}},
                              run_rows});
const Registration odd_case({"lookup_odd",
                             "odd names, versions and flags",
                             20,
                             {{"lookup.empty_name", "ok null symbol_not_found"},
                              {"lookup.unknown_name", "ok null symbol_not_found"},
                              {"lookup.version_0", "ok null version_too_low"},
                              {"lookup.version_below_the_first", "ok null version_too_low"},
                              {"lookup.version_of_the_future", "invalid_value unwritten unwritten"},
                              {"lookup.suffixed_name", "ok null symbol_not_found"},
                              {"lookup.unknown_flags", "invalid_value unwritten unwritten"},
                              {"lookup.cuMemAlloc_2000_and_3020", "different"},
                              {"lookup.cuMemAlloc_3020_and_13000", "same"},
                              {"lookup.cuMemAlloc_legacy_and_per_thread", "same"},
                              {"lookup.cuMemcpyHtoDAsync_default_and_legacy", "same"},
                              {"lookup.cuMemcpyHtoDAsync_legacy_and_per_thread", "different"},
                              {"lookup.cuGetProcAddress_11030_is_the_export", ""},
                              {"lookup.cuGetProcAddress_12000_is_the_export", ""}},
                             run_odd});
const Registration null_name_case({"lookup_null_name", "no name", 10, {{"lookup.null_name", "crashes"}}, [] {
                                     answer_of_child("lookup.null_name", look_up_no_name);
                                   }});
const Registration null_result_case(
    {"lookup_null_result", "nowhere to answer to", 10, {{"lookup.null_pointer_argument", "crashes"}}, [] {
       answer_of_child("lookup.null_pointer_argument", look_up_to_nowhere);
     }});
const Registration null_status_case(
    {"lookup_null_status", "no place for the status", 10, {{"lookup.null_status_argument", "ok"}}, run_null_status});
const Registration before_case({"lookup_before_initialisation",
                                "a look-up before cuInit",
                                10,
                                {{"lookup.before_cuInit", "ok pointer found"}},
                                run_before_initialisation});

}  // namespace
}  // namespace probe
