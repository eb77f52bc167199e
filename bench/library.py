#!/usr/bin/python3
"""What a pair of an allocation and a deallocation costs by the library, beside the program's own calls plain and under
the preloaded shim, in one run.

    bench/library.py BUILD_DIRECTORY [--rounds N] [--rmm DIRECTORY]

CPU nanoseconds per pair: minima of the rounds of the means, and of the 99th percentile of batches of 64 pairs, by live
blocks and threads. Host blocks have 16 to 512 bytes, device blocks so many KiB; the driver is the simulated one of the
tests, without latency, so its own pair is what a real driver's is not: cheap. Columns: alone, the library's copy in the
program serves; preloaded, the shim does.

RMM's pool beside it needs a directory with what PyPI has of it (see bench/rmm_program.py). RMM runs without Cistern,
with the substitute of the CUDA runtime that the tests have."""
import argparse
import os
import pathlib
import subprocess

import rmm_program

LOADS = [(100, 1), (100_000, 1), (100, 2), (100_000, 2), (100, 4), (100_000, 4)]


def run(program, build, shim, live, threads, libraries=""):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("CISTERN_", "LD_"))}
    environment = kept | {"LD_LIBRARY_PATH": f"{build / 'tests/simcuda'}:{libraries}", "SIMCUDA_MEMORY": str(256 << 30),
                          "SIMCUDA_POISON": "0", "CISTERN_REPORT": "none"}
    if shim:
        environment["LD_PRELOAD"] = str(shim)
    lines = subprocess.run([program, str(live), str(threads)], check=True, capture_output=True, text=True,
                           env=environment).stdout.splitlines()
    return {name: (float(mean), float(late)) for name, mean, late in (line.split(",") for line in lines)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rmm", type=pathlib.Path)
    given = parser.parse_args()
    build = given.build.resolve()
    beside = rmm_program.built(build, given.rmm.resolve(), "library_rmm") if given.rmm else None
    for live, threads in LOADS:
        least = {}
        for _ in range(given.rounds):
            for way, shim in (("alone", None), ("preloaded", build / "libcistern.so")):
                for name, figures in run(build / "bench/library_pairs", build, shim, live, threads).items():
                    before = least.get((name, way), figures)
                    least[name, way] = tuple(map(min, before, figures))
            if beside:
                for name, figures in run(beside[0], build, None, live, threads, beside[1]).items():
                    least[name, "alone"] = tuple(map(min, least.get((name, "alone"), figures), figures))
        print(f"{live:,} live, {threads} threads{'':15}alone     p99   preloaded     p99")
        for name in dict.fromkeys(name for name, _ in least):
            columns = [f"{figure:10.1f}" for way in ("alone", "preloaded") for figure in least.get((name, way), ())]
            print(f"  {name:<31}{''.join(columns)}")


if __name__ == "__main__":
    main()
