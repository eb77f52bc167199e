#!/usr/bin/python3
"""How right leaks are judged, and what that costs, beside memcheck, LeakSanitizer and AddressSanitizer.

    bench/leaks.py [BUILD_DIRECTORY] [--rounds N] [--mebibytes N] [--threads N...]

First tables: blocks of the programs tests/leaks/programs/ground_truth_*.cpp by the function that made them, whose name
says what they are, and what each tool says of them (the sanitizers list what is lost; they are compiled in, with frame
pointers). Of OpenCL buffers (PoCL) and of device, pinned and managed memory (the simulated driver of the tests) the
other tools see nothing. Answers that are false are marked with !, and counted.

Then the end of a process with so many MiB of small blocks that point at each other, and with one block of bytes, less
the end of the same process that is not judged: seconds, minima of the rounds, with the memory that was read per second;
beside it LeakSanitizer's. Both look at all of the heap. Needs g++, valgrind."""
import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[1]
MAKER = re.compile(r"\b((?:lost|hidden|indirect|possible|reachable|cycle)_\w+)")
MEMCHECK = {"Leak_DefinitelyLost": "lost", "Leak_IndirectlyLost": "indirectly lost",
            "Leak_PossiblyLost": "possibly lost", "Leak_StillReachable": "reachable"}
SHORT = {"indirectly lost": "indirectly", "possibly lost": "possibly", "held only by the driver": "by driver"}
TOOLS = ("Cistern", "memcheck", "LeakSanitizer", "AddressSanitizer")
PROGRAMS = ROOT / "tests" / "leaks" / "programs"


def build(source, program, *flags):
    subprocess.run(["g++", "-std=c++20", "-g", "-O1", "-fno-omit-frame-pointer", *flags, str(source), "-o",
                    str(program), "-lpthread"], check=True)
    return program


def run(command, **environment):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CISTERN_", "LD_PRELOAD"))}
    return subprocess.run(list(map(str, command)), env=kept | {name: str(value) for name, value in environment.items()},
                          capture_output=True, text=True, check=False)


def maker(names):
    found = (MAKER.search(name or "") for name in names)
    return next((one.group(1) for one in found if one), None)


class Table(dict):
    def add(self, tool, names, word, blocks):
        name = maker(names)
        if name:
            self.setdefault(name, {}).setdefault(tool, collections.Counter())[word] += blocks


def add_cistern(table, given, folder, command, kinds, **environment):
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    done = run(command, LD_PRELOAD=given.shim, CISTERN_SITES="all", CISTERN_REPORT=report, CISTERN_LEAK_CHECK="1min",
               CISTERN_REPORT_FORMAT="json", **environment)
    for row in json.loads(report.read_text())["leaks"]:
        if row["kind"] in kinds:
            table.add("Cistern", [frame.get("function") for frame in row["frames"]], row["class"], row["blocks"])
    return collections.Counter({name: int(blocks) for name, blocks in map(str.split, done.stdout.splitlines())})


def add_memcheck(table, folder, command):
    output = folder / "memcheck.xml"
    run(["valgrind", "--leak-check=full", "--show-leak-kinds=all", "--num-callers=40", "--fair-sched=yes",
         "--max-threads=5000", "--xml=yes", f"--xml-file={output}", *command])
    for error in xml.etree.ElementTree.parse(output).getroot().iter("error"):
        if error.findtext("kind") in MEMCHECK:
            table.add("memcheck", [frame.findtext("fn") for frame in error.iter("frame")],
                      MEMCHECK[error.findtext("kind")], int(error.findtext("xwhat/leakedblocks")))


def add_sanitizer(table, tool, command):
    leaks = run(command, LSAN_OPTIONS="exitcode=0", ASAN_OPTIONS="exitcode=0").stderr
    listed = re.findall(r"(Direct|Indirect) leak of \d+ byte\(s\) in (\d+) object.*\n((?: +#.*\n)+)", leaks)
    for kind, blocks, stack in listed:
        table.add(tool, stack.splitlines(), "lost" if kind == "Direct" else "indirectly lost", int(blocks))


def wrong(name, tool, word):
    """A sanitizer lists what is lost, and nothing else."""
    if word == "-":
        return tool in TOOLS[2:] and name.startswith(("lost_", "indirect_", "cycle_"))
    expected = {"reachable": {"reachable"}, "hidden": {"reachable"}, "possible": {"possibly lost", "reachable"}}
    lost = {"lost", "indirectly lost", "held only by the driver"}
    return word not in expected.get(name.split("_")[0], lost)


