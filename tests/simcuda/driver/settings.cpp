// simcuda_set, simcuda_get and the environment.
#include "tests/simcuda/driver/settings.hpp"

#include <cctype>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/simcuda.h"

namespace simcuda {
namespace {

std::atomic<long long>* find_setting(const char* name) {
#define SIMCUDA_FIND(field, value, meaning) \
  if (!std::strcmp(name, #field)) return &settings.field;
  SIMCUDA_SETTINGS(SIMCUDA_FIND)
#undef SIMCUDA_FIND
  return nullptr;
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

}  // namespace

void read_settings_from_environment() {
#define SIMCUDA_READ(name, value, meaning) read_one(#name, settings.name);
  SIMCUDA_SETTINGS(SIMCUDA_READ)
#undef SIMCUDA_READ
}

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
