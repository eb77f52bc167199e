#!/usr/bin/python3
"""Replays lifetimes of buffers plain and under the shim and prints, by trace and order of frees, what was reserved at
most for what was live at most, the hits, and the driver's calls.

    bench/lifetimes.py BUILD_DIRECTORY [--seed N] [--kind device|pinned] [--only WORD] [--option NAME=VALUE ...]
    bench/lifetimes.py BUILD_DIRECTORY --ranges [--seed N] [--only WORD]

Published lifetimes: bench/lifetimes/README.md. The others are made here. The driver is the simulated one of the tests;
`behind work` delays each command on the stream, so that blocks that go back are still in use for a while.

`--ranges` replays them through the range pool instead, which has no hooks yet, over a driver that only counts: every
create, map, set access, unmap and destroy is a call. A fence settles that many steps of the trace after a free."""
import argparse
import csv
import datetime
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
KIB, MIB = 1 << 10, 1 << 20
ORDERS = {
    "strict": {},
    "deferred": {"CISTERN_DEVICE_ORDER": "deferred"},
    "deferred, behind work": {"CISTERN_DEVICE_ORDER": "deferred", "SIMCUDA_STREAM_DELAY_US": "20"},
}


class Maker:
    """Allocations and frees in order become lifetimes."""

    def __init__(self):
        self.step, self.rows = 0, []

    def allocate(self, size):
        self.step += 1
        self.rows.append([len(self.rows), self.step, None, max(1, int(size))])
        return len(self.rows) - 1

    def free(self, block):
        self.step += 1
        self.rows[block][2] = self.step

    def finished(self):
        for row in self.rows:
            row[2] = row[2] or self.step + 1
        return self.rows


def loop_over(*sizes, rounds=500):
    def make(_):
        maker = Maker()
        for _ in range(rounds):
            for size in sizes:
                maker.free(maker.allocate(size))
        return maker.finished()
    return make


def one_small_then_a_large_one(_):
    maker = Maker()
    maker.free(maker.allocate(4 * KIB))
    for _ in range(1000):
        maker.free(maker.allocate(100 * MIB))
    return maker.finished()


def phases(times):
    def make(_):
        maker = Maker()
        for _ in range(times):
            for phase in range(8):
                for block in [maker.allocate((16 + 4 * phase) * MIB) for _ in range(8)]:
                    maker.free(block)
        return maker.finished()
    return make


def training(vary, checkpoints, layers=24, steps=60, hidden=1024):
    """Weights stay; each layer's activations live until its backward pass, or, with checkpoints, are made again there.
    With `vary` each step has a length of its own."""
    def make(rng):
        maker = Maker()
        for _ in range(layers):
            maker.allocate(12 * hidden * hidden * 2)
        for _ in range(steps):
            length = min(2048, max(64, int(rng.lognormvariate(6.2, 0.5)))) if vary else 512
            row = 8 * length * hidden * 2
            kept = []
            for _ in range(layers):
                blocks = [maker.allocate(row * factor) for factor in (1, 3, 1, 4)]
                scratch = maker.allocate(8 * length * length * 2)
                maker.free(scratch)
                if checkpoints:
                    for block in blocks[1:]:
                        maker.free(block)
                    blocks = blocks[:1]
                kept.append(blocks)
            for blocks in reversed(kept):
                if checkpoints:
                    blocks += [maker.allocate(row * factor) for factor in (3, 1, 4)]
                gradients = [maker.allocate(row * factor) for factor in (1, 4)]
                for block in blocks + gradients:
                    maker.free(block)
        return maker.finished()
    return make


def lognormal(live_max, steps=20000, median=64 * KIB, sigma=2.0):
    def make(rng):
        maker, live = Maker(), []
        for _ in range(steps):
            if len(live) >= live_max:
                maker.free(live.pop(rng.randrange(len(live))))
            live.append(maker.allocate(min(256 * MIB, median * rng.lognormvariate(0, sigma))))
        return maker.finished()
    return make


def analytics(rng):
    """Queries: columns are read, joined through a hash table, and the results are put together; sizes of each query's
    own selectivity."""
    maker = Maker()
    for _ in range(150):
        rows = int(rng.lognormvariate(14.5, 0.7))
        columns = [maker.allocate(rows * width) for width in rng.choices((4, 8, 16), k=rng.randint(3, 8))]
        table = maker.allocate(rows * 24)
        results = []
        for column in columns:
            chosen = maker.allocate(rows * rng.random() * 8)
            results.append(maker.allocate(rows * rng.random() * 8))
            maker.free(chosen)
            maker.free(column)
        maker.free(table)
        for result in results:
            maker.free(result)
    return maker.finished()


def published(name):
    def make(_):
        with open(HERE / "lifetimes" / f"{name}.csv", newline="") as file:
            return list(csv.reader(file))[1:]
    return make


