#!/usr/bin/python3
"""Runs bench/cuda_copies plain and under the shim, with CISTERN_STAGING off, on and auto in turn, and prints bytes a
second by size, direction and number of streams; beside pageable memory the program's own pinned memory, which is the
best that the link does.

    bench/staging.py BUILD_DIRECTORY [--real] [--rounds N] [--out FILE] [--mebibytes N...]
    bench/staging.py BUILD_DIRECTORY --files [--real] [--rounds N] [--out FILE] [--mebibytes N] [--tensors N]

Without --real the driver is the simulated one of the tests, on made-up machines: one whose pageable copies reach a
third of the link, one where they lose nothing, and one that reads the host's page tables: where there is nothing to
win.

--files: bench/cuda_files loads a mapped file of weights, 1 GiB in 64 tensors if not said otherwise, from the page
cache. The simulated machines are those of tests/simcuda/machines.py: the driver's rates come from published
measurements, and a second of the machine is several here. The host's part of a staged copy takes the time that it
really takes here, so on that scale the processor is faster than that of the machine."""
import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "simcuda"))
import machines  # noqa: E402

MIB, GIB = 1 << 20, 1 << 30
MEMORIES = ("pageable", "mapped")
WAYS = {"plain": None, "off": "off", "on": "on", "auto": "auto"}
LINK = {"SIMCUDA_LINK_TO_DEVICE_MBPS": "1500", "SIMCUDA_LINK_TO_HOST_MBPS": "1500"}
MACHINES = {
    "simulated, pageable a third of the link of 1.5 GB/s": {**LINK, "SIMCUDA_PAGEABLE_COPY_MBPS": "750",
                                                            "SIMCUDA_PAGE_LOCK_NS": "1000"},
    "simulated, pageable at the speed of the link of 1.5 GB/s": {**LINK, "SIMCUDA_PAGEABLE_COPY_MBPS": "1000000"},
    "simulated, coherent link of 1.5 GB/s": {**LINK, "SIMCUDA_COHERENT": "1"},
}


# Ways to load a file, with the program's arguments and CISTERN_STAGING.
LOADS = {"plain": ((), None), "auto": ((), "auto"), "on": ((), "on"), "by hand": (("--by-hand",), None)}


def run(build, real, machine, staging, program, *arguments):
    values = {name: value for name, value in os.environ.items() if not name.startswith(("CISTERN_", "SIMCUDA_"))}
    values.update(machine)
    if not real:
        values["LD_LIBRARY_PATH"] = str(build / "tests" / "simcuda")
    if staging:
        values.update(LD_PRELOAD=str(build / "libcistern.so"), CISTERN_STAGING=staging, CISTERN_REPORT="none")
    lines = subprocess.run([build / "bench" / program, *map(str, arguments)], env=values, check=True, text=True,
                           stdout=subprocess.PIPE).stdout.splitlines()
    return [json.loads(line) for line in lines]


def copies(build, arguments):
    """Lines of a table for each machine."""
    sizes = [size * MIB for size in arguments.mebibytes or (1, 4, 16, 64)]
    text = []
    for name, machine in ({"this machine": {}} if arguments.real else MACHINES).items():
        best = collections.defaultdict(float)
        for _ in range(arguments.rounds):
            for way, staging in WAYS.items():
                for row in run(build, arguments.real, machine, staging, "cuda_copies", "--mapped", *sizes):
                    pinned = row["memory"] == "pinned"
                    for memory in MEMORIES if pinned else (row["memory"],):
                        key = (row["bytes"], row["direction"], row["streams"], memory)
                        column = "pinned" if pinned else way
                        best[key, column] = max(best[key, column], row["rate"])
        text.append(f"{name}; 10^6 bytes a second, best of {arguments.rounds} rounds")
        columns = ["pinned", *WAYS]
        text.append(f"{'MiB':>5}  {'direction':<14}  {'streams':>7}  {'memory':<8}  " +
                    "  ".join(f"{c:>8}" for c in columns))
        for key in sorted({key for key, _ in best}):
            bytes_, direction, streams, memory = key
            text.append(f"{bytes_ // MIB:>5}  {direction:<14}  {streams:>7}  {memory:<8}  " +
                        "  ".join(f"{best[key, column] / 1e6:>8.0f}" for column in columns))
        text.append("")
    return text


def files(build, arguments):
    """The same for loads of a mapped file: the first load of a process, which has the trials, and the second."""
    size, tensors = (arguments.mebibytes or [1024])[0], arguments.tensors
    tried = [None] if arguments.real else machines.MACHINES.values()
    text = [f"A mapped file of {size} MiB in {tensors} tensors, in the page cache, to the device; GiB/s, best of "
            f"{arguments.rounds} rounds"]
    for machine in tried:
        scale = machine.scale if machine else 1
        text.append(f"{machine.name}, simulated at 1/{scale} of its speed ({machine.source})" if machine
                    else "this machine")
        settings = {f"SIMCUDA_{name}": value for name, value in machine.simulator_settings().items()} if machine else {}
        best = collections.defaultdict(float)
        for _ in range(arguments.rounds):
            for way, (options, staging) in LOADS.items():
                rows = run(build, arguments.real, settings, staging, "cuda_files",
                           *options, size, tensors, 2 if staging == "auto" else 1)
                for load, row in enumerate(rows):
                    best[way, load] = max(best[way, load], row["rate"] * scale / GIB)
        for (way, load), rate in best.items():
            text.append(f"  {way + ', second load' if load else way:<20}{rate:>9.2f}")
    return text + [""]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--files", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--mebibytes", type=int, nargs="+")
    parser.add_argument("--tensors", type=int, default=64)
    arguments = parser.parse_args()
    text = (files if arguments.files else copies)(arguments.build.resolve(), arguments)
    print("\n".join(text))
    if arguments.out:
        arguments.out.write_text("\n".join(text))


if __name__ == "__main__":
    main()
