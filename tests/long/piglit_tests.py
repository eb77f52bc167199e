#!/usr/bin/python3
"""Piglit's OpenCL programs (scripts/setup --long fetches them), on a machine that is kept busy: buffers, sub-buffers,
images, maps, fills, migrations, events, reference counts and every error that those calls may answer. Each ends as it
does plain, with the same result of each of its parts: preloaded, as a layer, both at once, and with copies through
pinned chunks."""
import argparse
import os
import pathlib
import re
import signal
import subprocess
import sys

WAYS = {"preload": {"LD_PRELOAD": None}, "layer": {"OPENCL_LAYERS": None},
        "both": {"LD_PRELOAD": None, "OPENCL_LAYERS": None}, "staged": {"LD_PRELOAD": None, "CISTERN_STAGING": "on"}}
# These draw on a screen, or take a program or a device file as an argument.
NEED_MORE = re.compile(r"cl-(interop|program-tester|program-max-work|program-bitcoin|program-predefined)")
# Numbers of a time or a count that a driver chooses anew.
VARYING = re.compile(r"0x[0-9a-f]+|\d+(?:\.\d+)?")
TIME_LIMIT_S = 300
PLAIN_RUNS_MAX = 8


class Load:
    """Three processes for each processor that do nothing but run."""

    def __enter__(self):
        count = 3 * len(os.sched_getaffinity(0))
        self.processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]

    def __exit__(self, *_):
        for process in self.processes:
            process.send_signal(signal.SIGKILL)
            process.wait()


def run(program, shim=None, way=None):
    """The exit code, and what the program says of each of its parts."""
    kept = {name: value for name, value in os.environ.items()
            if name not in ("LD_PRELOAD", "OPENCL_LAYERS") and not name.startswith("CISTERN_")}
    kept["LD_LIBRARY_PATH"] = str(program.parent.parent / "lib")
    if way is not None:
        kept |= {name: value or shim for name, value in WAYS[way].items()} | {"CISTERN_REPORT": "none"}
    try:
        done = subprocess.run([program, "-auto"], env=kept, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", timeout=TIME_LIMIT_S)
    except subprocess.TimeoutExpired as ended:
        return None, [], str(ended)
    said = [VARYING.sub("#", line) for line in done.stdout.splitlines() if not line.startswith("cistern: ")]
    return done.returncode, said, done.stdout


def judge(program, shim):
    """Complaints. What plain does too, of several times, is none."""
    plain = [run(program)[:2]]
    complaints = []
    for way in WAYS:
        code, said, output = run(program, shim, way)
        while (code, said) not in plain and len(plain) < PLAIN_RUNS_MAX:
            plain.append(run(program)[:2])
        if (code, said) not in plain:
            last = "\n".join("    " + line for line in output.splitlines()[-12:])
            complaints.append(f"{program.name}: {way}: ends with {code}, plain with {plain[0][0]}\n{last}")
    return complaints


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shim", required=True)
    parser.add_argument("--folder", required=True, type=pathlib.Path)
    parser.add_argument("--only", default="", help="programs whose name contains this")
    arguments = parser.parse_args()
    programs = [path for path in sorted((arguments.folder / "bin").glob("cl-*"))
                if arguments.only in path.name and not NEED_MORE.match(path.name)]
    if not programs:
        print("skipped: all: Piglit's programs are not there: scripts/setup --long")
        return 77
    failed = 0
    with Load():
        for program in programs:
            complaints = judge(program, arguments.shim)
            failed += bool(complaints)
            print("\n".join(f"FAILED: {text}" for text in complaints) or f"{program.name}: as plain", flush=True)
    print(f"{failed} of {len(programs)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
