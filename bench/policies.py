#!/usr/bin/python3
"""Replays traces through policies of device memory, ours and others', without a GPU, and prints by policy and order of
frees how much memory was reserved and how many calls of the driver were saved.

    bench/policies.py BUILD_DIRECTORY [--rmm DIRECTORY] [--seed N] [--only WORD] [--policy NAME ...] [--json FILE]
    bench/policies.py BUILD_DIRECTORY --log FILE [...]
    bench/policies.py BUILD_DIRECTORY --costs [--measured] [...]
    bench/policies.py BUILD_DIRECTORY --smallest [...]

The traces are those of bench/traces.py; with --log, a log of RMM, Umpire or PyTorch, or lifetimes (see
bench/trace_formats.py). The policies:

   driver            no pool
   blocks            whole blocks that are recycled: what the preload does by default
   ranges            our range pool (pool/ranges)
   segments          our pool of large segments that are cut and joined (pool/ranges)
   torch             a model of PyTorch's caching allocator
   torch-expandable  the same with expandable segments
   rmm-pool          RMM's own pool_memory_resource, with --rmm (see bench/rmm_program.py)

A cell has two figures. The first is the memory that was reserved at most, by what a pool without fragmentation would
need in that order of frees. The second is the part of the program's calls, in %, that the calls of the driver are
fewer. `deferred 20`: freed memory can be used again after 20 steps of the trace. `stream 20`: the same, but work of its
own stream need not wait. PyTorch's and RMM's allocators have an order of their own, by stream, and have no cell where
frees are deferred. RMM never waits for a fence: it lets the other stream wait. So its need is the most that is live.

--costs prints the time that the calls would take by the latencies of bench/policies/device.hpp, with --measured by
those of one H100. `pays from us`: from which cost of a pair of cuMemAlloc and cuMemFree on, in us, the policy's calls
take less than no pool's.

--smallest looks for the smallest device on which the trace runs without a failure, by the most that is live. RMM's
arena is there too, which has a fixed size. --json writes a line for each replay."""
import argparse
import datetime
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import rmm_program
import trace_formats
import traces

MIB = 1 << 20
PIECE = 2 * MIB  # the least that a driver maps
GOOD_RATIO, GOOD_PERCENT = {"segments": 1.15}, 95  # of others 1.05
# heading: arguments of bench/replay
WAYS = {
    "strict": ("strict", 0, 0),
    "deferred 0": ("deferred", 0, 0),
    "deferred 20": ("deferred", 20, 0),
    "deferred 200": ("deferred", 200, 0),
    "stream 20": ("stream", 20, 0),
    "stream 200": ("stream", 200, 0),
    "2 streams 0": ("stream", 0, 2),
    "2 streams 20": ("stream", 20, 2),
    "2 streams 200": ("stream", 200, 2),
}
# As in bench/policies/device.hpp, and as measured on an H100: medians of bench/results/gpu-h100-2026-11-27.txt, those
# of cuMemAlloc and cuMemFree for 16 MiB.
CITED_US = {"allocate": 50, "free": 50, "create": 193, "destroy": 26, "map": 1.5, "allow_access": 36, "unmap": 26}
MEASURED_US = {"allocate": 36, "free": 39, "create": 7.9, "destroy": 10, "map": 0.7, "allow_access": 21, "unmap": 14.5}
FEW_WAYS = ("strict", "deferred 20", "2 streams 20")


def is_of_rmm(policy):
    return policy.startswith("rmm")


def is_served(policy, way):
    return not (policy.startswith("torch") or is_of_rmm(policy)) or not way.startswith("deferred")


def run_program(command, libraries):
    return subprocess.run(command, capture_output=True, text=True,
                          env=os.environ | {"LD_LIBRARY_PATH": libraries, "SIMCUDA_POISON": "0"})


def offered(program, libraries):
    """The policies of a program, which it says where it is called wrongly."""
    return run_program([program], libraries).stderr.rpartition("policies:")[2].split()


class Replays:
    def __init__(self, given):
        self.build = given.build.resolve()
        self.rmm = rmm_program.built(self.build, given.rmm.resolve(), "replay_rmm") if given.rmm else None
        self.json = open(given.json, "w") if given.json else None
        self.programs = {}  # by policy: program, libraries
        for program in ((self.build / "bench" / "replay", ""), self.rmm):
            if program:
                self.programs |= {policy: program for policy in offered(*program)}
        unknown = set(given.policy) - set(self.programs)
        if unknown:
            sys.exit(f"no policy {', '.join(unknown)}: there are {', '.join(self.programs)}")
        self.policies = [name for name in self.programs if name in (given.policy or self.programs)]

    def run(self, name, file, passes, policy, way, *more):
        order, delay, streams = WAYS[way]
        program, libraries = self.programs[policy]
        command = [program, file, policy, "--passes", str(passes), "--order", order, "--delay", str(delay),
                   "--streams", str(streams), *more]
        done = run_program(command, libraries)
        if done.returncode:
            sys.exit(done.stderr.strip() or f"{command} ended with {done.returncode}")
        found = json.loads(done.stdout)
        if self.json:
            print(json.dumps({"trace": name, "way": way, "options": more, **found}), file=self.json, flush=True)
        return found


def saved_percent(found):
    return 100 * (1 - found["driver_calls"] / found["calls"])


def need(found):
    """RMM needs only what is live: it lets the other stream wait instead."""
    return found["live_peak_bytes" if is_of_rmm(found["policy"]) else "need_bytes"]


def ratio(found):
    return found["reserved_peak_bytes"] / need(found)


