#!/usr/bin/python3
"""The C library's own tests of malloc, threads, processes, signals and its standard library, built from the
distribution's source (scripts/setup --long fetches it) against the installed C library: whatever ends well plain does
preloaded. What differs by our nature is named here, with the reason; a difference that is gone is a failure too."""
import argparse
import concurrent.futures
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

# What needs the C library's insides to be built, or asks for what only its own malloc can know.
NOT_FOR_OTHERS = {
    "tst-malloc-backtrace": "spoils the C library's own chunk, to see it checked",
    "tst-malloc-stats-cancellation": "wants the C library's own words of malloc_stats",
    "tst-safe-linking": "spoils the C library's own free lists, to see them checked",
}
# What takes one of the process's pthread keys, as every allocator with lists of its threads does, cannot give all of
# them to the program.
ONE_KEY = "asks for every pthread key, and Cistern has one"
DIFFERENT = {"tst-key1": ONE_KEY, "tst-key4": ONE_KEY, "tst-tss-basic": ONE_KEY}
TESTS = ["malloc/tst-*.c", "nptl/tst-*.c", "sysdeps/pthread/tst-*.c", "posix/tst-*.c", "stdlib/tst-*.c",
         "signal/tst-*.c", "libio/tst-memstream*.c", "libio/tst-wmemstream*.c", "stdio-common/tst-popen*.c",
         "dlfcn/tst-dl*.c"]
# Of the C library's internal headers only these, or they would hide the installed ones.
HEADERS = ["include/array_length.h", "include/libc-diag.h", "include/intprops.h", "include/scratch_buffer.h",
           "sysdeps/generic/tst-stack-align.h", "sysdeps/generic/eloop-threshold.h", "test-skeleton.c"]
MACROS = ["TIMEOUTFACTOR=4", "libc_hidden_proto(name)=", "attribute_hidden=",
          *(f'{name}_PATH="{path}"' for name, path in (
              ("SRCDIR", "/tmp"), ("OBJDIR", "/tmp"), ("OBJDIR_ELF_LDSO", "/lib"), ("INSTDIR", "/"),
              ("ROOTSBINDIR", "/sbin"), ("LIBDIR", "/lib"), ("BINDIR", "/usr/bin"), ("SBINDIR", "/sbin"),
              ("SYSCONFDIR", "/etc"), ("SLIBDIR", "/lib"), ("LOCALEDIR", "/usr/lib/locale"),
              ("COMPLOCALEDIR", "/usr/lib/locale")))]
# Those that the C library's own build runs in a container: outside of it one removes the machine's /bin/sh.
CONTAINER_TESTS = re.compile(r"^tests-container\s*[:+]?=((?:.*\\\n)*.*)", re.MULTILINE)
UNSUPPORTED = 77
TIME_LIMIT_S = 120


class Builder:
    def __init__(self, source, folder):
        self.source, self.folder = source, folder
        include = folder / "include"
        include.mkdir()
        for name in ("support", "malloc", "libio", "posix", "nptl", "stdlib", "signal", "dlfcn"):
            (include / name).symlink_to(source / name)
        for name in HEADERS:
            (include / pathlib.Path(name).name).write_bytes((source / name).read_bytes())
        (include / "config.h").write_text("")
        (include / "libc-symbols.h").write_text("")
        self.flags = ["-w", "-O1", "-std=gnu11", "-D_GNU_SOURCE", "-include", "limits.h", f"-I{include}",
                      *(f"-D{macro}" for macro in MACROS)]

    def compile(self, path, output, *more):
        command = ["gcc", *self.flags, "-idirafter", self.source / "support", "-idirafter", path.parent, path, "-o",
                   output, *more]
        return subprocess.run(command, capture_output=True).returncode == 0

    def support_library(self, workers):
        objects = [(path, self.folder / f"{path.stem}.o") for path in sorted((self.source / "support").glob("*.c"))]
        built = list(workers.map(lambda pair: self.compile(*pair, "-c"), objects))
        archive = self.folder / "libsupport.a"
        members = [output for (_, output), good in zip(objects, built) if good]
        subprocess.run(["ar", "rcs", archive, *members], check=True)
        return archive

    def container_tests(self):
        makefiles = [path.read_text() for path in self.source.glob("*/Makefile")]
        lists = [found for text in makefiles for found in CONTAINER_TESTS.findall(text)]
        names = {word for one in lists for word in one.replace("\\", " ").split()}
        if "tst-pthread-getattr" not in names:
            sys.exit("the C library's source does not say in the way known here which tests need a container")
        return names

    def programs(self, workers):
        archive = self.support_library(workers)
        container = self.container_tests()
        paths = sorted(path for pattern in TESTS for path in self.source.glob(pattern) if path.stem not in container)
        outputs = [self.folder / path.parent.name / path.stem for path in paths]
        for folder in {output.parent for output in outputs}:
            folder.mkdir()
        built = workers.map(lambda pair: self.compile(*pair, archive, "-lpthread", "-ldl", "-rdynamic"),
                            zip(paths, outputs))
        return [output for output, good in zip(outputs, built) if good], len(paths)


def run(program, shim=None):
    """Its status, or "hung", and what it said."""
    kept = {name: value for name, value in os.environ.items()
            if name != "LD_PRELOAD" and not name.startswith("CISTERN_")}
    if shim:
        kept["LD_PRELOAD"] = shim
    process = subprocess.Popen([program], env=kept, cwd=program.parent, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                               start_new_session=True)
    try:
        output, _ = process.communicate(timeout=TIME_LIMIT_S)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return "hung", process.communicate()[0]


def judge(program, shim):
    """Whether it did, and a line."""
    if program.name in NOT_FOR_OTHERS:
        return True, f"skipped: {program.name}: {NOT_FOR_OTHERS[program.name]}"
    status, output = run(program)
    if status:
        reason = "unsupported" if status == UNSUPPORTED else f"ends with {status}"
        return True, f"skipped: {program.name}: plain, {reason} here"
    for _ in range(2):  # one may fail by the time that it took
        status, output = run(program, shim)
        if not status:
            break
    if program.name in DIFFERENT:
        return bool(status), f"{program.name}: {'' if status else 'no longer '}different: {DIFFERENT[program.name]}"
    if status:
        return False, f"{program.name}: {status}\n" + "\n".join("    " + line for line in output.splitlines()[-12:])
    return True, f"{program.name}: as plain"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shim", required=True)
    parser.add_argument("--source", required=True, type=pathlib.Path, help="the folder into which it was fetched")
    parser.add_argument("--only", default="", help="tests whose name contains this")
    arguments = parser.parse_args()
    sources = sorted(arguments.source.resolve().glob("glibc-*/malloc"))
    if not sources:
        print(f"skipped: all: no source of the C library in {arguments.source}: scripts/setup --long fetches it")
        return 77
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(2 * os.cpu_count()) as workers:
        programs, count = Builder(sources[-1].parent, pathlib.Path(name)).programs(workers)
        print(f"{sources[-1].parent.name}: {len(programs)} of {count} tests can be built outside of it", flush=True)
        failed = 0
        for good, line in workers.map(lambda program: judge(program, arguments.shim),
                                      [program for program in programs if arguments.only in program.name]):
            failed += not good
            print(line if good else f"FAILED: {line}", flush=True)
    print(f"{failed} failed")
    return 1 if failed or len(programs) < 40 else 0


if __name__ == "__main__":
    sys.exit(main())
