// cistern_report: the whole process in a file that the program names (cistern/cistern.h). Here and not in the library's
// room, since a report shows every kind.
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "shim/core/core.hpp"
#include "shim/judging/judging.hpp"
#include "shim/library/answers.hpp"
#include "shim/library/library.hpp"
#include "shim/process/standard_error.hpp"
#include "shim/process/uncounted.hpp"
#include "stats/report/report.hpp"

namespace cistern::library {
namespace {

cistern_status status_of_system(int error) {
  switch (error) {
    case 0:
      return CISTERN_OK;
    case EEXIST:
      return refused(error, CISTERN_EXISTS);
    case ENOENT:
    case ENOTDIR:
      return refused(error, CISTERN_NOT_FOUND);
    case EACCES:
    case EPERM:
    case EROFS:
      return refused(error, CISTERN_DENIED);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
      return refused(error, CISTERN_NO_MEMORY);
    default:
      return refused(error);
  }
}

}  // namespace

cistern_status report(const char* path, cistern_format format) {
  native = 0;
  if (!path || (format != CISTERN_TEXT && format != CISTERN_JSON)) return CISTERN_INVALID;
  const int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (file < 0) return status_of_system(errno);
  StringSink text;
  const Uncounted uncounted;
  JudgementHeld held;
  held.judge_now(stack_in_use());
  (format == CISTERN_JSON ? render_json : render_text)(take_snapshot("call"), text);
  const int error = write_whole(file, text.text());
  return status_of_system(close(file) && !error ? errno : error);
}

}  // namespace cistern::library
