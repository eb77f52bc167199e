#!/usr/bin/python3
"""Measures two builds of Cistern in turn, several rounds: a table of before, after and ratio for what programs pay.

    bench/before_after.py BEFORE AFTER [--rounds N] [--parts NAME...] [--json FILE]

BEFORE and AFTER are build directories, both configured with -DCISTERN_BENCH=ON. Each side runs the benchmarks' programs
of its own build, because the C interface may differ. Both run on the simulated driver of AFTER, so that a change of the
driver is not taken for one of Cistern.

A value is the minimum of the rounds, and less is better. A round begins with another side than the last one. Rows in
lines that say `plain` run without Cistern: they differ by nothing but the noise of the machine. Parts whose name begins
with `instructions` are counted by callgrind, once: they do not depend on what else the machine does. A row is marked
where it is more than 3 % slower, or has more than 1 % more instructions."""
import argparse
import dataclasses
import json
import os
import pathlib
import subprocess
import tempfile

import cuda
import ends
import host
import library
import opencl
import staging

SIDES = ("before", "after")
TIMED_LIMIT, COUNTED_LIMIT = 1.03, 1.01
WIDE = 76
MILLISECONDS, STARTS, SEED = 20, 20, 1
MIXED_STEPS, MIXED_WAYS = 5000, ("strict, sites on", "deferred, sites on")
STAGED_MIB = 16
LIBRARY_LOADS = ((100, 1), (100_000, 1), (100, 4))
TIMEOUT_S = 1200
# Rounds by CISTERN_SITES. Where blocks are sampled at random, their number differs too much in fewer rounds.
COUNTED_ROUNDS = {"off": 20_000, "gpu": 200_000}
COUNTED_MEMORY = {"SIMCUDA_MEMORY": str(1 << 30)}  # Under valgrind there are fewer addresses.
PROFILED_PAIRS = 20_000
PROFILED = (("device", 4096), ("device", 1 << 20), ("pinned", 4096))


@dataclasses.dataclass
class Side:
    """A folder that looks like a build directory, with the simulated driver that both sides use."""
    name: str
    build: pathlib.Path

    def __post_init__(self):
        self.shim = self.build / "libcistern.so"
        self.measure = host.Measure(self.build)
        self.preload = host.Allocator(self.name, [self.shim])


def side_of(name, build, folder, driver):
    made = folder / name
    (made / "tests").mkdir(parents=True)
    for path in ("libcistern.so", "bench"):
        (made / path).symlink_to(build / path)
    (made / "tests" / "simcuda").symlink_to(driver / "tests" / "simcuda")
    return Side(name, made)


# --- Parts that are timed: {row: value} of one round.

def cpu_ms(side, jobs):
    return {job.name: job.run(side.measure, side.preload)["cpu_us"] / 1e3 for job in jobs}


def host_loops(side, _folder):
    rows = {}
    for loop, size, count in host.NANOSECOND_LOOPS:
        job = host.Job(f"{loop} {size} B", [side.build / "bench" / "host_micro", loop, size, count])
        rows |= {job.name: cpu_ms(side, [job])[job.name] * 1e6 / count}
    return rows


def host_workloads(side, _folder):
    return cpu_ms(side, host.workload_jobs(side.build, 2))


def starts(side, _folder):
    return {"/bin/true": min(cpu_ms(side, [host.Job("", ["/bin/true"])])[""] for _ in range(STARTS))}


def pairs_of(bench, way):
    while True:
        try:
            return bench.run(way, cuda.SIMULATED, ["pairs", MILLISECONDS, SEED], **cuda.TIMED)
        except json.JSONDecodeError:
            pass  # The time of a pair is infinite: the machine was too busy for one.


def cuda_pairs(side, _folder):
    bench, rows = cuda.Bench(side.build, False), {}
    for way in cuda.WAYS:
        for result in pairs_of(bench, way):
            rows[f"{result['name']}, {way}"] = result["processor_ns"]
    return rows


def cuda_calls(side, _folder):
    bench, rows = cuda.Bench(side.build, False), {}
    for way in ("plain", "strict, sites off", "strict, sites on"):
        for result in bench.run(way, cuda.SIMULATED, ["calls", MILLISECONDS], **cuda.TIMED):
            rows[f"{result['name']}, {way}"] = result["ns"]
    return rows


def cuda_mixed(side, _folder):
    bench, rows = cuda.Bench(side.build, False), {}
    for way in MIXED_WAYS:
        run = cuda.run_mixed(bench, cuda.SIMULATED | cuda.ASSUMED, way, cuda.CAPS["large cap"], SEED, MIXED_STEPS)
        rows |= {f"{way}, us per pair": run["ns"] / 1e3, f"{way}, driver calls": run["driver_calls"],
                 f"{way}, reserved/live": run["ratio"]}
    return rows


def opencl_buffers(side, _folder):
    program = side.build / "bench" / "opencl_buffers"
    return {f"{name}, {way}": value for way in opencl.WAYS
            for name, value in opencl.buffers(program, side.shim, way).items()}


def library_pairs(side, _folder):
    rows = {}
    for live, threads in LIBRARY_LOADS:
        for way, shim in (("alone", None), ("preloaded", side.shim)):
            found = library.run(side.build / "bench" / "library_pairs", side.build, shim, live, threads)
            rows |= {f"{name}, {live:,} live, {threads} threads, {way}": mean for name, (mean, _) in found.items()}
    return rows


