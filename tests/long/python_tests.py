#!/usr/bin/python3
"""Python's own tests of threads, processes, signals and memory that is mapped (the distribution's package of them):
each test file ends preloaded as it does plain."""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

PYTHON = "/usr/bin/python3"
NAMES = re.compile(r"test_(threading|subprocess|signal|multiprocessing\w*|fork1|os|mmap|ctypes)$")
TIME_LIMIT_S = 1800


def run(name, shim=None):
    """How it ended, and the last that it said."""
    kept = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD" and not key.startswith("CISTERN_")}
    if shim:
        kept["LD_PRELOAD"] = shim
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([PYTHON, "-m", "test", "-v", name], env=kept, cwd=folder, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                              timeout=TIME_LIMIT_S)
    failed = set(re.findall(r"^(?:FAIL|ERROR): (\S+ \([\w.]+\))", done.stdout, re.MULTILINE))
    ran = sum(map(int, re.findall(r"^Ran (\d+) tests? in", done.stdout, re.MULTILINE)))
    return done.returncode, failed, ran, done.stdout


def judge(name, shim):
    plain_status, plain_failed, plain_ran, _ = run(name)
    for _ in range(2):  # one may fail by the time that it took
        status, failed, ran, said = run(name, shim)
        if (status, failed, ran) == (plain_status, plain_failed, plain_ran):
            return True, f"{name}: {ran} tests as plain" + (f", where {len(failed)} fail" if failed else "")
    last = "\n".join("    " + line for line in said.splitlines()[-15:])
    return False, (f"{name}: ends with {status} (plain {plain_status}), {ran} tests (plain {plain_ran}), "
                   f"fails more: {sorted(failed - plain_failed)}\n{last}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shim", required=True)
    parser.add_argument("--only", default="", help="files whose name contains this")
    arguments = parser.parse_args()
    found = subprocess.run([PYTHON, "-c", "import test.libregrtest, os, test.test_mmap; print(test.__path__[0])"],
                           capture_output=True, text=True)
    if found.returncode:
        print("skipped: all: libpython3.*-testsuite is not installed: scripts/setup")
        return 77
    folder = pathlib.Path(found.stdout.strip())
    names = sorted(path.stem for path in folder.iterdir() if NAMES.match(path.stem) and arguments.only in path.stem)
    failed = 0
    for name in names:
        good, line = judge(name, arguments.shim)
        failed += not good
        print(line if good else f"FAILED: {line}", flush=True)
    print(f"{failed} of {len(names)} failed")
    return 1 if failed or not names else 0


if __name__ == "__main__":
    sys.exit(main())
