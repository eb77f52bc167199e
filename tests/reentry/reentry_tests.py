#!/usr/bin/python3
"""Nothing that another library may define is called in a way that keeps it from allocating. For every function that
libcistern.so or its unwinder takes from other libraries, or looks up, a stub is preloaded that allocates and frees
blocks of 1 byte to 40 MiB on every call and goes on to the real function. Before Cistern and behind it, a program has
to end as it does plain. How often each was called is printed, and which functions were not asked, and why.

A time limit is a hang: it is many times what a loaded machine needs."""
import argparse
import concurrent.futures
import json
import mmap
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HERE = ROOT / "tests/reentry"
SOURCES = ("pool", "stats", "backends", "shim")  # where the names are that are looked up
TIME_LIMIT_S = 100
# The compiler, the loader and every other library call these as if they were instructions.
OF_BYTES = re.compile(r"_*(mem|str|stp|wmem|wcs)")
OPTIONS = ("-O1", "-g", "-fPIC", "-fno-builtin", "-Wall", "-Wextra")


def output_of(*command):
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout


def functions(path, undefined):
    """What an object takes from others, or what it defines for them; weak ones of no type may be either."""
    names = set()
    for line in output_of("readelf", "--wide", "--dyn-syms", path).splitlines():
        fields = line.split()
        if len(fields) < 8 or fields[4] == "LOCAL" or (fields[6] == "UND") != undefined:
            continue
        if fields[3] in ("FUNC", "IFUNC", "GNU_IFUNC") or undefined and fields[3] == "NOTYPE":
            names.add(fields[7].partition("@")[0])
    return names


def library_path(name):
    """Of an installed library, by the loader's own list; None where there is none."""
    lines = output_of("/sbin/ldconfig", "-p").splitlines()
    return next((line.split(" => ")[1] for line in lines if line.split()[0] == name), None)


def words_of_the_sources():
    """Every word that is a whole string, and every name in a table of process.def: what can be looked up is there."""
    words = set()
    for path in (path for folder in SOURCES for path in (ROOT / folder).rglob("*")):
        if path.suffix in (".cpp", ".hpp", ".def", ".S") and not path.stem.endswith("_test"):
            words.update(re.findall(r'"([A-Za-z_]\w*)"|^PROCESS_CALL\((\w+)\)', path.read_text(), re.MULTILINE))
    return {word for pair in words for word in pair if word}


def allocators():
    """The functions that Cistern serves: a stub of one that allocates is an allocator."""
    rows = (ROOT / "shim/symbols/host.def").read_text()
    return set(re.findall(r"^HOST_CALL\(\w+, [^,]+, (\w+),|^HOST_(?:NEW|DELETE)\((\w+),", rows, re.MULTILINE))


class Asked:
    """The functions to stub, and those that are not, by the reason."""

    def __init__(self, shim):
        providers = {name: path for name in ("libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1",
                                             "liblzma.so.5") if (path := library_path(name))}
        provided = {name: functions(path, undefined=False) for name, path in providers.items()}
        unwinder = b"libunwind.so.8\0" in shim.read_bytes() and library_path("libunwind.so.8")
        wanted = {"imports": functions(shim, undefined=True),
                  "imports of the unwinder": functions(unwinder, undefined=True) if unwinder else set(),
                  "look-ups": words_of_the_sources() & provided["libc.so.6"]}
        family = {name for pair in allocators() for name in pair if name}
        self.names, self.left_out, seen = [], [], set()
        for where, names in wanted.items():
            for name in sorted(names - seen):
                seen.add(name)
                if name in family:
                    self.left_out.append((name, "Cistern serves it"))
                elif OF_BYTES.match(name):
                    self.left_out.append((name, "of mem* and str*"))
                elif not any(name in names for names in provided.values()):
                    self.left_out.append((name, "no library here defines it"))
                else:
                    self.names.append(name)
            print(f"{where}: {len(names)} names")
        # A library that is opened privately has no real function behind a stub, unless the stub needs it.
        self.needed = {name: "liblzma.so.5" for name in self.names if name in provided.get("liblzma.so.5", ())}