# name: how it is made, passes
TRACES = {
    "one of 4 KiB, then 100 MiB in a loop": (one_small_then_a_large_one, 1),
    "two sizes, 100 and 14 MiB, in turn": (loop_over(100 * MIB, 14 * MIB), 1),
    "two sizes, 100 and 60 MiB, in turn": (loop_over(100 * MIB, 60 * MIB), 1),
    "eight phases, once": (phases(1), 1),
    "eight phases, 20 times": (phases(20), 1),
    "training, one length": (training(False, False), 1),
    "training, lengths vary": (training(True, False), 1),
    "training with checkpoints, lengths vary": (training(True, True), 1),
    "training, 12 GiB live": (training(False, False, layers=48, hidden=2048, steps=20), 1),
    "lognormal, 400 live": (lognormal(400), 1),
    "lognormal, 3,000 live": (lognormal(3000), 1),
    "analytics": (analytics, 1),
    "G_1 (iopddl), 10 passes": (published("iopddl_G_1"), 10),
    "ResNet-50 (somas), 10 passes": (published("somas_resnet50"), 10),
    "A (minimalloc), 10 passes": (published("minimalloc_A"), 10),
}


class Bench:
    def __init__(self, build, kind, options):
        self.program, self.shim, self.kind = build / "bench" / "cuda_lifetimes", build / "libcistern.so", kind
        if not self.shim.exists():  # the loader would run the program without it
            sys.exit(f"{self.shim} is not there")
        self.values = {name: value for name, value in os.environ.items()
                       if not name.startswith(("CISTERN_", "SIMCUDA_"))}
        self.values |= {"LD_LIBRARY_PATH": str(build / "tests" / "simcuda"), "SIMCUDA_MEMORY": str(64 << 30),
                        "SIMCUDA_POISON": "0"}
        self.shims = {"LD_PRELOAD": str(self.shim), "CISTERN_REPORT": "none", "CISTERN_HOST": "off",
                      "CISTERN_SITES": "off", **options}

    def run(self, trace, passes, more):
        done = subprocess.run([self.program, trace, str(passes), self.kind], env={**self.values, **more},
                              capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{trace} ended with {done.returncode}\n{done.stderr}")
        return json.loads(done.stdout)


# heading: arguments of bench/replay
RANGE_WAYS = {
    "strict": ("strict",),
    "deferred, 20 steps": ("deferred", "20"),
    "deferred, 200 steps": ("deferred", "200"),
    "2 streams, 20 steps": ("stream", "20", "2"),
}


def replay_ranges(program, traces, seed):
    print(f"Range pool over a driver that only counts; {datetime.date.today().isoformat()}, seed {seed}\n"
          "mapped/used: the most that was mapped, by the most that was live, or freed and still used, at once\n"
          f"{'':42}" + "".join(f"{way:>27}" for way in RANGE_WAYS) +
          f"\n{'':42}" + f"{'mapped/used saved %  moved':>27}" * len(RANGE_WAYS))
    for name, passes, file in traces:
        line = f"{name:42}"
        for arguments in RANGE_WAYS.values():
            run = json.loads(subprocess.run([program, file, str(passes), *arguments], capture_output=True, text=True,
                                            check=True).stdout)
            line += (f"{run['mapped_peak_bytes'] / run['used_peak_bytes']:12.3f}"
                     f"{100 * (1 - run['driver_calls'] / run['calls']):8.1f}{run['moved']:7,}")
        print(line, flush=True)


def written_traces(folder, only, seed):
    file = pathlib.Path(folder) / "trace.csv"
    for name, (make, passes) in TRACES.items():
        if only in name:
            with open(file, "w", newline="") as out:
                csv.writer(out).writerows([["id", "lower", "upper", "size"], *make(random.Random(seed))])
            yield name, passes, file


def calls_of(run):
    return run["driver_allocations"] + run["driver_frees"]


def replay_device_pool(given, traces):
    bench = Bench(given.build.resolve(), given.kind, dict(option.split("=", 1) for option in given.option))
    print(f"SIMULATED driver: no GPU was involved; {datetime.date.today().isoformat()}; {given.kind} memory, seed"
          f" {given.seed}\nreserved/live: the most that the driver had given at once, by the most that was live,"
          " or freed and still used by the stream, at once\n"
          f"{'':42}{'live MiB':>10}{'plain calls':>13}" + "".join(f"{order:>27}" for order in ORDERS) +
          f"\n{'':65}" + f"{'res./live   hit %    calls':>27}" * len(ORDERS))
    for name, passes, file in traces:
        plain = bench.run(file, passes, {})
        line = f"{name:42}{plain['live_peak_bytes'] / MIB:10.1f}{calls_of(plain):13,}"
        for options in ORDERS.values():
            run = bench.run(file, passes, {**bench.shims, **options})
            line += (f"{run['given_peak_bytes'] / run['used_peak_bytes']:12.3f}"
                     f"{100 * (1 - run['driver_allocations'] / run['allocations']):8.2f}{calls_of(run):7,}")
        print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=("device", "pinned"), default="device")
    parser.add_argument("--ranges", action="store_true", help="through the range pool")
    parser.add_argument("--only", default="", help="traces with this in their name")
    parser.add_argument("--option", action="append", default=[], metavar="CISTERN_NAME=VALUE")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        traces = written_traces(folder, given.only, given.seed)
        if given.ranges:
            replay_ranges(given.build.resolve() / "bench" / "replay", traces, given.seed)
        else:
            replay_device_pool(given, traces)


main()
