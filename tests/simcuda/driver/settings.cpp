// simcuda_set, simcuda_get and the environment.
#include "tests/simcuda/driver/settings.hpp"

#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sstream>
#include <string>
#include <unordered_map>

#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/proc_address.hpp"
#include "tests/simcuda/simcuda.h"

namespace simcuda {
namespace {

// The setting of one entry point, named as "fail_at:cuMemMap".
std::atomic<long long>* find_setting_of_call(const std::string& name) {
  const size_t colon = name.find(':');
  CallSettings* const of_call = colon == name.npos ? nullptr : settings_of_call(name.substr(colon + 1));
  if (!of_call) return nullptr;
#define SIMCUDA_FIND(field, meaning) \
  if (name.substr(0, colon) == #field) return &of_call->field;
  SIMCUDA_CALL_SETTINGS(SIMCUDA_FIND)
#undef SIMCUDA_FIND
  return nullptr;
}

std::atomic<long long>* find_setting(const char* name) {
#define SIMCUDA_FIND(field, value, meaning) \
  if (!std::strcmp(name, #field)) return &settings.field;
  SIMCUDA_SETTINGS(SIMCUDA_FIND)
#undef SIMCUDA_FIND
  return find_setting_of_call(name);
}

std::atomic<long long>* find_counter(const char* name) {
#define SIMCUDA_FIND(field, meaning) \
  if (!std::strcmp(name, #field)) return &counters.field;
  SIMCUDA_COUNTERS(SIMCUDA_FIND)
#undef SIMCUDA_FIND
  return nullptr;
}

void read_one(const char* name, std::atomic<long long>& setting) {
  std::string variable = "SIMCUDA_";
  for (const char* letter = name; *letter; ++letter) variable += static_cast<char>(std::toupper(*letter));
  if (const char* text = std::getenv(variable.c_str())) setting = std::strtoll(text, nullptr, 0);
}

// NAME:ENTRY_POINT=VALUE, separated by commas.
void read_settings_of_calls(const std::string& text) {
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    const size_t sign = item.find('=');
    std::atomic<long long>* const setting = find_setting_of_call(item.substr(0, sign));
    if (setting && sign != item.npos)
      *setting = std::strtoll(item.c_str() + sign + 1, nullptr, 0);
    else
      std::fprintf(stderr, "simcuda: SIMCUDA_EACH: no such setting: %s\n", item.c_str());
  }
}

}  // namespace

CallSettings* settings_of_call(const std::string& entry_point) {
  static std::mutex& lock = *new std::mutex;
  static auto& all = *new std::unordered_map<std::string, CallSettings>;
  if (!is_entry_point(entry_point.c_str())) return nullptr;
  const std::lock_guard<std::mutex> guard(lock);
  return &all[entry_point];
}

void read_settings_from_environment() {
#define SIMCUDA_READ(name, value, meaning) read_one(#name, settings.name);
  SIMCUDA_SETTINGS(SIMCUDA_READ)
#undef SIMCUDA_READ
  if (const char* text = std::getenv("SIMCUDA_EACH")) read_settings_of_calls(text);
}

void read_setting_from_environment(const char* name) { read_one(name, *find_setting(name)); }

void busy_wait(long long nanoseconds) {
  if (nanoseconds <= 0) return;
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(nanoseconds);
  while (std::chrono::steady_clock::now() < end) {
  }
}

}  // namespace simcuda

extern "C" int simcuda_set(const char* name, long long value) {
  std::atomic<long long>* setting = simcuda::find_setting(name);
  if (!setting) return -1;
  *setting = value;
  return 0;
}

extern "C" long long simcuda_get(const char* name) {
  if (!std::strncmp(name, "calls:", 6)) return simcuda::calls_of(name + 6);
  if (const auto* counter = simcuda::find_counter(name)) return *counter;
  if (const auto* setting = simcuda::find_setting(name)) return *setting;
  return -1;
}
