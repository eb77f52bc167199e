#!/usr/bin/python3
"""Runs a CUDA program plain, plain again (the control), preloaded, preloaded with deferred order, preloaded with the
pools off, with all its pageable copies staged, and with its small copies sent together. Every way must give the same
stdout, stderr and exit code, and a report whose figures agree with what the program says it made. What is expected
of a program stands in its first comment (say.hpp)."""
import argparse
import collections
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import ways  # noqa: E402
from report_rows import gpu_rows  # noqa: E402

# The options of each preloaded way.
WAYS = {
    "preload": {},
    "preload, deferred": {"CISTERN_DEVICE_ORDER": "deferred"},
    "preload, ranges": {"CISTERN_DEVICE_POOL": "ranges"},
    "preload, ranges, deferred": {"CISTERN_DEVICE_POOL": "ranges", "CISTERN_DEVICE_ORDER": "deferred"},
    "preload, pools off": {"CISTERN_DEVICE_POOL": "off", "CISTERN_PINNED_POOL": "off", "CISTERN_STAGING": "off"},
    "preload, staged": {"CISTERN_STAGING": "on"},
    "preload, gathered": {"CISTERN_GATHER": "on"},
}
TRAITS_OF_THE_BUILD = ("per-thread", "nvcc", "link")


def counts_of(text):
    """`device:2,pinned:1` as a mapping."""
    return {kind: int(count) for kind, count in (part.split(":") for part in text.split(","))}


class Expectations:
    """The `harness:` lines of a program's first comment."""

    def __init__(self, source, shim):
        self.leaks, self.leak_sites, self.recycles, self.says, self.says_of_ranges = {}, [], [], [], []
        self.exit, self.dropped = 0, {}
        self.figures, self.simulator_only = True, False
        self.stages, self.passes_on = False, []
        self.unknown = []
        self.gathers = True
        self.environment, self.argument_lists, self.leaks_of = {}, [], []
        for line in source.read_text().splitlines():
            if not line.startswith(("//", "#")):
                break
            found = re.match(r"(?://|#) harness: ([a-z-]+)(?:=(.*))?$", line)
            if found:
                self.take(*found.groups(), shim)
            elif "harness: " in line:  # clang-format has joined it to the line above it
                raise ValueError(f"{source}: not a line of its own: {line}")
        if not self.argument_lists:
            self.argument_lists, self.leaks_of = [[]], [self.leaks]

    def take(self, name, value, shim):
        if name == "leaks":
            self.leaks = counts_of(value)
        elif name == "leak-sites":
            self.leak_sites = value.split(",")
        elif name == "recycles":
            self.recycles = value.split(",")
        elif name == "says":
            self.says.append(value)
        elif name == "says-of-ranges":
            self.says_of_ranges.append(value)
        elif name == "exit":
            self.exit = int(value)
        elif name == "dropped":
            self.dropped = counts_of(value)
        elif name == "stages":
            self.stages = value == "both"
        elif name == "without-gather":  # the value says why
            self.gathers = False
        elif name == "passes-on":
            self.passes_on = value.split(",")
        elif name == "unknown":
            self.unknown = value.split(",")
        elif name == "figures":
            self.figures = value != "off"
        elif name == "simulator-only":
            self.simulator_only = True
        elif name == "environment":
            self.environment.update([value.split("=", 1)])
        elif name == "arguments":
            self.argument_lists.append(value.replace("{shim}", shim or "none").split())
            self.leaks_of.append(self.leaks)
        elif name not in TRAITS_OF_THE_BUILD:
            raise ValueError(f"unknown expectation: {name}")


class Outcome:
    def __init__(self, process, stdout, stderr, reports):
        self.pid, self.code, self.stdout, self.reports = process.pid, process.returncode, stdout, reports
        # What the shim says of misuse and of being out of memory is its own.
        lines = stderr.splitlines()
        self.stderr = [line for line in lines if not line.startswith("cistern")]
        self.said = [line for line in lines if line.startswith("cistern")]

    def report(self):
        return self.reports.get(self.pid)

    def figure(self, kind, name):
        """Of the program itself, summed over the devices."""
        return sum(figures.get(name, 0) for key, figures in self.report()["kinds"].items()
                   if key.split(":")[0] == kind)


