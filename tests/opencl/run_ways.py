#!/usr/bin/python3
"""Runs a conformance program plain, plain again (the control), preloaded, as a layer, both at once, and preloaded with
the pool off and with copies through pinned chunks. Every way must give the same stdout, stderr and exit code, and a
report whose figures agree with what the program says it made. What is expected of a program stands in its first comment
(programs/observe.hpp)."""
import argparse
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import ways  # noqa: E402
from report_rows import gpu_rows  # noqa: E402

WAYS = {
    "preload": ("preload",),
    "layer": ("layer",),
    "preload and layer": ("preload", "layer"),
    "preload, pool off": ("preload", "pool off"),
    "preload, staged": ("preload", "staged"),
}


class Expectations:
    """The `harness:` lines of a program's first comment."""

    def __init__(self, source, directory):
        self.leaks, self.exit, self.recycles, self.only_shimmed, self.driver_layer = 0, 0, False, False, None
        self.transfers = self.recycles_nothing = self.only_pooled = False
        self.stages = []
        self.order = {}
        self.stderr, self.argument_lists = [], [[]]
        for line in source.read_text().splitlines():
            if not line.startswith("//"):
                break
            found = re.match(r"// harness: ([a-z-]+)(?:=(.*))?$", line)
            if found:
                self.take(*found.groups(), directory)
            elif "harness: " in line:  # clang-format has joined it to the line above it
                raise ValueError(f"{source}: not a line of its own: {line}")

    def take(self, name, value, directory):
        if name == "leaks":
            self.leaks = int(value)
        elif name == "exit":
            self.exit = int(value)
        elif name == "recycles":
            self.recycles = True
        elif name == "recycles-nothing":
            self.recycles_nothing = True
        elif name == "transfers":
            self.transfers = True
        elif name == "stages":
            self.stages = value.split(",")
        elif name == "driver-layer":
            self.driver_layer = str(directory.parent / "layers" / "driver.so")
        elif name == "order":
            case, what = value.split(":")
            self.order[case] = what.split("+") if what else []
            self.argument_lists = [[case] for case in self.order]
        elif name == "only-shimmed":
            self.only_shimmed = True
        elif name == "only-pooled":
            self.only_shimmed = self.only_pooled = True
        elif name == "stderr":
            self.stderr.append(value)
        elif name == "arguments":
            arguments = value.replace("{directory}", str(directory)).split()
            self.argument_lists = [*filter(None, self.argument_lists), arguments]
        elif name == "seeds":
            self.argument_lists = [[str(seed)] for seed in range(1, int(value) + 1)]
        else:
            raise ValueError(f"unknown expectation: {name}")


class Outcome:
    def __init__(self, process, stdout, stderr, reports):
        self.pid, self.code = process.pid, process.returncode
        self.stdout, self.stderr, self.reports = stdout, stderr, reports

    def opencl(self, figure):
        """Summed over the program and the children that it executed."""
        return sum(report["kinds"].get("opencl", {}).get(figure, 0) for report in self.reports.values())

    def leaked_blocks(self):
        return sum(leak["blocks"] for report in self.reports.values() for leak in gpu_rows(report)
                   if leak["kind"] == "opencl")


def environment(shim, way, reports, driver_layer=None):
    kept = {name: value for name, value in os.environ.items()
            if name not in ("LD_PRELOAD", "OPENCL_LAYERS") and not name.startswith("CISTERN_")}
    if "preload" in way:
        kept["LD_PRELOAD"] = shim
    # The last one is the nearest to the program.
    layers = [layer for layer in (driver_layer, shim if "layer" in way else None) if layer]
    if layers:
        kept["OPENCL_LAYERS"] = ":".join(layers)
    if "pool off" in way:
        kept.update(CISTERN_OPENCL_POOL="off", CISTERN_STAGING="off")
    if "staged" in way:
        kept["CISTERN_STAGING"] = "on"
    if way:
        kept.update(CISTERN_REPORT=f"{reports}/%p.json", CISTERN_REPORT_FORMAT="json")
    return kept


