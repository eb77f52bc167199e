#!/usr/bin/python3
"""What the report at the end of a process costs, and that of each forked child, beside plain.

    bench/ends.py [SHIM] [--rounds N] [--before SHIM]

Milliseconds of the wall clock and, in brackets, of processors, minima of the rounds: for a process as a whole; for
children, each, with their part of what the program took. Reports go to files; `unjudged`: with CISTERN_LEAK_CHECK=0.
Needs gcc. Run it on an idle machine: beside busy threads each turn of another process costs a time slice."""
import argparse
import os
import pathlib
import resource
import shutil
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
MODES = {
    "preloaded": {},
    "unjudged": {"CISTERN_REPORT": "report", "CISTERN_LEAK_CHECK": "0"},
    "report": {"CISTERN_REPORT": "report"},
    "all sites": {"CISTERN_REPORT": "report", "CISTERN_SITES": "all"},
}
CHILDREN = 40
WHOLE = {
    "ends at once": ("end", 0, 0),
    "four busy threads": ("end", 4, 0),
    "100,000 live blocks": ("end", 0, 100_000),
    "1,000,000 live blocks": ("end", 0, 1_000_000),
}
EACH = {
    "child that does nothing": ("fork", "bare", CHILDREN),
    "child that allocates, _exit": ("fork", "_exit", CHILDREN),
    "child that allocates, exit": ("fork", "exit", CHILDREN),
    "child that calls exec": ("fork", "exec", CHILDREN),
    "the same beside two busy threads": ("fork", "_exit", CHILDREN, 2),
}
BESIDE_THREADS = {"beside 300 threads": ("threads", 300, CHILDREN), "beside 600 threads": ("threads", 600, CHILDREN)}


def measured(command, environment, folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CISTERN_", "LD_PRELOAD"))}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(list(map(str, command)), env=kept | environment, cwd=folder, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, check=True)
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return float(done.stdout) or 1e3 * wall, 1e3 * cpu


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shim", nargs="?", type=pathlib.Path, default=ROOT / "build" / "release" / "libcistern.so")
    parser.add_argument("--before", type=pathlib.Path, help="another one, beside it")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    shims = {"": given.shim.resolve()} | ({" before": given.before.resolve()} if given.before else {})
    ways = {"plain": {}} | {mode + name: {"LD_PRELOAD": str(shim), **settings}
                            for mode, settings in MODES.items() for name, shim in shims.items()}
    with tempfile.TemporaryDirectory() as kept:
        folder = pathlib.Path(kept)
        program = folder / "ends"
        subprocess.run(["gcc", "-O2", "-fno-builtin-malloc", "-fno-builtin-free", str(ROOT / "bench" / "ends.c"), "-o",
                        str(program), "-lpthread"], check=True)
        for title, rows, children in (("a process, ms", WHOLE, 1), ("each of its children, ms", EACH, CHILDREN),
                                      ("each of its children, ms", BESIDE_THREADS, CHILDREN)):
            print(f"\n{title:34}" + "".join(f"{way:>20}" for way in ways), flush=True)
            for row, arguments in rows.items():
                seen = {way: [] for way in ways}
                for _ in range(given.rounds):
                    for way, environment in ways.items():
                        seen[way].append(measured([program, *arguments], environment, folder / "reports"))
                least = {way: [min(column) / children for column in zip(*values)] for way, values in seen.items()}
                print(f"{row:34}" + "".join(f"{f'{wall:.1f} ({cpu:.1f})':>20}" for wall, cpu in least.values()),
                      flush=True)


if __name__ == "__main__":
    main()
