#!/usr/bin/python3
"""Runs bench/cuda_copies plain and under the shim, with CISTERN_STAGING off, on and auto in turn, and prints bytes a
second by size, direction and number of streams; beside pageable memory the program's own pinned memory, which is the
best that the link does.

    bench/staging.py BUILD_DIRECTORY [--real] [--rounds N] [--out FILE] [--mebibytes N...]
    bench/staging.py BUILD_DIRECTORY --files [--cases CASE...] [--machines NAME...] [--real] [--rounds N] [--out FILE]
                     [--mebibytes N] [--tensors N] [--slices N]

Without --real the driver is the simulated one of the tests, on made-up machines: one whose pageable copies reach a
third of the link, one where they lose nothing, and one that reads the host's page tables: where there is nothing to
win.

--files: bench/cuda_files loads a mapped file of weights, 1 GiB in 64 tensors if not said otherwise, from the page
cache. The simulated machines are those of tests/simcuda/machines.py: the driver's rates come from published
measurements, and a second of the machine is several here. The host's part of a staged copy takes the time that it
really takes here, so on that scale the processor is faster than that of the machine.

The cases:
    warm        the one above
    slices      the file is copied in slices of 3 KiB to 1 MiB
    cold        it is dropped from the page cache before each load; cold-slices: both
    slow-disk   the same, and each read takes half a millisecond (bench/slow_disk.cpp, for root)
    ranks       each of four processes loads a quarter, all together
    save        from the device, into the mapped file; save-fresh: into new memory"""
import argparse
import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile

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


# Ways to load a file, with the program's options and CISTERN_STAGING.
LOADS = {"plain": ((), None), "auto": ((), "auto"), "on": ((), "on"), "by hand": (("--by-hand",), None),
         "waits": (("--by-hand", "--waits"), None)}


@dataclasses.dataclass(frozen=True)
class Case:
    says: str
    options: tuple = ()
    ranks: int = 1
    slices: bool = False
    slow_disk: bool = False


CASES = {
    "warm": Case("in the page cache, to the device"),
    "slices": Case("in the page cache, to the device", ("--slices",), slices=True),
    "cold": Case("not in the page cache, to the device", ("--cold",)),
    "cold-slices": Case("not in the page cache, to the device", ("--cold", "--slices"), slices=True),
    "slow-disk": Case("of a slow disk, to the device", ("--cold",), slow_disk=True),
    "ranks": Case("in the page cache, to the devices of four processes", ranks=4),
    "save": Case("in the page cache, from the device", ("--to-host",)),
    "save-fresh": Case("or rather new memory, from the device", ("--to-host", "--fresh")),
}
SLOW_DISK = ("500", "1000")  # microseconds a read, and 10^6 bytes a second


def run(build, real, machine, staging, program, *arguments, processes=1):
    """The lines of each process."""
    values = {name: value for name, value in os.environ.items() if not name.startswith(("CISTERN_", "SIMCUDA_"))}
    values.update(machine)
    if not real:
        values["LD_LIBRARY_PATH"] = str(build / "tests" / "simcuda")
    if staging:
        values.update(LD_PRELOAD=str(build / "libcistern.so"), CISTERN_STAGING=staging, CISTERN_REPORT="none")
    started = [subprocess.Popen([build / "bench" / program, *map(str, arguments)], env=values, text=True,
                                stdout=subprocess.PIPE) for _ in range(processes)]
    said = [process.communicate()[0].splitlines() for process in started]
    if any(process.returncode for process in started):
        sys.exit(f"{program} failed")
    return [[json.loads(line) for line in lines] for lines in said]


@contextlib.contextmanager
def slow_disk(build, mebibytes):
    """The path of its file, or nothing where there can be none."""
    if not os.access("/dev/fuse", os.W_OK) or os.geteuid():
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        disk = subprocess.Popen([build / "bench" / "slow_disk", folder, str(mebibytes), *SLOW_DISK], text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            yield f"{folder}/weights" if disk.stdout.readline() else None
        finally:
            disk.communicate()


def copies(build, arguments):
    """Lines of a table for each machine."""
    sizes = [size * MIB for size in arguments.mebibytes or (1, 4, 16, 64)]
    text = []
    for name, machine in ({"this machine": {}} if arguments.real else MACHINES).items():
        best = collections.defaultdict(float)
        for _ in range(arguments.rounds):
            for way, staging in WAYS.items():
                for row in run(build, arguments.real, machine, staging, "cuda_copies", "--mapped", *sizes)[0]:
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


def loads(build, arguments, case, machine, file):
    """GiB a second by way and load. The first load of a process has the trials."""
    scale = machine.scale if machine else 1
    settings = {f"SIMCUDA_{name}": value for name, value in machine.simulator_settings().items()} if machine else {}
    size = (arguments.mebibytes or [1024])[0] // case.ranks
    tensors = arguments.slices if case.slices else arguments.tensors // case.ranks
    best = collections.defaultdict(float)
    for _ in range(arguments.rounds):
        for way, (options, staging) in LOADS.items():
            options = (*options, *case.options, *([f"--file={file}"] if file else []))
            ranks = run(build, arguments.real, settings, staging, "cuda_files", *options, size, tensors,
                        2 if staging == "auto" else 1, processes=case.ranks)
            for load, rows in enumerate(zip(*ranks)):
                rate = sum(row["bytes"] for row in rows) / max(row["bytes"] / row["rate"] for row in rows)
                best[way, load] = max(best[way, load], rate * scale / GIB)
    return best


def files(build, arguments):
    tried = [None] if arguments.real else [machines.MACHINES[name] for name in arguments.machines]
    size = (arguments.mebibytes or [1024])[0]
    columns = ["plain", "auto", "second", "on", "by hand", "waits"]
    text = [f"GiB/s, best of {arguments.rounds} rounds; second: the second load of a process with auto; "
            "waits: by hand, and the program waits for each tensor, as a copy of one call does"]
    for name in arguments.cases:
        case = CASES[name]
        pieces = f"{arguments.slices} slices at most" if case.slices else f"{arguments.tensors} tensors"
        text += [f"{name}: a mapped file of {size} MiB in {pieces}, {case.says}",
                 f"  {'':<20}" + "".join(f"{column:>9}" for column in columns)]
        with slow_disk(build, size) if case.slow_disk else contextlib.nullcontext() as file:
            if case.slow_disk and not file:
                text.append("  left out: a file system in user space needs root and /dev/fuse")
                continue
            for machine in tried:
                best = loads(build, arguments, case, machine, file)
                figures = [best[key] for key in (("plain", 0), ("auto", 0), ("auto", 1), ("on", 0), ("by hand", 0),
                                                 ("waits", 0))]
                text.append(f"  {machine.name if machine else 'this machine':<20}" +
                            "".join(f"{figure:>9.2f}" for figure in figures))
                print(text[-1], file=sys.stderr)
    for machine in tried if not arguments.real else ():
        text.append(f"{machine.name}: simulated at 1/{machine.scale} of its speed, by {machine.source}; its link: "
                    f"{machine.link}")
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
    parser.add_argument("--slices", type=int, default=20000)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=["warm"])
    parser.add_argument("--machines", nargs="+", choices=machines.MACHINES, default=list(machines.MACHINES))
    arguments = parser.parse_args()
    text = (files if arguments.files else copies)(arguments.build.resolve(), arguments)
    print("\n".join(text))
    if arguments.out:
        arguments.out.write_text("\n".join(text))


if __name__ == "__main__":
    main()
