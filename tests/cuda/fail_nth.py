#!/usr/bin/python3
"""Makes every driver call of the scenario fail in turn, plain and preloaded. The n-th call is not the same one in every
way, so nothing is compared between them: each run must find that every answer was success or the injected failure,
that the last error is cleared and that nothing crashed; the report must have no leak, and no more may be left over in
the driver than when nothing fails: nothing plain, and preloaded the few events that the shim keeps for itself, and the
piece of a range that the driver did not take back."""
import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from report_rows import gpu_rows  # noqa: E402

WAYS = {
    "plain": None,
    "preload": {},
    "preload, deferred": {"CISTERN_DEVICE_ORDER": "deferred"},
    "preload, ranges": {"CISTERN_DEVICE_POOL": "ranges"},
    "preload, ranges, deferred": {"CISTERN_DEVICE_POOL": "ranges", "CISTERN_DEVICE_ORDER": "deferred"},
    "preload, pools off": {"CISTERN_DEVICE_POOL": "off", "CISTERN_PINNED_POOL": "off"},
    "preload, staged": {"CISTERN_STAGING": "on"},
}
TIME_LIMIT_S = 60
NUMBERS_MAX = 100
# Two are of a trial that nobody has read yet, which depends on what the trials before took; and an event whose
# destruction is what fails stays.
EVENTS_MORE = 3
PIECE_BYTES = 2 << 20


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
        for leak in gpu_rows(json.loads(path.read_text())):
            if leak["kind"] not in ("host", "opencl"):
                yield f"leak in the report: {leak['kind']} {leak['blocks']} blocks"


class Result:
    """What one run of the scenario said."""

    def __init__(self):
        self.calls, self.complaints, self.failed, self.left_over = 0, [], [], {}

    def take(self, process):
        lines = process.stdout.splitlines()
        self.complaints = [line for line in lines if line.startswith("wrong: ")]
        self.failed = [line for line in lines if line.startswith("failed: ")]
        self.left_over = {what: int(count) for what, count in
                          re.findall(r"^left over: (\w+) (\d+)$", process.stdout, re.M)}
        summary = re.search(r"^(-?\d+) calls, (\d+) failures, (\d+) wrong$", process.stdout, re.M)
        if process.returncode != (1 if self.complaints else 0) or not summary:
            self.complaints.append(f"ended with {process.returncode}: {process.stdout[-300:]}{process.stderr[-300:]}")
        else:
            self.calls = int(summary.group(1))

    def compare(self, allowed):
        for what, count in self.left_over.items():
            if count > allowed.get(what, 0):
                self.complaints.append(f"left over: {what} {count}, {allowed.get(what, 0)} allowed")


def run(arguments, options, settings):
    result = Result()
    with tempfile.TemporaryDirectory() as reports:
        try:
            result.take(subprocess.run([str(arguments.scenario)], capture_output=True, text=True, timeout=TIME_LIMIT_S,
                                       env=environment(arguments, options, reports, settings),
                                       stdin=subprocess.DEVNULL))
        except subprocess.TimeoutExpired:
            result.complaints.append(f"does not end in {TIME_LIMIT_S} s")
        result.complaints.extend(leaks_of(reports))
    return result


def judge(arguments, way, options):
    """Prints the complaints about one way and returns how many there were."""
    undisturbed = run(arguments, options, {})
    allowed = {} if options is None else {"live_events": undisturbed.left_over.get("live_events", 0) + EVENTS_MORE,
                                          "created_bytes": PIECE_BYTES}
    codes = {}, {"SIMCUDA_FAIL_CODE": "2"}
    # Who stages asks the driver again and again whether a chunk has passed: of so many calls a part will do.
    step = max(arguments.step, undisturbed.calls // NUMBERS_MAX)
    numbers = range(1 + random.randrange(step), undisturbed.calls + 1, step)
    cases = [{"SIMCUDA_FAIL_AT": str(number), **code} for code in codes for number in numbers]
    total = 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as workers:
        results = workers.map(lambda case: run(arguments, options, case), cases)
        for settings, result in [({"nothing": "fails"}, undisturbed), *zip(cases, results)]:
            result.compare(allowed if settings.keys() & {"SIMCUDA_FAIL_AT"} else allowed | {"created_bytes": 0})
            for text in dict.fromkeys(result.complaints):
                total += 1
                print(f"{way}: {' '.join(f'{name}={value}' for name, value in settings.items())}: {text}"
                      f"   ({'; '.join(result.failed)})")
    print(f"{way}: {undisturbed.calls} driver calls, {len(cases)} runs, {total} complaints")
    return total + (0 if undisturbed.calls > 100 else 1)


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
