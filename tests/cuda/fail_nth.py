#!/usr/bin/python3
"""Makes every driver call of the scenario fail in turn, plain and preloaded. The n-th call is not the same one in every
way, so nothing is compared between them: each run must find that every answer was success or the injected failure,
that the last error is cleared, that nothing crashed and that nothing is left over; the report must have no leak."""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

WAYS = {
    "plain": None,
    "preload": {},
    "preload, deferred": {"CISTERN_DEVICE_ORDER": "deferred"},
    "preload, pools off": {"CISTERN_DEVICE_POOL": "off", "CISTERN_PINNED_POOL": "off"},
}
TIME_LIMIT_S = 60


def environment(arguments, options, reports, settings):
    kept = {name: value for name, value in os.environ.items()
            if name != "LD_PRELOAD" and not name.startswith(("CISTERN_", "SIMCUDA_"))}
    kept.update(settings, LD_LIBRARY_PATH=arguments.simulator)
    if options is not None:
        kept.update(options, LD_PRELOAD=arguments.shim, CISTERN_REPORT=f"{reports}/%p.json",
                    CISTERN_REPORT_FORMAT="json")
    return kept


def leaks_of(reports):
    for path in pathlib.Path(reports).iterdir():
        for leak in json.loads(path.read_text())["leaks"]:
            if leak["kind"] not in ("host", "opencl"):
                yield f"leak in the report: {leak['kind']} {leak['blocks']} blocks"


def run(arguments, options, settings):
    """The number of driver calls and the complaints."""
    with tempfile.TemporaryDirectory() as reports:
        try:
            process = subprocess.run([str(arguments.scenario)], env=environment(arguments, options, reports, settings),
                                     stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIME_LIMIT_S)
        except subprocess.TimeoutExpired:
            return 0, [f"does not end in {TIME_LIMIT_S} s"]
        complaints = [line for line in process.stdout.splitlines() if line.startswith("wrong: ")]
        summary = re.search(r"^(-?\d+) calls, (\d+) failures, (\d+) wrong$", process.stdout, re.M)
        if process.returncode != (1 if complaints else 0) or not summary:
            complaints.append(f"ended with {process.returncode}: {process.stdout[-300:]}{process.stderr[-300:]}")
        complaints.extend(leaks_of(reports))
        failed = [line for line in process.stdout.splitlines() if line.startswith("failed: ")]
        return int(summary.group(1)) if summary else 0, [f"{text}   ({'; '.join(failed)})" for text in complaints]


def judge(arguments, way, options):
    calls, complaints = run(arguments, options, {})
    numbers = range(1, calls + 1, arguments.step)
    total = len(complaints)
    for text in complaints:
        print(f"{way}: nothing fails: {text}")
    codes = {}, {"SIMCUDA_FAIL_CODE": "2"}
    cases = [{"SIMCUDA_FAIL_AT": str(number), **code} for code in codes for number in numbers]
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as workers:
        for settings, (_, complaints) in zip(cases, workers.map(lambda case: run(arguments, options, case), cases)):
            total += len(complaints)
            for text in complaints:
                print(f"{way}: {' '.join(f'{name}={value}' for name, value in settings.items())}: {text}")
    print(f"{way}: {calls} driver calls, {len(cases)} runs, {total} complaints")
    return total + (0 if calls > 100 else 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shim", required=True, help="absolute path of libcistern.so")
    parser.add_argument("--simulator", required=True, help="where the simulated driver lies, for LD_LIBRARY_PATH")
    parser.add_argument("--step", type=int, default=1, help="every how many-th call")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--way", choices=WAYS, action="append", help="only these; all when absent")
    parser.add_argument("scenario", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.scenario = arguments.scenario.absolute()
    ways = arguments.way or list(WAYS)
    return 1 if sum([judge(arguments, way, WAYS[way]) for way in ways]) else 0


if __name__ == "__main__":
    sys.exit(main())