def staged_copies(side, _folder):
    rows = {}
    for name, machine in staging.MACHINES.items():
        for way, setting in staging.WAYS.items():
            for row in staging.run(side.build, False, machine, setting, [STAGED_MIB * staging.MIB]):
                label = f"{row['memory']} {row['direction']}, {row['streams']} streams, {way}; {name}"
                rows[label.replace("simulated, ", "")] = staging.MIB / row["rate"] * 1e6
    return rows


def process_ends(side, folder):
    program = folder / "ends"
    if not program.exists():
        subprocess.run(["gcc", "-O2", "-fno-builtin-malloc", "-fno-builtin-free", ends.ROOT / "bench" / "ends.c", "-o",
                        program, "-lpthread"], check=True)
    rows = {}
    for row, arguments in (ends.WHOLE | ends.EACH).items():
        if "busy" in row:
            continue  # The busy threads' own time would be counted.
        for mode, settings in ends.MODES.items():
            environment = {"LD_PRELOAD": str(side.shim), **settings}
            rows[f"{row}, {mode}"] = ends.measured([program, *arguments], environment, folder / "reports")[1]
    return rows


# --- Parts that are counted, the same in every round.

def instructions(side, command, options, **more):
    """All that a program executes, without Cistern where there are no options."""
    environment = {**cuda.SIMULATED, **COUNTED_MEMORY, "LD_LIBRARY_PATH": str(side.build / "tests" / "simcuda"),
                   "CISTERN_REPORT": "none", **(options or {}), **more}
    allocator = host.Allocator(side.name, [] if options is None else [side.shim], environment)
    return host.instructions_of(side.measure, allocator, command)


def instructions_of_a_round(side, command, rounds, options, **more):
    once, twice = (instructions(side, [*command, times * rounds], options, **more) for times in (1, 2))
    return (twice - once) / rounds


def host_instructions(side, _folder):
    program = side.build / "bench" / "host_micro"
    return {f"{loop} {size} B, sites {sites}":
            instructions_of_a_round(side, [program, loop, size], rounds, {}, CISTERN_SITES=sites)
            for loop in ("pair", "fifo") for size in host.INSTRUCTION_SIZES for sites, rounds in COUNTED_ROUNDS.items()}


def workload_instructions(side, _folder):
    return {job.name: instructions(side, job.command, {}) / 1e6 for job in host.workload_jobs(side.build, 1)}


def cuda_instructions(side, _folder):
    program = side.build / "bench" / "cuda_blocks"
    return {f"{kind} {size >> 10} KiB, {way}":
            instructions_of_a_round(side, [program, "profile", kind, size], PROFILED_PAIRS, options)
            for kind, size in PROFILED for way, options in cuda.WAYS.items()}


def other_instructions(side, _folder):
    pairs = [side.build / "bench" / "library_pairs", 100, 1]
    return {"/bin/true": instructions(side, ["/bin/true"], {}),
            "bench/library.py, 100 live, 1 thread, alone": instructions(side, pairs, None),
            "bench/library.py, 100 live, 1 thread, preloaded": instructions(side, pairs, {})}


TIMED = {
    "host loops, ns of processors a pair": host_loops,
    "host workloads, ms of processors": host_workloads,
    "start and end of a process, ms of processors": starts,
    "cuda pairs, ns of processors": cuda_pairs,
    "cuda calls, ns": cuda_calls,
    "cuda mixed sizes": cuda_mixed,
    "opencl buffers, ns": opencl_buffers,
    "library pairs, ns of processors": library_pairs,
    "staged copies of 16 MiB, us per MiB": staged_copies,
    "ends of processes, ms of processors": process_ends,
}
COUNTED = {
    "instructions of host pairs": host_instructions,
    "instructions of cuda pairs": cuda_instructions,
    "instructions of whole programs": other_instructions,
    "instructions of host workloads with one thread, millions": workload_instructions,
}


def measured(title, sides, rounds, folder):
    """The minima of a part: {row: {side: value}}."""
    rows = {}
    for number in range(1 if title in COUNTED else rounds):
        for side in sides if number % 2 == 0 else sides[::-1]:
            for row, value in (TIMED | COUNTED)[title](side, folder).items():
                least = rows.setdefault(row, {})
                least[side.name] = min(value, least.get(side.name, value))
    return rows


def print_rows(title, rows, loads):
    limit = COUNTED_LIMIT if title in COUNTED else TIMED_LIMIT
    print(f"\n{title:{WIDE}}{'before':>12}{'after':>12}{'ratio':>8}   load {loads[0]:.0f} to {loads[1]:.0f}")
    for row, values in rows.items():
        if set(values) != set(SIDES):
            print(f"{row:{WIDE}}  only {', '.join(values)}")
            continue
        before, after = (values[side] for side in SIDES)
        ratio = after / before if before else float(after == before)
        print(f"{row:{WIDE}}{before:12,.4g}{after:12,.4g}{ratio:8.3f}{' *' if ratio > limit else ''}", flush=True)


def arguments_given():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=pathlib.Path)
    parser.add_argument("after", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--parts", nargs="+", default=[""], metavar="NAME", help="those that begin with one of these")
    parser.add_argument("--json", type=pathlib.Path)
    return parser.parse_args()


def main():
    given = arguments_given()
    host.TIMEOUT_S = TIMEOUT_S
    parts = [title for title in TIMED | COUNTED if title.startswith(tuple(given.parts))]
    table = {}
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        sides = [side_of(name, build.resolve(), folder, given.after.resolve())
                 for name, build in zip(SIDES, (given.before, given.after))]
        for title in parts:
            load = os.getloadavg()[0]
            table[title] = measured(title, sides, given.rounds, folder)
            print_rows(title, table[title], (load, os.getloadavg()[0]))
    if given.json:
        given.json.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