class Bench:
    """A folder with the built stubs, in which programs run."""

    def __init__(self, folder, compiler):
        self.folder, self.compiler = folder, compiler
        self.build("stub.o", "-c", HERE / "stub.c")

    def build(self, name, *arguments):
        output = self.folder / name
        subprocess.run([self.compiler, *OPTIONS, *map(str, arguments), "-o", str(output)], check=True)
        return output

    def stub(self, name, needed=None):
        more = ["-Wl,--no-as-needed", f"-l:{needed}"] if needed else []
        return self.build(f"{name}.so", "-shared", f"-DFUNCTION={name}", f'-DNAME="{name}"', HERE / "stub.S",
                          self.folder / "stub.o", *more)

    def run(self, command, preload, limit_s, settings=None):
        """What it printed and how it ended, and how often stubs were called."""
        with tempfile.NamedTemporaryFile(dir=self.folder, prefix="calls-") as counter:
            counter.write(bytes(mmap.PAGESIZE))
            counter.flush()
            kept = {name: value for name, value in os.environ.items()
                    if name != "LD_PRELOAD" and not name.startswith("CISTERN_")}
            kept |= {"LD_PRELOAD": ":".join(map(str, preload)), "REENTRY_CALLS": counter.name, **(settings or {})}
            process = subprocess.Popen(list(map(str, command)), env=kept, stdin=subprocess.DEVNULL, text=True,
                                       errors="replace", stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       start_new_session=True)
            try:
                out, err = process.communicate(timeout=limit_s)
                status = process.returncode
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                out, err = process.communicate()
                status = "hangs"
            counter.seek(0)
            return (out, err, status), struct.unpack("L", counter.read(struct.calcsize("L")))[0]


class Gate:
    """One program under one stub at a time, beside one allocator."""

    def __init__(self, bench, shim, command, ways, limit_s):
        self.bench, self.shim, self.command, self.ways, self.limit_s = bench, shim, command, ways, limit_s
        self.plain_result = bench.run(command, [], limit_s)[0]

    def run_way(self, stub, place, options):
        preload = [stub, self.shim] if place == "before" else [self.shim, stub]
        with tempfile.TemporaryDirectory(dir=self.bench.folder) as folder:
            settings = dict(options)
            reports = pathlib.Path(folder)
            if "CISTERN_REPORT" in settings:
                settings["CISTERN_REPORT"] = str(reports / settings["CISTERN_REPORT"])
            result, calls = self.bench.run(self.command, preload, self.limit_s, settings)
            wrong = "" if result == self.plain_result else describe(result)
            if not wrong and "CISTERN_REPORT" in settings:
                wrong = wrong_reports(reports)
            return wrong, calls

    def ask(self, name, stub):
        """Lines of what went wrong; None where the stub breaks the plain program; calls plain and in each way."""
        result, plain_calls = self.bench.run(self.command, [stub], self.limit_s)
        if result != self.plain_result:
            return None, describe(result), []
        wrong, calls = [], [plain_calls]
        for place, options in self.ways:
            line, count = self.run_way(stub, place, options)
            calls.append(count)
            if line:
                way = " ".join(map("=".join, options.items())) or "as it is"
                wrong.append(f"{name}, {place} Cistern, {way}: {line}")
        return wrong, "", calls


def describe(result):
    out, err, status = result
    said = (err or out).strip().splitlines()
    return (status if status == "hangs" else f"ends with {status}") + (f": {said[-1]}" if said else "")


def wrong_reports(folder):
    reports = list(folder.iterdir())
    try:
        whole = [bool(json.loads(path.read_text())["kinds"]["host"]) if path.suffix == ".json" else
                 "malloc" in path.read_text() for path in reports]
    except (ValueError, KeyError) as error:
        return f"a report is broken: {error}"
    return "" if whole and all(whole) else "no report, or a broken one"


REPORT = {"CISTERN_REPORT": "%p.json", "CISTERN_REPORT_FORMAT": "json"}
EVERY_SITE = {"CISTERN_SITES": "all", **REPORT}
BOTH = ("before", "behind")


