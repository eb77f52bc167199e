#!/usr/bin/python3
"""Runs bench/cuda_copies plain and under the shim, with CISTERN_STAGING off, on and auto in turn, and prints bytes a
second by size, direction and number of streams; beside pageable memory the program's own pinned memory, which is the
best that the link does.

    bench/staging.py BUILD_DIRECTORY [--real] [--rounds N] [--out FILE] [--mebibytes N...]

Without --real the driver is the simulated one of the tests, on made-up machines: one whose pageable copies reach a
third of the link, one where they lose nothing, and one that reads the host's page tables: where there is nothing to
win."""
import argparse
import collections
import json
import os
import pathlib
import subprocess

MIB = 1 << 20
MEMORIES = ("pageable", "mapped")
WAYS = {"plain": None, "off": "off", "on": "on", "auto": "auto"}
LINK = {"SIMCUDA_LINK_TO_DEVICE_MBPS": "1500", "SIMCUDA_LINK_TO_HOST_MBPS": "1500"}
MACHINES = {
    "simulated, pageable a third of the link of 1.5 GB/s": {**LINK, "SIMCUDA_PAGEABLE_COPY_MBPS": "750",
                                                            "SIMCUDA_PAGE_LOCK_NS": "1000"},
    "simulated, pageable at the speed of the link of 1.5 GB/s": {**LINK, "SIMCUDA_PAGEABLE_COPY_MBPS": "1000000"},
    "simulated, coherent link of 1.5 GB/s": {**LINK, "SIMCUDA_COHERENT": "1"},
}


def run(build, real, machine, staging, sizes):
    values = {name: value for name, value in os.environ.items() if not name.startswith(("CISTERN_", "SIMCUDA_"))}
    values.update(machine)
    if not real:
        values["LD_LIBRARY_PATH"] = str(build / "tests" / "simcuda")
    if staging:
        values.update(LD_PRELOAD=str(build / "libcistern.so"), CISTERN_STAGING=staging, CISTERN_REPORT="none")
    lines = subprocess.run([build / "bench" / "cuda_copies", "--mapped", *map(str, sizes)], env=values, check=True,
                           text=True, stdout=subprocess.PIPE).stdout.splitlines()
    return [json.loads(line) for line in lines]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--mebibytes", type=int, nargs="+", default=[1, 4, 16, 64])
    arguments = parser.parse_args()
    build, sizes = arguments.build.resolve(), [size * MIB for size in arguments.mebibytes]
    text = []
    for name, machine in ({"this machine": {}} if arguments.real else MACHINES).items():
        best = collections.defaultdict(float)
        for _ in range(arguments.rounds):
            for way, staging in WAYS.items():
                for row in run(build, arguments.real, machine, staging, sizes):
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
    print("\n".join(text))
    if arguments.out:
        arguments.out.write_text("\n".join(text))


if __name__ == "__main__":
    main()
