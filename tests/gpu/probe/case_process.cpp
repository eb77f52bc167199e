// Ends and beginnings: reset and destroyed contexts and the handles given after them, a forked child, calls while the
// process exits, calls before cuInit.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "driver.hpp"
#include "probe.hpp"

namespace probe {
namespace {

CUdeviceptr kept_block;

// The same few calls, wherever they are made.
void answer_calls(const std::string& prefix) {
  CUcontext current = nullptr;
  CUdeviceptr pointer = 0;
  size_t first = 0, second = 0;
  answer(prefix + "cuCtxGetCurrent", name_of(driver().cuCtxGetCurrent(&current)));
  answer(prefix + "cuMemAlloc", name_of(driver().cuMemAlloc(&pointer, 4096)));
  answer(prefix + "cuMemGetInfo", name_of(driver().cuMemGetInfo(&first, &second)));
  answer(prefix + "cuMemFree", name_of(driver().cuMemFree(kept_block)));
  answer(prefix + "cuCtxSynchronize", name_of(driver().cuCtxSynchronize()));
}

std::vector<Rule> call_rules(const std::string& prefix, const char* assumed) {
  std::vector<Rule> all;
  for (const char* call : {"cuCtxGetCurrent", "cuMemAlloc", "cuMemGetInfo", "cuMemFree", "cuCtxSynchronize"}) {
    all.push_back({prefix + call, assumed});
  }
  return all;
}

void run_before_initialisation() {
  driver();
  answer_calls("before_cuInit.");
}

void run_fork() {
  open_device();
  kept_block = allocate(4096);
  const pid_t child = fork();
  if (child == 0) {
    answer("fork.child.cuInit", name_of(driver().cuInit(0)));
    answer_calls("fork.child.");
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  answer("fork.child_ended", status == 0 ? "normally" : "status " + std::to_string(status));
  answer("fork.parent.cuMemFree", name_of(driver().cuMemFree(kept_block)));
}

std::vector<Rule> fork_rules() {
  std::vector<Rule> all = call_rules("fork.child.", "not_initialized");
  all.push_back({"fork.child.cuInit", "not_initialized"});
  all.push_back({"fork.child_ended", "normally"});
  all.push_back({"fork.parent.cuMemFree", "ok"});
  return all;
}

// Handlers run in the opposite order of their registration: the early one after all that the driver registered.
void run_exit_early() {
  std::atexit([] { answer_calls("exit.handler_before_the_driver_came."); });
  open_device();
  kept_block = allocate(4096);
}

void run_exit_late() {
  open_device();
  kept_block = allocate(4096);
  std::atexit([] { answer_calls("exit.handler_after_cuInit."); });
}

bool answer_in_destructor;

void run_exit_destructor() {
  open_device();
  kept_block = allocate(4096);
  answer_in_destructor = true;
}

__attribute__((destructor)) void at_the_programs_end() {
  if (answer_in_destructor) answer_calls("exit.destructor_of_the_program.");
}

std::string context_identity(CUcontext context) {
  unsigned long long identity = 0;
  const CUresult result = driver().cuCtxGetId(context, &identity);
  return result == CUDA_SUCCESS ? std::to_string(identity) : name_of(result);
}

void run_primary_reset() {
  const CUcontext before = open_device();
  const std::string identity = context_identity(before);
  const CUdeviceptr block = allocate(4096);
  void* const host_block = allocate_host(4096);
  answer("reset.cuDevicePrimaryCtxReset", name_of(driver().cuDevicePrimaryCtxReset(0)));
  CUcontext current = nullptr;
  const CUresult asked = driver().cuCtxGetCurrent(&current);
  answer("reset.current_afterwards", asked != CUDA_SUCCESS ? name_of(asked)
                                     : current == nullptr  ? "none"
                                     : current == before   ? "the old handle"
                                                           : "another");
  unsigned flags = 0;
  int active = -1;
  driver().cuDevicePrimaryCtxGetState(0, &flags, &active);
  answer("reset.active_afterwards", std::to_string(active));
  CUdeviceptr pointer = 0;
  answer("reset.cuMemAlloc_without_retain", name_of(driver().cuMemAlloc(&pointer, 4096)));
  CUcontext after = nullptr;
  PROBE_MUST(driver().cuDevicePrimaryCtxRetain(&after, 0));
  answer("reset.same_handle_again", yes_or_no(after == before));
  answer("reset.same_identity_again", yes_or_no(context_identity(after) == identity));
  PROBE_MUST(driver().cuCtxSetCurrent(after));
  answer("reset.free_of_an_old_block", name_of(driver().cuMemFree(block)));
  answer("reset.free_of_an_old_pinned_block", name_of(driver().cuMemFreeHost(host_block)));
  answer("reset.cuMemAlloc", name_of(driver().cuMemAlloc(&pointer, 4096)));
}

void run_primary_release() {
  const CUcontext before = open_device();
  const CUdeviceptr block = allocate(4096);
  answer("release.cuDevicePrimaryCtxRelease", name_of(driver().cuDevicePrimaryCtxRelease(0)));
  answer("release.twice", name_of(driver().cuDevicePrimaryCtxRelease(0)));
  CUcontext after = nullptr;
  PROBE_MUST(driver().cuDevicePrimaryCtxRetain(&after, 0));
  answer("release.same_handle_again", yes_or_no(after == before));
  PROBE_MUST(driver().cuCtxSetCurrent(after));
  answer("release.free_of_an_old_block", name_of(driver().cuMemFree(block)));
}

void run_destroy() {
  open_device();
  CUcontext first = nullptr, second = nullptr, current = nullptr;
  PROBE_MUST(driver().create_context(&first, 0, 0));
  const std::string identity = context_identity(first);
  PROBE_MUST(driver().cuCtxDestroy(first));
  PROBE_MUST(driver().cuCtxGetCurrent(&current));
  answer("destroy.current_afterwards_is_the_destroyed", yes_or_no(current == first));
  PROBE_MUST(driver().create_context(&second, 0, 0));
  answer("destroy.handle_given_again", yes_or_no(second == first));
  answer("destroy.identity_given_again", yes_or_no(context_identity(second) == identity));
  answer("destroy.primary_by_cuCtxDestroy", [] {
    CUcontext primary = nullptr;
    PROBE_MUST(driver().cuDevicePrimaryCtxRetain(&primary, 0));
    return name_of(driver().cuCtxDestroy(primary));
  }());
}

const Registration before_case({"before_initialisation", "calls before cuInit", 10,
                                call_rules("before_cuInit.", "not_initialized"), run_before_initialisation});
const Registration fork_case({"fork", "calls in a forked child", 20, fork_rules(), run_fork});
const Registration early_case({"exit_early", "calls in an exit handler older than the driver", 20,
                               call_rules("exit.handler_before_the_driver_came.", "deinitialized"), run_exit_early});
const Registration late_case({"exit_late", "calls in an exit handler younger than cuInit", 20,
                              call_rules("exit.handler_after_cuInit.", "ok"), run_exit_late});
const Registration destructor_case({"exit_destructor", "calls in a destructor of the program", 20,
                                    call_rules("exit.destructor_of_the_program.", "deinitialized"),
                                    run_exit_destructor});
const Registration reset_case({"primary_reset",
                               "a reset primary context",
                               20,
                               {{"reset.cuDevicePrimaryCtxReset", "ok"},
                                {"reset.current_afterwards", "the old handle"},
                                {"reset.active_afterwards", "0"},
                                {"reset.cuMemAlloc_without_retain", "context_is_destroyed"},
                                {"reset.same_handle_again", "yes"},
                                {"reset.same_identity_again", "no"},
                                {"reset.free_of_an_old_block", "invalid_value"},
                                {"reset.free_of_an_old_pinned_block", "invalid_value"},
                                {"reset.cuMemAlloc", "ok"}},
                               run_primary_reset});
const Registration release_case({"primary_release",
                                 "a released primary context",
                                 20,
                                 {{"release.cuDevicePrimaryCtxRelease", "ok"},
                                  {"release.twice", "invalid_context"},
                                  {"release.same_handle_again", "yes"},
                                  {"release.free_of_an_old_block", "invalid_value"}},
                                 run_primary_release});
const Registration destroy_case({"destroy",
                                 "destroyed contexts",
                                 20,
                                 {{"destroy.current_afterwards_is_the_destroyed", "no"},
                                  {"destroy.handle_given_again", ""},
                                  {"destroy.identity_given_again", "no"},
                                  {"destroy.primary_by_cuCtxDestroy", "invalid_context"}},
                                 run_destroy});

}  // namespace
}  // namespace probe