class Case:
    """A program, its arguments, and the ways to run it under every stub: places and options."""

    def __init__(self, program, arguments, ways):
        self.program, self.arguments, self.ways = program, arguments, ways


CASES = {
    "Threads": {
        "short": Case("threads", (150, 2), [("before", {}), ("behind", {}), ("before", EVERY_SITE)]),
        "long": Case("threads", (300, 4), [(place, options) for place in BOTH for options in (
            {}, {"CISTERN_SITES": "off"}, REPORT, EVERY_SITE, {"CISTERN_REPORT": "%p.txt", "CISTERN_SITES": "all"},
            {"CISTERN_HOST_POOL": "off", **EVERY_SITE}, {"CISTERN_HUGE_PAGES": "thp"}, {"CISTERN_SYSTEM_CALLS": "few"},
            {"CISTERN_NUMA": "local"})]),
    },
    "Device": {
        "short": Case("device", (20,), [("before", REPORT)]),
        "long": Case("device", (40,), [(place, {**options, **EVERY_SITE}) for place in BOTH for options in (
            {}, {"CISTERN_STAGING": "on"}, {"CISTERN_DEVICE_ORDER": "deferred"}, {"CISTERN_TRIM_INTERVAL": "1ms"},
            {"CISTERN_FAIL_ON": "any"})]),
    },
}


def notices(bench, programs):
    """Over an allocator that asks the clock under its lock: the clock's stub hangs it before and behind, another does
    not."""
    command = [programs / "threads", 20, 0]
    ways = [(place, {}) for place in BOTH]
    gate = Gate(bench, programs / "liblocked.so", command, ways, limit_s=3)  # the hang is certain
    clock = gate.ask("clock_gettime", bench.stub("clock_gettime"))
    gate.limit_s = TIME_LIMIT_S
    other = gate.ask("getppid", bench.stub("getppid"))
    return {
        "a clock that is asked under a lock": clock[0] is not None and len(clock[0]) == 2 and min(clock[2][1:]) > 0,
        "a function that is never called": other[0] == [] and not any(other[2]),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shim", required=True, type=pathlib.Path)
    parser.add_argument("--programs", required=True, type=pathlib.Path)
    parser.add_argument("--compiler", default="cc")
    parser.add_argument("--long", action="store_true", help="more rounds, more children, many options")
    parser.add_argument("--only", default="", help="functions whose name matches this")
    parser.add_argument("--limit-s", type=float, default=TIME_LIMIT_S, help="what takes longer hangs")
    parser.add_argument("case", choices=("Notices", *CASES))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(pathlib.Path(folder), arguments.compiler)
        if arguments.case == "Notices":
            found = notices(bench, arguments.programs)
            for what, good in found.items():
                print(f"{what}: {'as expected' if good else 'NOT as expected'}")
            return 0 if all(found.values()) else 1
        case = CASES[arguments.case]["long" if arguments.long else "short"]
        return ask_all(bench, arguments, case)


def ask_all(bench, arguments, case):
    asked = Asked(arguments.shim)
    names = [name for name in asked.names if re.search(arguments.only, name)]
    command = [arguments.programs / case.program, *case.arguments]
    gate = Gate(bench, arguments.shim, command, case.ways, arguments.limit_s)
    failed = called = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as workers:
        results = workers.map(lambda name: gate.ask(name, bench.stub(name, asked.needed.get(name))), names)
        for name, (wrong, why, calls) in zip(names, results):
            if wrong is None:
                asked.left_out.append((name, f"the plain program {why}"))
                continue
            failed += len(wrong)
            called += any(calls[1:])
            print(f"{name}: called {calls[0]} times plain, {', '.join(map(str, calls[1:]))} with Cistern", flush=True)
            for line in wrong:
                print(f"FAILED: {line}", flush=True)
    for name, why in asked.left_out:
        print(f"not asked: {name}: {why}")
    print(f"{len(names)} functions, {called} of them called; {failed} of {len(case.ways)} ways each failed")
    # Some that every process calls: else the stubs are not in the way.
    return 1 if failed or not arguments.only and called < 20 else 0


if __name__ == "__main__":
    sys.exit(main())