def run(command, shim=None, way=(), driver_layer=None):
    return Outcome(*ways.run(command, lambda reports: environment(shim, way, reports, driver_layer)))


def compare(reference, outcome, way, expectations):
    """Complaints about what a user would see."""
    if outcome.stdout != reference.stdout:
        yield f"stdout differs\n{ways.difference(reference.stdout.splitlines(), outcome.stdout.splitlines(), way)}"
    if outcome.code != expectations.exit:
        yield f"exit code {outcome.code}, expected {expectations.exit}"
    own_lines = expectations.stderr if way in WAYS else []
    lines = outcome.stderr.splitlines()
    plain_lines = [] if expectations.only_shimmed else reference.stderr.splitlines()
    expected = [re.escape(line) for line in plain_lines] + own_lines
    if len(lines) != len(expected) or not all(map(re.fullmatch, expected, lines)):
        yield "stderr is\n  " + "\n  ".join(lines) + "\nexpected\n  " + "\n  ".join(expected)


def check_figures(outcome, way, expectations):
    """Complaints about the report."""
    if outcome.pid not in outcome.reports:
        yield f"no report of the program (reports of {sorted(outcome.reports)})"
        return
    made = sum(int(count) for count in re.findall(r"^memory objects made: (\d+)$", outcome.stdout, re.M))
    figures = {name: outcome.opencl(name) for name in
               ("allocations", "frees", "pool_hits", "pool_misses", "driver_allocs", "driver_frees", "live_blocks",
                "live_bytes", "peak_bytes", "failed")}
    leaked = outcome.leaked_blocks()
    rules = {
        f"allocations are the {made} that the program made": figures["allocations"] == made,
        f"live blocks are the {expectations.leaks} expected": figures["live_blocks"] == expectations.leaks,
        f"leaked blocks ({leaked}) are the live ones": leaked == figures["live_blocks"],
        "allocations are frees and live blocks": figures["allocations"] == figures["frees"] + figures["live_blocks"],
        "allocations are hits and driver allocations":
            figures["allocations"] == figures["pool_hits"] + figures["driver_allocs"],
        "the driver freed no more than it gave": figures["driver_frees"] <= figures["driver_allocs"],
        "the peak is not below the live bytes": figures["peak_bytes"] >= figures["live_bytes"],
    }
    if expectations.recycles_nothing:
        rules["the pool served nothing"] = figures["pool_hits"] == 0
    if "pool off" in way:
        rules["a pool that is off serves nothing"] = figures["pool_hits"] == 0
    elif expectations.recycles:
        rules["the pool served something"] = figures["pool_hits"] > 0
    for rule, holds in rules.items():
        if not holds:
            yield f"not true: {rule}; figures {figures}"


def check_transfers(outcome):
    """Complaints about the table of transfers, where the program says what it copied."""
    said = sorted(re.findall(r"^copied: (.*)$", outcome.stdout, re.M))
    rows = []
    for row in outcome.reports.get(outcome.pid, {}).get("transfers", []):
        memory = {True: "pageable", False: "pinned", None: "-"}[row.get("pageable")]
        rows.append(f"{row['direction']}, {memory}, {'goes on' if row['asynchronous'] else 'waits'}, {row['count']}, "
                    f"{row['bytes']}, {row['failed']}, {row.get('timed_bytes', 0)}")
        if row["kind"] != "opencl" or (row.get("seconds", 0) > 0) != (row.get("timed_bytes", 0) > 0):
            yield f"a row of transfers is wrong: {row}"
    tiny = [f"{row['direction']}, {row['api']}, {row['count']}, {row['bytes']}, {row['frames'][0]['function']}"
            for row in outcome.reports.get(outcome.pid, {}).get("copy_sites", [])
            if row["count"] >= 1000 and row["bytes"] <= row["count"] * 16384]
    if tiny != re.findall(r"^tiny copies: (.*)$", outcome.stdout, re.M):
        yield f"the tiny copies are {tiny}"
    for line, field in (("waited for one by one", "waited_for"), ("came back unchanged", "returned_unchanged")):
        found = [f"{row['frames'][0].get('function')}, {row['api']}, {row[field]}"
                 for row in outcome.reports.get(outcome.pid, {}).get("copy_sites", []) if row[field]]
        wanted = re.findall(rf"^{line}: (.*)$", outcome.stdout, re.M)
        if set(wanted) - set(found):
            yield f"{line} is {found}, {wanted} expected"
    if sorted(rows) != said:
        yield "the transfers are\n  " + "\n  ".join(sorted(rows)) + "\nsaid were\n  " + "\n  ".join(said)


