#!/usr/bin/python3
"""What call sites of host memory cost: a load that allocates all the time, at call depths between 5 and about 40, with
frame pointers and without, run in turn several rounds under

  glibc                          the measure of all others
  ours                           as it is by default: counted, one block in 512 KiB with its call site
  CISTERN_HOST=off, SITES=off    neither counted nor sampled; counted only
  CISTERN_SITES=all              every block with its call site
  heaptrack --raw                which has that too; with the compressor that runs beside, without its interpreter
  LeakSanitizer                  which has that too; compiled in, and it sees whole stacks with frame pointers only

    bench/host_sites.py BUILD_DIRECTORY [--rounds N] [--threads N] [--documents N] [--library FILE] [--json FILE]
                        [--no-instructions]

CPU time is user and system time of all processes. Times and peaks are minima of the rounds. The differences between the
first three are smaller than the noise of times, so callgrind counts their instructions as well. The exit status is 1 if
a goal is missed: `all` at most 4 times glibc's CPU time with frame pointers and 6 times without; accounting and samples
at most 1 % of the instructions."""
import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import sys
import tempfile

import host

BUILDS = {"frame pointers": "sites_load_fp", "no frame pointers": "sites_load_nofp"}
LEAK_BUILD = "sites_load_lsan"
OURS = {"ours": {}, "CISTERN_HOST=off": {"CISTERN_HOST": "off"}, "SITES=off": {"CISTERN_SITES": "off"},
        "SITES=all": {"CISTERN_SITES": "all"}}
ALL_GOALS = {"frame pointers": 3.5, "no frame pointers": 3.5}
ACCOUNTING_GOAL, SEED, COUNTED_PART = 0.01, 1, 10


class Runner:
    def __init__(self, given):
        self.given, self.expected = given, None
        self.host = host.Measure(given.build)

    def load(self, program, documents):
        return [self.given.build / "bench" / program, self.given.threads, documents, SEED]

    def measure(self, command, options, preload=()):
        """What the program used; what it printed is checked."""
        used, printed = self.host.run(command, host.Allocator("", preload, options), {})
        sums = re.findall(rb"^\d+$", printed, re.MULTILINE)
        self.expected = self.expected or sums
        if sums != self.expected or len(sums) != 1:
            raise host.Failed(f"{command[0]} printed {sums}, not {self.expected}")
        return used

    def variants(self):
        """(build, name) to a function that runs it once."""
        documents, runs = self.given.documents, {}
        for build, program in BUILDS.items():
            command = self.load(program, documents)
            runs[build, "glibc"] = lambda command=command: self.measure(command, {})
            for name, options in OURS.items():
                runs[build, name] = lambda command=command, options=options: self.measure(
                    command, options, [self.given.library])
            if shutil.which("heaptrack"):
                runs[build, "heaptrack"] = lambda command=command: self.measure_heaptrack(command)
        leak_command = self.load(LEAK_BUILD, documents)
        if leak_command[0].exists():
            runs["frame pointers", "LeakSanitizer"] = lambda: self.measure(leak_command, {})
        return runs

    # Raw: its interpreter runs out of memory at once on some systems, and the program ends with it.
    def measure_heaptrack(self, command):
        with tempfile.TemporaryDirectory() as folder:
            return self.measure(["heaptrack", "--raw", "--output", pathlib.Path(folder) / "data", *command], {})

    def instructions(self, program, options):
        command = self.load(program, self.given.documents // COUNTED_PART)
        return host.instructions_of(self.host, host.Allocator("", [self.given.library], options), command)


def measured(runs, rounds):
    """Every variant once a round, each round beginning with another one."""
    results, names = {key: [] for key in runs}, list(runs)
    for number in range(rounds):
        for key in names[number % len(names):] + names[:number % len(names)]:
            results[key].append(runs[key]())
    return {key: {figure: min(run[figure] for run in of) for figure in ("cpu_us", "wall_us", "peak_kib")}
            for key, of in results.items()}


def print_times(best):
    print(f"\n{'':20}{'':18}{'CPU ms':>9}{'ratio':>8}{'wall ms':>9}{'ratio':>8}{'peak MiB':>10}")
    for (build, name), one in best.items():
        plain = best[build, "glibc"]
        print(f"{build:20}{name:18}{one['cpu_us'] / 1000:9.0f}{one['cpu_us'] / plain['cpu_us']:8.2f}"
              f"{one['wall_us'] / 1000:9.0f}{one['wall_us'] / plain['wall_us']:8.2f}{one['peak_kib'] / 1024:10.1f}")


def count_instructions(runner):
    """By variant of ours; what differs is what accounting and samples cost."""
    counted = {name: runner.instructions(BUILDS["no frame pointers"], OURS[name])
               for name in ("ours", "CISTERN_HOST=off", "SITES=off")}
    print(f"\nInstructions of 1/{COUNTED_PART} of the load")
    for name, count in counted.items():
        print(f"  {name:18}{count:14,}  default is {counted['ours'] / count - 1:+.3%}")
    return counted


def missed_goals(best, counted):
    for build, goal in ALL_GOALS.items():
        ratio = best[build, "SITES=all"]["cpu_us"] / best[build, "glibc"]["cpu_us"]
        if ratio > goal:
            yield f"CISTERN_SITES=all with {build}: {ratio:.2f} times glibc, the goal is {goal}"
    for name in set(counted) - {"ours"}:
        if counted["ours"] / counted[name] - 1 > ACCOUNTING_GOAL:
            yield f"the default against {name}: more than {ACCOUNTING_GOAL:.0%} more instructions"


def arguments_given():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="configured with -DCISTERN_BENCH=ON")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--documents", type=int, default=40_000, help="of each thread")
    parser.add_argument("--library", type=pathlib.Path, help="ours; default: libcistern.so of the build directory")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--no-instructions", action="store_true")
    given = parser.parse_args()
    given.build = given.build.resolve()
    given.library = (given.library or given.build / "libcistern.so").resolve()
    return given


def main():
    given = arguments_given()
    runner = Runner(given)
    print(f"{platform.machine()}, {os.cpu_count()} cores, glibc {platform.libc_ver()[1]};"
          f" {datetime.date.today().isoformat()}; {given.rounds} rounds, {given.threads} threads,"
          f" {given.documents} documents each, seed {SEED}")
    runs = runner.variants()
    for build, name in (("frame pointers", "heaptrack"), ("frame pointers", "LeakSanitizer")):
        if (build, name) not in runs:
            print(f"left out: {name}, which is not there")
    try:
        best = measured(runs, given.rounds)
        print_times(best)
        counted = {}
        if not given.no_instructions and not shutil.which("valgrind"):
            print("left out: instructions, valgrind is not installed")
        elif not given.no_instructions:
            counted = count_instructions(runner)
    except host.Failed as failure:
        sys.exit(f"FAILED: {failure}")
    missed = list(missed_goals(best, counted))
    print("".join(f"MISSED: {goal}\n" for goal in missed), end="")
    if given.json:
        given.json.write_text(json.dumps({
            "date": datetime.date.today().isoformat(), "machine": platform.machine(), "cpus": os.cpu_count(),
            "glibc": platform.libc_ver()[1], "rounds": given.rounds, "threads": given.threads,
            "documents": given.documents, "seed": SEED, "instructions": counted,
            "minima": [{"build": build, "variant": name, **one} for (build, name), one in best.items()],
            "missed": missed}, indent=1) + "\n")
    sys.exit(1 if missed else 0)


main()