def show(title, made, table, tools, falses):
    print(f"{title}\n{'made by':<32} {'blocks':>6}  " + "".join(f"{tool:<28}" for tool in tools))
    made.pop("lost_struct", None)
    for name in sorted(set(made) | set(table)):
        cells = []
        for tool in tools:
            words = table.get(name, {}).get(tool) or {"-": made[name]}
            false = sum(blocks for word, blocks in words.items() if wrong(name, tool, word))
            if false:
                falses[tool].append(f"{false} of {title}: {name}")
            text = ", ".join(word if word == "-" else f"{blocks} {SHORT.get(word, word)}"
                             for word, blocks in sorted(words.items()))
            cells.append(f"{text + (' !' if false else ''):<28}")
        print(f"{name:<32} {made.get(name, '-'):>6}  " + "".join(cells))
    print()


def truth(given, folder):
    falses = {tool: [] for tool in TOOLS}
    for words in ("host", "threads"):
        source = PROGRAMS / f"ground_truth_{words}.cpp"
        program = build(source, folder / words)
        sanitized = {"LeakSanitizer": build(source, folder / f"{words}_lsan", "-fsanitize=leak"),
                     "AddressSanitizer": build(source, folder / f"{words}_asan", "-fsanitize=address")}
        for threads in given.threads:
            table = Table()
            made = add_cistern(table, given, folder, [program, threads], {"host"})
            add_memcheck(table, folder, [program, threads])
            for tool, one in sanitized.items():
                add_sanitizer(table, tool, [one, threads])
            show(f"host memory, {words}, {threads} threads", made, table, TOOLS, falses)
    simulator = ":".join(str(given.build / "tests" / "simcuda" / part) for part in ("", "13"))
    for words, kind, reported in (("opencl", None, {"opencl"}), ("cuda", "device", {"device:0"}),
                                  ("cuda", "pinned", {"pinned", "device:0"}),
                                  ("cuda", "managed", {"managed", "device:0"})):
        program = given.build / "tests" / "leaks" / "programs" / f"ground_truth_{words}"
        for threads in given.threads:
            table = Table()
            made = add_cistern(table, given, folder, [program, threads, *([kind] if kind else [])], reported,
                               LD_LIBRARY_PATH=simulator)
            show(f"{kind or words}, {threads} threads", made, table, TOOLS[:1], falses)
    for tool, rows in falses.items():
        print(f"false answers of {tool}: {len(rows)}" + "".join(f"\n    {row}" for row in rows))
    print("(a - of a sanitizer: it lists nothing; made by indirect_in_lost_struct: also the lost structs)\n")


def seconds_of(command, **environment):
    begin = time.monotonic()
    run(command, **environment)
    return time.monotonic() - begin


def cost(given, folder):
    source = ROOT / "bench" / "host" / "linked_heap.cpp"
    program, leak_program = build(source, folder / "heap", "-O2"), build(source, folder / "heap_lsan", "-O2",
                                                                        "-fsanitize=leak")
    report = folder / "heap.json"
    ours = {"LD_PRELOAD": given.shim, "CISTERN_REPORT": report, "CISTERN_REPORT_FORMAT": "json"}
    for words, load in (("small blocks that point at each other", [given.mebibytes]),
                        ("one block of bytes", [given.mebibytes, "bytes"])):
        runs = collections.defaultdict(list)
        read = 0
        for _ in range(given.rounds):
            runs["Cistern"].append(seconds_of([program, *load], CISTERN_LEAK_CHECK="1min", **ours))
            read = json.loads(report.read_text())["judging"]["bytes_read"]
            report.unlink()
            runs["Cistern, not judged"].append(seconds_of([program, *load], CISTERN_LEAK_CHECK="0", **ours))
            report.unlink()
            runs["Cistern, all sites"].append(
                seconds_of([program, *load], CISTERN_LEAK_CHECK="1min", CISTERN_SITES="all", **ours))
            report.unlink()
            runs["LeakSanitizer"].append(seconds_of([leak_program, *load]))
            runs["LeakSanitizer, not asked"].append(seconds_of([leak_program, *load], LSAN_OPTIONS="detect_leaks=0"))
            runs["plain"].append(seconds_of([program, *load]))
        least = {name: min(times) for name, times in runs.items()}
        own = least["Cistern"] - least["Cistern, not judged"]
        theirs = least["LeakSanitizer"] - least["LeakSanitizer, not asked"]
        print(f"{given.mebibytes} MiB, {words}: " + ", ".join(f"{name} {value:.2f} s" for name, value in least.items()))
        print(f"  judging: Cistern {own:.2f} s ({read / 2**30 / own:.2f} GiB/s), LeakSanitizer {theirs:.2f} s; "
              f"to plain: Cistern {least['Cistern'] / least['plain']:.2f}x, "
              f"with all sites {least['Cistern, all sites'] / least['plain']:.2f}x, "
              f"LeakSanitizer {least['LeakSanitizer'] / least['plain']:.2f}x")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("build", nargs="?", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mebibytes", type=int, default=512)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 8, 64])
    given = parser.parse_args()
    given.build = given.build.resolve()
    given.shim = given.build / "libcistern.so"
    with tempfile.TemporaryDirectory() as folder:
        truth(given, pathlib.Path(folder))
        cost(given, pathlib.Path(folder))


if __name__ == "__main__":
    main()