def check_staging(outcome, way, expectations):
    """Complaints about what went through pinned chunks: everything, and nothing else, that the program says."""
    staged, reasons = 0, {}
    for row in outcome.reports.get(outcome.pid, {}).get("staging", []):
        staged += row["staged_copies"]
        for reason, copies in row["passed_on"].items():
            reasons[reason] = reasons.get(reason, 0) + copies
    wanted = sum(int(count) for count in re.findall(r"^staged copies: (\d+)$", outcome.stdout, re.M))
    if "staged" not in way:
        # A device of the processor's has the host's memory.
        if staged or ("pool off" in way and set(reasons) - {"off"}):
            yield f"{staged} staged copies, passed on {reasons}, where nothing is staged"
        return
    # How threads meet on a queue is theirs.
    if expectations.stages and staged + reasons.get("stream-in-use", 0) != wanted:
        yield f"{staged} staged copies, {wanted} expected; passed on: {reasons}"
    missing = [reason for reason in expectations.stages if reason not in reasons]
    if expectations.stages and missing:
        yield f"nothing was passed on because of {missing}: {reasons}"


def check_order(outcome, way, expected):
    """Complaints about what became of buffers that were released under commands."""
    figures = outcome.reports.get(outcome.pid, {}).get("kinds", {}).get("opencl", {})
    found = (["kept"] if figures.get("kept_in_order") else []) + sorted(figures.get("waited", {}))
    if sorted(found) != sorted(() if "pool off" in way else expected):
        yield f"released under commands: {found}, expected {expected}"


def judge(command, shim, expectations):
    """Runs every way; prints what is wrong and returns how many complaints there were."""
    complaints = 0

    def complain(way, texts):
        nonlocal complaints
        for text in texts:
            complaints += 1
            print(f"{' '.join(command)}: {way}: {text}")

    reference, driver_layer = None, expectations.driver_layer
    if not expectations.only_shimmed:
        reference = run(command, driver_layer=driver_layer)
        complain("plain", compare(reference, reference, "plain", expectations))
        again = run(command, driver_layer=driver_layer)
        complain("plain again", compare(reference, again, "plain again", expectations))
    hits = {}
    for name, way in WAYS.items():
        if not shim:
            break
        if expectations.only_pooled and "pool off" in way:
            continue
        outcome = run(command, shim, way, driver_layer)
        reference = reference or outcome
        complain(name, compare(reference, outcome, name, expectations))
        complain(name, check_figures(outcome, way, expectations))
        complain(name, check_staging(outcome, way, expectations))
        if expectations.order:
            complain(name, check_order(outcome, way, expectations.order[command[-1]]))
        if expectations.transfers:
            complain(name, check_transfers(outcome))
        hits[name] = f"{outcome.opencl('pool_hits')} of {outcome.opencl('allocations')}"
    print(f"{' '.join(map(os.path.basename, command))}: {complaints} complaints; pool hits: {hits}")
    return complaints


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shim", help="absolute path of libcistern.so; without it only plain and control are run")
    parser.add_argument("--sources", default=pathlib.Path(__file__).parent / "programs", type=pathlib.Path)
    parser.add_argument("programs", nargs="+", type=pathlib.Path, help="built programs, named like their sources")
    arguments = parser.parse_args()
    complaints = 0
    for program in arguments.programs:
        program = program.absolute()
        expectations = Expectations(arguments.sources / f"{program.name}.cpp", program.parent)
        for more in expectations.argument_lists:
            complaints += judge([str(program), *more], arguments.shim, expectations)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
