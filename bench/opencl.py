#!/usr/bin/python3
"""Runs bench/opencl_buffers plain and under the shim with sites off and on, in turn, several rounds, and prints the
minimum of each with the difference to plain; then what the shim adds to the start of /bin/true.

    bench/opencl.py BUILD_DIRECTORY [--rounds N] [--json FILE]"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess
import time

WAYS = {
    "plain": {},
    "sites off": {"CISTERN_SITES": "off"},
    "sites on": {"CISTERN_SITES": "gpu"},
}


def environment(shim, way):
    values = {name: value for name, value in os.environ.items() if not name.startswith("CISTERN_")}
    if way != "plain":
        values.update(WAYS[way], LD_PRELOAD=str(shim), CISTERN_REPORT="none")
    return values


def buffers(program, shim, way):
    """Nanoseconds per round, by benchmark name."""
    done = subprocess.run([program, "--benchmark_format=json", "--benchmark_min_time=0.1"], check=True,
                          capture_output=True, env=environment(shim, way))
    scale = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
    return {run["name"]: (run["real_time"] if "real_time" in run["name"] else run["cpu_time"]) * scale[run["time_unit"]]
            for run in json.loads(done.stdout)["benchmarks"]}


def start(shim, way, count=50):
    """Nanoseconds per start of /bin/true."""
    values = environment(shim, way)
    began = time.perf_counter_ns()
    for _ in range(count):
        subprocess.run(["/bin/true"], check=True, env=values)
    return {"start of /bin/true": (time.perf_counter_ns() - began) / count}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    shim, program = build / "libcistern.so", build / "bench" / "opencl_buffers"

    best = {}
    for _ in range(arguments.rounds):
        for way in WAYS:
            for name, nanoseconds in {**buffers(program, shim, way), **start(shim, way)}.items():
                row = best.setdefault(name, {})
                row[way] = min(nanoseconds, row.get(way, float("inf")))

    print(f"{'nanoseconds, minimum of rounds':36}" + "".join(f"{way:>14}" for way in WAYS) + "   against plain")
    for name, row in best.items():
        difference = ", ".join(f"{row[way] - row['plain']:+.0f} ({row[way] / row['plain']:.2f}x)"
                               for way in WAYS if way != "plain")
        print(f"{name:36}" + "".join(f"{row[way]:14.0f}" for way in WAYS) + "   " + difference)
    if arguments.json:
        arguments.json.write_text(json.dumps({
            "date": datetime.date.today().isoformat(), "machine": platform.processor() or platform.machine(),
            "cpus": os.cpu_count(), "rounds": arguments.rounds, "unit": "ns", "minima": best}, indent=2) + "\n")


if __name__ == "__main__":
    main()
