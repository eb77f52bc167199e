#!/usr/bin/python3
"""The soak under ThreadSanitizer: the shared object and the soak are instrumented, the OpenCL implementation and its
compiler are not, and race among themselves with or without Cistern. So the verdict is: no report that names Cistern.
As a layer, because there the sanitizer keeps its own malloc."""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import run_ways

RACE = 66  # the exit code after any report
REPORT = re.compile(r"^=+\nWARNING: ThreadSanitizer.*?^=+$", re.M | re.S)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shim", required=True, help="instrumented libcistern.so, absolute path")
    parser.add_argument("--soak", required=True, help="instrumented soak")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--queues", default="4")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        suppressions = pathlib.Path(folder) / "suppressions"
        suppressions.write_text(
            "called_from_lib:libpocl.so\nmutex:libpocl\nrace:libpocl\nrace:libLLVM\nrace:libclang\n")
        reports = pathlib.Path(folder) / "reports"
        reports.mkdir()
        environment = run_ways.environment(arguments.shim, ("layer",), reports)
        environment["TSAN_OPTIONS"] = f"suppressions={suppressions} exitcode={RACE} history_size=4"
        soak = [arguments.soak, "--seconds", str(arguments.seconds), "--queues", arguments.queues]
        done = subprocess.run(soak, env=environment, capture_output=True, text=True, errors="replace")
        found = [json.loads(path.read_text()) for path in reports.iterdir()]
    races = REPORT.findall(done.stderr)
    ours = [race for race in races if "cistern" in race]
    print(done.stdout, end="")
    print(f"{len(races) - len(ours)} reports of others, {len(ours)} that name Cistern")
    if ours or done.returncode not in (0, RACE) or (done.returncode == RACE and not races):
        print("\n".join(ours) or done.stderr[-4000:])
        return 1
    if len(found) != 1 or not found[0]["kinds"]["opencl"]["pool_hits"]:
        print(f"the pool served nothing: {found}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
