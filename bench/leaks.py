#!/usr/bin/python3
"""How right leaks are judged, and what that costs, beside memcheck and LeakSanitizer.

    bench/leaks.py [SHIM] [--rounds N] [--mebibytes N] [--threads N]

First a table: blocks of tests/leaks/programs/ground_truth_host.cpp by the function that made them, whose name says what
they are, and what each tool says of them (LeakSanitizer lists what is lost; it is compiled in, with frame pointers).

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
MAKER = re.compile(r"\b((?:lost|indirect|possible|reachable|cycle)_\w+)")
MEMCHECK = {"Leak_DefinitelyLost": "lost", "Leak_IndirectlyLost": "indirectly lost",
            "Leak_PossiblyLost": "possibly lost", "Leak_StillReachable": "reachable"}
SHORT = {"indirectly lost": "indirectly", "possibly lost": "possibly"}


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


def truth(given, folder):
    source = ROOT / "tests" / "leaks" / "programs" / "ground_truth_host.cpp"
    program, leak_program = build(source, folder / "truth"), build(source, folder / "truth_lsan", "-fsanitize=leak")
    table, report = Table(), folder / "report.json"
    done = run([program, given.threads], LD_PRELOAD=given.shim, CISTERN_SITES="all", CISTERN_REPORT=report,
               CISTERN_REPORT_FORMAT="json")
    for row in json.loads(report.read_text())["leaks"]:
        table.add("Cistern", [frame.get("function") for frame in row["frames"]], row["class"], row["blocks"])
    run(["valgrind", "--leak-check=full", "--show-leak-kinds=all", "--num-callers=40", "--xml=yes",
         f"--xml-file={folder / 'memcheck.xml'}", program, given.threads])
    for error in xml.etree.ElementTree.parse(folder / "memcheck.xml").getroot().iter("error"):
        if error.findtext("kind") in MEMCHECK:
            table.add("memcheck", [frame.findtext("fn") for frame in error.iter("frame")],
                      MEMCHECK[error.findtext("kind")], int(error.findtext("xwhat/leakedblocks")))
    leaks = run([leak_program, given.threads], LSAN_OPTIONS="exitcode=0").stderr
    listed = re.findall(r"(Direct|Indirect) leak of \d+ byte\(s\) in (\d+) object.*\n((?: +#.*\n)+)", leaks)
    for kind, blocks, stack in listed:
        table.add("LeakSanitizer", stack.splitlines(), "lost" if kind == "Direct" else "indirectly lost", int(blocks))
    made = dict(line.split() for line in done.stdout.splitlines())
    tools = ("Cistern", "memcheck", "LeakSanitizer")
    print(f"{'made by':<26} {'blocks':>6}  " + "".join(f"{tool:<28}" for tool in tools))
    for name in sorted(set(made) | set(table)):
        said = [", ".join(f"{blocks} {SHORT.get(word, word)}" for word, blocks in
                          sorted(table.get(name, {}).get(tool, {}).items())) or "-" for tool in tools]
        print(f"{name:<26} {made.get(name, '-'):>6}  " + "".join(f"{one:<28}" for one in said))
    print("(a - of LeakSanitizer: it lists nothing; made by indirect_in_lost_struct: also the lost structs)\n")


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
    parser.add_argument("shim", nargs="?", type=pathlib.Path, default=ROOT / "build" / "release" / "libcistern.so")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mebibytes", type=int, default=512)
    parser.add_argument("--threads", type=int, default=4)
    given = parser.parse_args()
    given.shim = given.shim.resolve()
    with tempfile.TemporaryDirectory() as folder:
        truth(given, pathlib.Path(folder))
        cost(given, pathlib.Path(folder))


if __name__ == "__main__":
    main()
