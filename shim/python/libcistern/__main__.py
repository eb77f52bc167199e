"""python -m libcistern run [OPTION...] -- PROGRAM [ARGUMENT...]   the program, under the preloaded library
python -m libcistern path                                        where libcistern.so is
python -m libcistern doctor -- PROGRAM [ARGUMENT...]             why its memory would not be seen

Options of run, each for an environment variable:
  --report PATH           CISTERN_REPORT: stderr, none or a path (%p pid, %h host, %r rank)
  --report-format FORMAT  CISTERN_REPORT_FORMAT: text or json
  --sites WHICH           CISTERN_SITES: gpu, all or off
  --fail-on CLASS         CISTERN_FAIL_ON: any, lost, possible, growing
  --suppressions FILE     CISTERN_SUPPRESSIONS
  --set NAME=VALUE        CISTERN_NAME
"""
import errno
import os
import shutil
import sys

from libcistern._library import CisternError, library_path, path_to_preload
from libcistern._loader import foreign_loader

OPTIONS = {"--report": "REPORT", "--report-format": "REPORT_FORMAT", "--sites": "SITES", "--fail-on": "FAIL_ON",
           "--suppressions": "SUPPRESSIONS"}
USAGE, NOT_FOUND, NOT_EXECUTABLE = 2, 127, 126


class UsageError(Exception):
    pass


def settings_and_command(arguments):
    """Environment variables, and what follows `--` or the last option."""
    settings = {}
    rest = list(arguments)
    while rest and rest[0].startswith("--"):
        name, given, value = rest.pop(0).partition("=")
        if name == "--":
            break
        if name != "--set" and name not in OPTIONS:
            raise UsageError(f"unknown option: {name}")
        if not given:
            if not rest or rest[0] == "--":
                raise UsageError(f"{name} needs a value")
            value = rest.pop(0)
        if name == "--set":
            name, is_set, value = value.partition("=")
            if not is_set:
                raise UsageError(f"--set needs NAME=VALUE, not {name!r}")
            settings["CISTERN_" + name.upper().replace("-", "_")] = value
        else:
            settings["CISTERN_" + OPTIONS[name]] = value
    if not rest:
        raise UsageError("no program given")
    return settings, rest


def preload_list(path, before, ours=True):
    """Ours stands first, or not at all; what else is preloaded stays."""
    others = [other for other in before.replace(" ", ":").split(":") if other and other != path]
    return ":".join([path, *others] if ours else others)


def file_of(program):
    return program if os.sep in program else shutil.which(program)


def execute(program, arguments, environment):
    """As env does: a script without `#!` is the shell's."""
    found = file_of(program)
    try:
        if not found:
            raise FileNotFoundError
        try:
            os.execve(found, arguments, environment)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            os.execve("/bin/sh", ["/bin/sh", found, *arguments[1:]], environment)
    except FileNotFoundError:
        print(f"libcistern: {program}: not found", file=sys.stderr)
        return NOT_FOUND
    except OSError as error:
        print(f"libcistern: {program}: {error.strerror}", file=sys.stderr)
        return NOT_EXECUTABLE


def run(arguments):
    settings, command = settings_and_command(arguments)
    path = path_to_preload()
    if " " in path or ":" in path:
        raise CisternError(f"{path}: LD_PRELOAD cannot take a path with a space or a colon")
    environment = dict(os.environ, **settings)
    loader = foreign_loader(file_of(command[0]))
    if loader:
        print(f"libcistern: {command[0]} runs with {loader}, which is not glibc's: "
              "libcistern.so is not preloaded into it", file=sys.stderr, flush=True)
    preloads = preload_list(path, environment.get("LD_PRELOAD", ""), loader is None)
    environment.pop("LD_PRELOAD", None)
    if preloads:
        environment["LD_PRELOAD"] = preloads
    return execute(command[0], command, environment)


def doctor(arguments):
    settings, command = settings_and_command(arguments)
    if settings:
        raise UsageError(f"doctor takes no options: {arguments[0]}")
    path = path_to_preload()
    return execute(path, [path, "--doctor", "--", *command], os.environ)


def main(arguments=None):
    """Of the command `cistern` too, which passes nothing."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        if arguments[:1] == ["run"]:
            return run(arguments[1:])
        if arguments[:1] == ["doctor"]:
            return doctor(arguments[1:])
        if arguments == ["path"]:
            print(library_path())
            return 0
        if arguments in (["--help"], ["-h"]):
            print(__doc__, end="")
            return 0
        raise UsageError(f"unknown command: {' '.join(arguments)}" if arguments else "no command given")
    except UsageError as error:
        print(f"libcistern: {error}\n\n{__doc__}", end="", file=sys.stderr)
        return USAGE
    except CisternError as error:
        print(f"libcistern: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