class Runner:
    def __init__(self, shim, simulator, expectations):
        self.shim, self.simulator, self.expectations = shim, simulator, expectations

    def environment(self, options, reports):
        kept = {name: value for name, value in os.environ.items()
                if name not in ("LD_PRELOAD", "OPENCL_LAYERS") and not name.startswith(("CISTERN_", "SIMCUDA_"))}
        if self.simulator:
            kept["LD_LIBRARY_PATH"] = ":".join(filter(None, (self.simulator, kept.get("LD_LIBRARY_PATH"))))
        kept.update(self.expectations.environment)
        if options is not None:
            kept.update(options, LD_PRELOAD=self.shim, CISTERN_REPORT=f"{reports}/%p.json",
                        CISTERN_REPORT_FORMAT="json")
        return kept

    def run(self, command, options=None):
        return Outcome(*ways.run(command, lambda reports: self.environment(options, reports)))


def compare(reference, outcome, way, expectations):
    """Complaints about what a user would see."""
    if outcome.stdout != reference.stdout:
        yield f"stdout differs\n{ways.difference(reference.stdout.splitlines(), outcome.stdout.splitlines(), way)}"
    if outcome.stderr != reference.stderr:
        yield f"stderr differs\n{ways.difference(reference.stderr, outcome.stderr, way)}"
    if outcome.code != expectations.exit:
        last = "\n".join((outcome.stdout.splitlines() + outcome.stderr)[-3:])
        yield f"exit code {outcome.code}, expected {expectations.exit}; its last lines:\n{last}"
    for line in outcome.stderr:
        if line.endswith("is not simulated"):
            yield f"the comparison is worth nothing: {line}"
    if not re.search(r"^made: ", outcome.stdout, re.M):
        yield "the program did not say what it made"


def check_said(outcome, way, expectations):
    """Complaints about the shim's own lines; blocks that no pool keeps are unknown to it once freed."""
    pool = WAYS[way].get("CISTERN_DEVICE_POOL")
    if pool == "off":
        return
    for pattern in expectations.says + (expectations.says_of_ranges if pool == "ranges" else []):
        if not any(re.fullmatch(pattern, line) for line in outcome.said):
            yield f"no line says {pattern}: {outcome.said}"


def made_by(outcome):
    line = re.findall(r"^made: (.*)$", outcome.stdout, re.M)
    return {kind: int(count) for kind, count in re.findall(r"([a-z]+) (\d+)", line[-1])} if line else {}


def check_figures(outcome, way, expectations):
    """Complaints about the report."""
    if not outcome.report():
        yield f"no report of the program (reports of {sorted(outcome.reports)})"
        return
    for kind, count in made_by(outcome).items():
        if kind == "external":
            continue  # imported, not made
        figures = {name: outcome.figure(kind, name) for name in
                   ("allocations", "frees", "pool_hits", "driver_allocs", "driver_frees", "live_blocks", "live_bytes",
                    "peak_bytes", "failed")}
        expected_leaks = expectations.leaks.get(kind, 0)
        rules = {
            f"allocations are the {count} that the program made": figures["allocations"] == count,
            f"live blocks are the {expected_leaks} expected": figures["live_blocks"] == expected_leaks,
            "allocations are frees and live blocks":
                figures["allocations"] == figures["frees"] + figures["live_blocks"],
            "no more hits than allocations": figures["pool_hits"] <= figures["allocations"],
            "the driver freed no more than it gave": figures["driver_frees"] <= figures["driver_allocs"],
            "the peak is not below the live bytes": figures["peak_bytes"] >= figures["live_bytes"],
        }
        pool = WAYS[way].get("CISTERN_DEVICE_POOL", "on")
        if pool == "off":
            rules["a pool that is off serves nothing"] = figures["pool_hits"] == 0
        elif kind in expectations.recycles and count:  # none: not without a second device
            rules["the pool served something"] = figures["pool_hits"] > 0
        # Ranges take memory in pieces, not by allocations.
        if kind == "device" and pool != "ranges" and not figures["failed"]:  # a retry after a trim is a driver call too
            rules["allocations are hits and driver allocations"] = (
                figures["allocations"] == figures["pool_hits"] + figures["driver_allocs"])
        if kind == "graph" and count:
            rules["the driver was asked for its memory of graphs"] = all(
                0 < figures.get("graph_memory", {}).get("used_peak_bytes", 0)
                <= figures["graph_memory"]["reserved_peak_bytes"]
                for name, figures in outcome.report()["kinds"].items() if name.startswith("graph:"))
        for rule, holds in rules.items():
            if not holds:
                yield f"{kind}: not true: {rule}; figures {figures}"
    unknown = outcome.report().get("unknown_functions", {}).get("names", [])
    if unknown != expectations.unknown:
        yield f"functions unknown to this version: {unknown}, expected {expectations.unknown}"
    yield from check_leaks(outcome.report(), expectations)


