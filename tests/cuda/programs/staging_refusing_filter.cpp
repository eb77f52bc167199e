// A filter that the process has from its start answers the kernel's copies with an error: Docker's, one that plays an
// old kernel, one of somebody's own. What they would have copied is left to the driver, the rest is staged.
// harness: stages=both
// harness: passes-on=filtered
// harness: arguments=EPERM
// harness: arguments=ENOSYS
// harness: arguments=EACCES
#include "../inherited_filter.hpp"

int main(int count, char** arguments) {
  if (count != 2) return 90;
  if (!strcmp(arguments[1], "again")) return copies();
  const unsigned error = !strcmp(arguments[1], "EPERM") ? EPERM : !strcmp(arguments[1], "ENOSYS") ? ENOSYS : EACCES;
  start_again_under_filter(arguments, SECCOMP_RET_ERRNO | error);
}
