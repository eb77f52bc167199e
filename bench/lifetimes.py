#!/usr/bin/python3
"""Replays lifetimes of buffers plain and under the shim and prints, by trace and order of frees, what was reserved at
most for what was live at most, the hits, and the driver's calls.

    bench/lifetimes.py BUILD_DIRECTORY [--seed N] [--kind device|pinned|plugin] [--only WORD] [--option NAME=VALUE ...]

The traces are those of bench/traces.py. The driver is the simulated one of the tests; `behind work` delays each command
on the stream, so that blocks that go back are still in use for a while.

The script bench/policies.py replays the same traces
through other policies, without a driver."""
import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import traces

MIB = 1 << 20
ORDERS = {
    "strict": {},
    "deferred": {"CISTERN_DEVICE_ORDER": "deferred"},
    "deferred, behind work": {"CISTERN_DEVICE_ORDER": "deferred", "SIMCUDA_STREAM_DELAY_US": "20"},
}
# The ways of `--kind plugin`: PyTorch's functions, which name the stream.
PLUGINS = {
    "whole blocks": ("plugin-whole", {}),
    "whole, behind work": ("plugin-whole", {"SIMCUDA_STREAM_DELAY_US": "20"}),
    "segments": ("plugin", {}),
    "segments, behind work": ("plugin", {"SIMCUDA_STREAM_DELAY_US": "20"}),
}


class Bench:
    def __init__(self, build, options):
        self.program, self.shim = build / "bench" / "cuda_lifetimes", build / "libcistern.so"
        if not self.shim.exists():  # the loader would run the program without it
            sys.exit(f"{self.shim} is not there")
        self.values = {name: value for name, value in os.environ.items()
                       if not name.startswith(("CISTERN_", "SIMCUDA_"))}
        self.values |= {"LD_LIBRARY_PATH": str(build / "tests" / "simcuda"), "SIMCUDA_MEMORY": str(64 << 30),
                        "SIMCUDA_POISON": "0"}
        self.shims = {"LD_PRELOAD": str(self.shim), "CISTERN_REPORT": "none", "CISTERN_HOST": "off",
                      "CISTERN_SITES": "off", **options}

    def run(self, trace, passes, more, kind):
        done = subprocess.run([self.program, trace, str(passes), kind], env={**self.values, **more},
                              capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{trace} ended with {done.returncode}\n{done.stderr}")
        return json.loads(done.stdout)


def calls_of(run):
    return run["driver_allocations"] + run["driver_frees"]


def replay_device_pool(given, written):
    bench = Bench(given.build.resolve(), dict(option.split("=", 1) for option in given.option))
    is_plugin = given.kind == "plugin"
    columns = "res./live   hit %  calls   all" if is_plugin else "res./live   hit %    calls"
    width = 33 if is_plugin else 27
    ways = PLUGINS if given.kind == "plugin" else {order: (given.kind, more) for order, more in ORDERS.items()}
    print(f"SIMULATED driver: no GPU was involved; {datetime.date.today().isoformat()}; {given.kind} memory, seed"
          f" {given.seed}\nreserved/live: the most that the driver had given at once, by the most that was live,"
          " or freed and still used by the stream, at once\n"
          f"{'':48}{'live MiB':>10}{'plain calls':>13}" + "".join(f"{way:>{width}}" for way in ways) +
          f"\n{'':71}" + f"{columns:>{width}}" * len(ways))
    if is_plugin:
        print("live: as the program has it, for work that comes later may use what it freed\n"
              "all: calls of any kind that the driver saw for each allocation and its free")
    for name, passes, file in written:
        plain = bench.run(file, passes, {}, "pinned" if given.kind == "pinned" else "device")
        line = f"{name:48}{plain['live_peak_bytes'] / MIB:10.1f}{calls_of(plain):13,}"
        for kind, options in ways.values():
            run = bench.run(file, passes, {**bench.shims, **options}, kind)
            line += (f"{run['given_peak_bytes'] / run['used_peak_bytes']:12.3f}"
                     f"{100 * (1 - run['driver_allocations'] / run['allocations']):8.2f}{calls_of(run):7,}")
            if is_plugin:  # but for the program's memset of each block
                line += f"{run['driver_calls'] / run['allocations'] - 1:6.2f}"
        print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=("device", "pinned", "plugin"), default="device")
    parser.add_argument("--only", default="", help="traces with this in their name")
    parser.add_argument("--option", action="append", default=[], metavar="CISTERN_NAME=VALUE")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        replay_device_pool(given, traces.written(folder, given.only, given.seed))


main()
