#!/usr/bin/python3
"""The cost of a recording: programs with Cistern, with and without CISTERN_RECORD, in turn, several rounds; minima.

  gpu    bench/cuda_lifetimes on the simulated driver with assumed latencies: processor time
  host   bench/sites_load with CISTERN_SITES=all, which records every block

    bench/recording.py BUILD_DIRECTORY [--rounds N] [--library FILE] [--folder FILE_SYSTEM]

The exit status is 1 if a goal is missed: 3 % of a GPU program's time, and 1.5 times that of a host program."""
import argparse
import os
import pathlib
import platform
import resource
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "recording"))
import recording  # noqa: E402
from cuda import ASSUMED, SIMULATED  # noqa: E402

LIFETIMES = pathlib.Path(__file__).resolve().parent / "lifetimes"


def spent(command, environment):
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **environment})
    wall, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def measure(command, environment, rounds, folder):
    """(CPU, wall) without and with, and the recording."""
    best = [[9e9, 9e9], [9e9, 9e9]]
    for turn in range(rounds):
        for records in (0, 1):
            file = pathlib.Path(folder) / f"{turn}.rec"
            recorded = {"CISTERN_RECORD": str(file)} if records else {}
            best[records] = [min(pair) for pair in zip(best[records], spent(command, {**environment, **recorded}))]
            if records and turn < rounds - 1:
                file.unlink()
    return *best, file


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--library", type=pathlib.Path)
    parser.add_argument("--folder", help="where the files lie")
    given = parser.parse_args()
    library = (given.library or given.build / "libcistern.so").resolve()
    simulator = given.build / "tests" / "simcuda"
    ours = {"LD_PRELOAD": str(library), "CISTERN_REPORT": "/dev/null"}
    gpu = {**ours, **SIMULATED, **ASSUMED, "LD_LIBRARY_PATH": f"{simulator}:{simulator}/13"}
    trace = sorted(LIFETIMES.glob("*.csv"))[0]
    load = given.build / "bench" / "sites_load_fp"
    runs = {
        f"gpu: cuda_lifetimes {trace.name}, CPU": ([given.build / "bench" / "cuda_lifetimes", trace, 60, "device"],
                                                   gpu, 0, 1.03),
        "host: sites_load, SITES=all, CPU": ([load, 1, 24000, 1], {**ours, "CISTERN_SITES": "all"}, 0, 1.5),
        "host: sites_load, 4 threads, SITES=all, CPU": ([load, 4, 6000, 1], {**ours, "CISTERN_SITES": "all"}, 0, 1.5),
        "host: sites_load, samples, CPU": ([load, 1, 24000, 1], ours, 0, 1.5),
    }
    print(f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}; {time.strftime('%Y-%m-%d')}; "
          f"{given.rounds} rounds, minima\n")
    print(f"{'':46}{'without ms':>11}{'with ms':>9}{'ratio':>7}{'events':>10}{'bytes/event':>12}")
    missed = False
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        for name, (command, environment, figure, goal) in runs.items():
            without, with_it, file = measure(list(map(str, command)), environment, given.rounds, folder)
            ratio = with_it[figure] / without[figure]
            missed |= ratio > goal
            recorded = recording.Recording(file)
            events = len(recorded.events) + recorded.thinned_events
            print(f"{name:46}{without[figure] * 1e3:11.1f}{with_it[figure] * 1e3:9.1f}{ratio:7.3f}{events:10}"
                  f"{file.stat().st_size / max(events, 1):12.1f}" + ("  missed" if ratio > goal else ""), flush=True)
            file.unlink()
    return missed


if __name__ == "__main__":
    sys.exit(main())