def is_good(found):
    return (not found["failed"] and saved_percent(found) >= GOOD_PERCENT
            and found["reserved_peak_bytes"] <= max(GOOD_RATIO.get(found["policy"], 1.05) * need(found),
                                                    need(found) + PIECE))


def cell(found):
    """One where an allocation failed has no figures: they would flatter."""
    if found is None:
        return f"{'-':>16}"
    return f"{'failed':>16}" if found["failed"] else f"{ratio(found):9.3f}{saved_percent(found):7.1f}"


def print_table(replays, written):
    policies = [name for name in replays.policies if name not in ("driver", "rmm-arena")]
    all_found = {(policy, way): [] for policy in policies for way in WAYS if is_served(policy, way)}
    print(f"{'':20}" + "".join(f"{way:>16}" for way in WAYS) + f"\n{'':20}" + f"{'res./need  sav.':>16}" * len(WAYS))
    for name, passes, file in written:
        found = {at: replays.run(name, file, passes, *at) for at in all_found}
        first = next(iter(found.values()))
        print(f"{name}: {first['live_peak_bytes'] / MIB:,.1f} MiB live, {first['calls']:,} calls")
        for policy in policies:
            print(f"  {policy:18}" + "".join(cell(found.get((policy, way))) for way in WAYS), flush=True)
        for at, each in all_found.items():
            each.append(found[at])
    print(f"the worst of {len(each)} traces, and how many are good: at most 1.05, segments 1.15 (or 2 MiB more than "
          f"the need) and at least {GOOD_PERCENT} %")
    for policy in policies:
        columns = [all_found.get((policy, way)) for way in WAYS]
        print(f"  {policy:18}" + "".join(f"{max(map(ratio, each)):9.3f}{min(map(saved_percent, each)):7.1f}" if each
                                         else cell(None) for each in columns))
        good = (f"{sum(map(is_good, each)):>11} good" if each else cell(None) for each in columns)
        print(f"  {'':18}" + "".join(good))


def driver_us(found, us):
    return sum(us[call] * count for call, count in found["driver"].items())


def pays_from_us(found, us):
    """The time of a pair of cuMemAlloc and cuMemFree from which the policy's calls take less than the program's own."""
    of_blocks = found["driver"]["allocate"] + found["driver"]["free"]
    others_us = driver_us(found, us | {"allocate": 0, "free": 0})
    return 2 * others_us / (found["calls"] - of_blocks) if found["calls"] > of_blocks else math.inf


def print_costs(replays, written, us):
    policies = [name for name in replays.policies if name != "rmm-arena"]
    for name, passes, file in written:
        print(f"{name}\n{'':20}{'way':14}{'calls':>10}{'hits':>10}{'moved':>9}{'driver ms':>12}{'us a call':>11}"
              f"{'pays from us':>14}{'own ns a call':>15}")
        for way in FEW_WAYS:
            for policy in [policy for policy in policies if is_served(policy, way)]:
                found = replays.run(name, file, passes, policy, way, "--time")
                pays = "" if policy == "driver" else f"{pays_from_us(found, us):.2f}"
                took_us = driver_us(found, us)
                print(f"  {policy:18}{way:14}{found['driver_calls']:10,}{found['hits']:10,}{found['moved']:9,}"
                      f"{took_us / 1000:12.1f}{took_us / found['calls']:11.2f}{pays:>14}"
                      f"{found['ns_per_call']:15.0f}", flush=True)


def smallest(replays, name, file, passes, policy, way):
    """The smallest device that the trace runs on, by the most that is live, to a 200th of it."""
    live = replays.run(name, file, passes, "driver", way)["live_peak_bytes"]
    step = -(-live // 200)

    def fails(steps):
        return replays.run(name, file, passes, policy, way, "--memory", str(steps * step))["failed"]

    low, high = 0, 8 * 200  # in steps; with low it fails
    if fails(high):
        return "above 8"
    while high - low > 1:
        middle = (low + high) // 2
        if fails(middle):
            low = middle
        else:
            high = middle
    return f"{high * step / live:.3f}"


def print_smallest(replays, written):
    print(f"{'the smallest device, by what is live':45}" + "".join(f"{way:>14}" for way in FEW_WAYS))
    for name, passes, file in written:
        print(name)
        for policy in replays.policies:
            line = ""
            for way in FEW_WAYS:
                least = smallest(replays, name, file, passes, policy, way) if is_served(policy, way) else "-"
                line += f"{least:>14}"
            print(f"  {policy:43}{line}", flush=True)


def traces_of(given, folder):
    if not given.log:
        yield from traces.written(folder, given.only, given.seed)
        return
    try:
        rows = trace_formats.rows_of(given.log)
    except trace_formats.Malformed as why:
        sys.exit(str(why))
    file = given.log
    if rows is not None:
        file = pathlib.Path(folder) / "log.csv"
        traces.write(file, rows)
    yield given.log.name, 1, file


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rmm", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="traces with this in their name")
    parser.add_argument("--log", type=pathlib.Path)
    parser.add_argument("--policy", action="append", default=[])
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--measured", action="store_true", help="with --costs: latencies of an H100")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--costs", action="store_true")
    shown.add_argument("--smallest", action="store_true")
    given = parser.parse_args()
    replays = Replays(given)
    print(f"A device that only counts: no GPU was involved; {datetime.date.today().isoformat()}, seed {given.seed}")
    if not replays.rmm:
        print("RMM is not there (--rmm)")
    with tempfile.TemporaryDirectory() as folder:
        written = traces_of(given, folder)
        if given.costs:
            print_costs(replays, written, MEASURED_US if given.measured else CITED_US)
        elif given.smallest:
            print_smallest(replays, written)
        else:
            print_table(replays, written)


if __name__ == "__main__":
    main()