def check_staging(outcome, way, expectations):
    """Complaints about copies that did not go the way that was asked for, in the program or a child of it."""
    if WAYS[way].get("CISTERN_STAGING") != "on" or not expectations.stages:
        return
    rows = [row for report in outcome.reports.values() for row in report.get("staging", [])]
    for direction in ("host to device", "device to host"):
        if not any(row["staged_bytes"] for row in rows if row["direction"] == direction):
            yield f"nothing went through pinned chunks, {direction}: {rows}"
    for reason in expectations.passes_on:
        if not any(row["passed_on"].get(reason) for row in rows):
            yield f"no copy was passed on as {reason}: {rows}"


def check_leaks(report, expectations):
    leaked, dropped = collections.Counter(), collections.Counter()
    functions = []
    for leak in gpu_rows(report):
        kind = leak["kind"].split(":")[0]
        if kind in ("host", "opencl"):
            continue
        (dropped if "went with its context" in leak["class"] else leaked)[kind] += leak["blocks"]
        functions.append([frame.get("function") or "" for frame in leak["frames"]])
    for what, found, expected in (("live", leaked, expectations.leaks), ("dropped", dropped, expectations.dropped)):
        if found != expected:
            yield f"leaks, {what}: {dict(found)}, expected {expected}"
    for name in expectations.leak_sites:
        if not any(name in function for stack in functions for function in stack):
            yield f"no leak's call site names {name}: {functions}"


def judge(command, runner, expectations, figures):
    """Runs every way; prints what is wrong and returns how many complaints there were."""
    complaints = 0

    def complain(way, texts):
        nonlocal complaints
        for text in texts:
            complaints += 1
            print(f"{' '.join(command)}: {way}: {text}")

    reference = runner.run(command)
    complain("plain", compare(reference, reference, "plain", expectations))
    complain("plain again", compare(reference, runner.run(command), "plain again", expectations))
    hits = {}
    for way, options in WAYS.items():
        if "CISTERN_GATHER" in options and not expectations.gathers:
            continue
        if not runner.shim:
            break
        outcome = runner.run(command, options)
        complain(way, compare(reference, outcome, way, expectations))
        if figures and expectations.figures:
            complain(way, check_figures(outcome, way, expectations))
        if figures:
            complain(way, check_said(outcome, way, expectations))
            complain(way, check_staging(outcome, way, expectations))
        if outcome.report():
            hits[way] = ", ".join(f"{kind} {outcome.figure(kind, 'pool_hits')} of {outcome.figure(kind, 'allocations')}"
                                  for kind in ("device", "pinned"))
    print(f"{' '.join(map(os.path.basename, command))}: {complaints} complaints; pool hits: {hits}")
    return complaints


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shim", help="absolute path of libcistern.so; without it only plain and control are run")
    parser.add_argument("--simulator", help="where the simulated driver lies, for LD_LIBRARY_PATH; absent: a real one")
    parser.add_argument("--no-figures", action="store_true", help="compare what the user sees, not the report")
    parser.add_argument("--sources", default=pathlib.Path(__file__).parent / "programs", type=pathlib.Path)
    parser.add_argument("programs", nargs="+", type=pathlib.Path, help="built programs, named like their sources")
    arguments = parser.parse_args()
    complaints = 0
    for program in arguments.programs:
        program = program.absolute()
        source = program if program.suffix == ".py" else arguments.sources / f"{program.name}.cpp"
        expectations = Expectations(source, arguments.shim)
        if expectations.simulator_only and not arguments.simulator:
            print(f"{program.name}: only on the simulator")
            continue
        start = [sys.executable, str(program)] if program.suffix == ".py" else [str(program)]
        runner = Runner(arguments.shim, arguments.simulator, expectations)
        for more, expectations.leaks in zip(expectations.argument_lists, expectations.leaks_of):
            complaints += judge([*start, *more], runner, expectations, not arguments.no_figures)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
