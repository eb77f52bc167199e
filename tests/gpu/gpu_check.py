#!/usr/bin/env python3
"""Checks Cistern and the simulated driver's assumptions on a real GPU; `scripts/gpu-check --help` says how it is used.
Each part has a share of the time. The results are written after every step, so that what is known survives a hang."""
import argparse
import concurrent.futures
import datetime
import importlib.util
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import time

import gpu_report
import processes

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# Parts in their order, with the share of the whole time that each may take at most.
PARTS = {"probe": 0.30, "tests": 0.35, "frameworks": 0.30, "costs": 0.15, "traces": 0.20, "copies": 0.25, "files": 0.30,
         "preloaded": 0.20}
PROBES = ("probe_driver", "probe_runtime_static", "probe_runtime_shared")
# The options of a preloaded program. Sites off: what the bookkeeping of call sites costs.
PRELOADED = {"strict": {}, "deferred": {"CISTERN_DEVICE_ORDER": "deferred"},
             "ranges": {"CISTERN_DEVICE_POOL": "ranges"},
             "ranges, deferred": {"CISTERN_DEVICE_POOL": "ranges", "CISTERN_DEVICE_ORDER": "deferred"}}
# Frameworks as they are, with all copies staged, and with Cistern as their allocator.
FRAMEWORK_WAYS = {**PRELOADED, "staged": {"CISTERN_STAGING": "on"}}
FRAMEWORKS = {"torch_job.py": True, "cupy_job.py": True, "jax_job.py": False}  # whether it takes Cistern's allocator
COPY_WAYS = {"plain": None, **{f"staged, {helpers + 1} threads": {"CISTERN_STAGING": "on",
                                                                  "CISTERN_STAGING_THREADS": str(helpers)}
                               for helpers in (0, 1, 3, 7)}}
COPY_BYTES = [64 << 10, 1 << 20, 16 << 20, 256 << 20, 1 << 30]
COST_WAYS = {"plain": None, "preloaded": {}, "preloaded, sites off": {"CISTERN_SITES": "off"},
             "ranges, sites off": {"CISTERN_SITES": "off", "CISTERN_DEVICE_POOL": "ranges"}}
FILE_WAYS = {"plain": None, "staged if faster": {}, "staged": {"CISTERN_STAGING": "on"}}
# Programs that judge themselves; any other test program is judged by tests/cuda/run_ways.py.
SELF_JUDGING = ("race",)
NOT_THERE = 77


class Check:
    def __init__(self, arguments):
        self.arguments = arguments
        self.prepared = arguments.prepared.resolve()
        self.shim = (arguments.shim or self.prepared / "libcistern.so").resolve()
        self.end = time.monotonic() + arguments.seconds
        self.part_end = self.end
        self.results = {"gpu_check": 1, "date": datetime.datetime.now(datetime.timezone.utc).isoformat("T", "seconds"),
                        "complete": False, "machine": {}, "problems": [], "parts": [], "probe": [], "details": [],
                        "costs": [], "traces": [], "copies": [], "files": [], "tests": [], "frameworks": []}

    def environment(self, preloaded=None, runtime=True, schema_checker=False):
        """Plain, or with these options of Cistern; with NVIDIA's runtime that was carried along, or without it for
        programs that bring their own."""
        kept = {name: value for name, value in os.environ.items()
                if name not in ("LD_PRELOAD", "OPENCL_LAYERS") and not name.startswith("CISTERN_")}
        carried = str(self.prepared / "lib") if runtime else ""
        paths = [path for path in (self.arguments.library_path, kept.get("LD_LIBRARY_PATH"), carried) if path]
        if paths:
            kept["LD_LIBRARY_PATH"] = ":".join(paths)
        if schema_checker and not importlib.util.find_spec("jsonschema"):
            kept["PYTHONPATH"] = str(self.prepared / "python")
        if preloaded is not None:
            kept.update(preloaded, LD_PRELOAD=str(self.shim), CISTERN_REPORT="none")
        return kept

    def run(self, command, preloaded=None, seconds=60, folder=None, **environment):
        left = min(seconds, self.part_end - time.monotonic())
        if left <= 0:
            return None
        return processes.run(command, self.environment(preloaded, **environment), left, folder)

    def rows_of(self, command, **options):
        """The rows that a benchmark printed; a problem where it failed."""
        ended = self.run(command, **options)
        if ended is not None and ended.code != 0:
            self.problem(f"{' '.join(map(str, command))}: {ended.how()}, {ended.last_words()}")
        return lines_of(ended)

    def write(self):
        out = self.arguments.out
        for name, text in (("gpu-check.json", json.dumps(self.results, indent=1) + "\n"),
                           ("gpu-check.txt", gpu_report.text(self.results))):
            (out / (name + ".new")).write_text(text)
            (out / (name + ".new")).replace(out / name)

    def problem(self, text):
        print(f"gpu-check: {text}", flush=True)
        self.results["problems"].append(text)

    # --- What the machine is, and whether what was prepared runs on it

    def describe_machine(self):
        machine = self.results["machine"]
        machine.update(kernel=platform.release(), processor=platform.machine(), cpus=os.cpu_count(),
                       python=platform.python_version(), glibc=platform.libc_ver()[1],
                       simulator=bool(self.arguments.library_path))
        try:
            answer = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total",
                                     "--format=csv,noheader"], capture_output=True, text=True, timeout=30)
            machine["gpus"] = answer.stdout.strip().splitlines() if answer.returncode == 0 else []
        except (OSError, subprocess.TimeoutExpired):
            machine["gpus"] = []
        found = self.run([self.prepared / "probe_driver", "device"], seconds=60)
        for answer in lines_of(found):
            if answer.get("detail") == "device":
                machine.update({name: value for name, value in answer.items() if name != "detail"})
        if "driver" not in machine:
            self.problem(f"no CUDA driver answers here: {found.how()}, {found.last_words()}")
            return False
        return True

    def check_manifest(self):
        manifest = self.prepared / "manifest.json"
        here = tuple(map(int, re.findall(r"\d+", platform.libc_ver()[1] or "0")))
        if not manifest.exists():
            return
        files = json.loads(manifest.read_text())["files"]
        newer = [entry["path"] for entry in files
                 if entry["glibc"] and tuple(map(int, entry["glibc"].split("."))) > here]
        if newer:
            self.problem(f"glibc {platform.libc_ver()[1]} is too old here for {len(newer)} files: {newer[:3]}")

    def shim_loads(self):
        """ld.so only prints a line when it cannot preload: a report is the proof."""
        if not self.shim.exists():
            self.problem(f"no library to preload at {self.shim}")
            return False
        with tempfile.TemporaryDirectory() as folder:
            environment = self.environment({})
            environment["CISTERN_REPORT"] = f"{folder}/report"
            ended = processes.run([sys.executable, "-c", "pass"], environment, 60)
            if not list(pathlib.Path(folder).iterdir()):
                self.problem(f"the library does not load here: {ended.how()}, {ended.last_words()}")
                return False
        return True

    # --- The parts

    def probe_cases(self):
        """(binary, case) of every probe that is there."""
        for binary in PROBES:
            path = self.prepared / binary
            if not path.exists():
                continue
            listing = processes.run([path, "--list"], self.environment(), 30)
            if listing.code != 0:
                self.problem(f"{binary} does not start: {listing.how()}, {listing.last_words()}")
                continue
            for line in listing.stdout.splitlines():
                yield path, json.loads(line)

    def probe(self):
        for path, case in self.probe_cases():
            if not case["rules"]:
                continue
            ended = self.run([path, case["case"]], seconds=case["seconds"])
            answers = {}
            for answer in lines_of(ended):
                if "rule" in answer:
                    answers[answer["rule"]] = answer["measured"]
                elif "detail" in answer:
                    self.results["details"].append(dict(answer, probe=path.name))
            for rule in case["rules"]:
                self.results["probe"].append(judged(path.name, case["case"], rule, answers, ended))
            self.write()

    def preloaded(self):
        """The answers that a preloaded program gets, where they are not those of the plain one."""
        if not self.shim_loads():
            return
        by_rule = {(entry["probe"], entry["rule"]): entry for entry in self.results["probe"]}
        for path, case in self.probe_cases():
            if not case["rules"] or path.name == "probe_runtime_shared":
                continue
            ended = self.run([path, case["case"]], preloaded={}, seconds=case["seconds"])
            answers = {answer["rule"]: answer["measured"] for answer in lines_of(ended) if "rule" in answer}
            for rule in case["rules"]:
                entry = by_rule.get((path.name, rule["rule"]))
                if entry:
                    entry["preloaded"] = answers.get(rule["rule"])
                    entry["preloaded_same"] = entry["preloaded"] == entry["measured"]
            self.write()

    def costs(self):
        ways = COST_WAYS if self.shim_loads() else {"plain": None}
        for way, options in ways.items():
            for path, case in self.probe_cases():
                if case["rules"] or not case["case"].endswith(("allocations", "queries", "cost")):
                    continue
                if path.name == "probe_runtime_shared":
                    continue
                ended = self.run([path, case["case"]], preloaded=options, seconds=case["seconds"])
                self.results["costs"] += [dict(answer, way=way) for answer in lines_of(ended) if "cost" in answer]
                self.write()

    def copies(self):
        """By size, so that of all ways the same is known when the time is over."""
        program = self.prepared / "cuda_copies"
        if not program.exists():
            return self.problem("cuda_copies was not prepared")
        ways = COPY_WAYS if self.shim_loads() else {"plain": None}
        for count in self.arguments.copy_bytes:
            for way, options in ways.items():
                command = [program, "--warm-up=3", *(["--in-place"] if options is None else []), str(count)]
                for row in self.rows_of(command, preloaded=options):
                    if options is None or row["memory"] == "pageable":
                        self.results["copies"].append(dict(row, way=way))
                self.write()

    def tests(self):
        if not self.shim_loads():
            return
        programs = [path for path in sorted(self.prepared.glob("programs/*/*")) if not path.name.endswith(".so")]
        programs += sorted((ROOT / "tests/cuda/programs").glob("*.py"))
        programs = [path for path in programs if re.search(self.arguments.tests, f"{path.parent.name}/{path.stem}")]
        if not programs:
            self.problem("no test programs were prepared, or none of that name")
        with concurrent.futures.ThreadPoolExecutor(self.arguments.jobs) as pool:
            for done in concurrent.futures.as_completed([pool.submit(self.test, path) for path in programs]):
                self.results["tests"] += done.result()
                self.results["tests"].sort(key=lambda entry: (entry["name"], entry["way"]))
                self.write()

    def test(self, path):
        way = path.parent.name if path.suffix != ".py" else "python"
        if path.name in SELF_JUDGING:
            ways = {"plain": None, **PRELOADED}
            return [result(path.name, f"{way}, {name}", self.run([path, "--steps", 20000], options, seconds=60))
                    for name, options in ways.items()]
        command = [sys.executable, ROOT / "tests/cuda/run_ways.py", "--shim", self.shim]
        if self.arguments.library_path:
            command += ["--simulator", self.arguments.library_path]
        return [result(path.stem, way, self.run([*command, path], seconds=90, schema_checker=True))]

    def traces(self):
        """A loop's time in calls for device memory, by the policy of the pool."""
        program, ways = self.prepared / "cuda_lifetimes", {"plain": None, **PRELOADED}
        if not self.shim_loads():
            return
        for trace in sorted(self.prepared.glob("traces/*.csv")):
            for way, options in ways.items():
                for row in self.rows_of([program, trace, 1, "device"], preloaded=options, seconds=30):
                    self.results["traces"].append(dict(row, trace=trace.stem, way=way))
            self.write()

    def files(self):
        """Weights from a mapped file: by a program of its own, then by what loads them in Python."""
        if not self.shim_loads():
            return
        mebibytes, tensors = self.arguments.file_mebibytes, self.arguments.file_tensors
        with tempfile.TemporaryDirectory(dir=self.arguments.out) as folder:
            for way, options in {**FILE_WAYS, "plain, pinned by hand": None}.items():
                for condition, more in (("warm", []), ("cold", ["--cold"])):
                    command = [self.prepared / "cuda_files", *more, *(["--by-hand"] if "hand" in way else []),
                               mebibytes, tensors, 1 if more else 2]
                    for load, row in enumerate(self.rows_of(command, preloaded=options, folder=folder), 1):
                        self.results["files"].append(dict(row, loader="cuMemcpyHtoD", way=way,
                                                          load="cold" if more else load))
                    self.write()
            hashes = set()
            for way, options in FILE_WAYS.items():
                command = [sys.executable, HERE / "weights_job.py", folder, mebibytes, tensors, 2]
                ended = self.run(command, preloaded=options, seconds=120, runtime=False)
                rows = list(lines_of(ended))
                self.results["files"] += [dict(row, way=way) for row in rows]
                hashes |= {row["hash"] for row in rows}
                entry = result("weights_job.py", way, ended)
                if ended is not None and ended.code == NOT_THERE:
                    entry.update(result="skipped")
                if len(hashes) > 1:
                    entry.update(result="failed", says=f"not all loads put the same bytes there: {hashes}")
                self.results["frameworks"].append(entry)
                self.write()

    def frameworks(self):
        if not self.shim_loads():
            return
        with concurrent.futures.ThreadPoolExecutor(self.arguments.jobs) as pool:
            for job in self.arguments.frameworks:
                takes_allocator = FRAMEWORKS[job]
                plain = self.run([sys.executable, HERE / job], seconds=90, runtime=False)
                if plain is not None and plain.code == NOT_THERE:
                    self.results["frameworks"].append({"name": job, "way": "plain", "result": "skipped",
                                                       "says": plain.last_words()})
                    continue
                self.results["frameworks"].append(dict(result(job, "plain", plain),
                                                       says=(plain.stdout if plain else "")))
                if plain is None or plain.code != 0:
                    continue
                runs = [pool.submit(self.framework, job, plain, way, options, [])
                        for way, options in FRAMEWORK_WAYS.items()]
                if takes_allocator:
                    runs += [pool.submit(self.framework, job, plain, f"Cistern's allocator, {way}", options,
                                         ["allocator"]) for way, options in PRELOADED.items()]
                for run in runs:
                    self.results["frameworks"].append(run.result())
                self.write()

    def framework(self, job, plain, way, options, more):
        """It prints what it printed plain; with an allocator of ours it leaves out the parts that this cannot do."""
        ended = self.run([sys.executable, HERE / job, *more], preloaded=options, seconds=90, runtime=False)
        entry = result(job, way, ended)
        if entry["result"] == "passed":
            printed, wanted = ended.stdout.splitlines(), plain.stdout.splitlines()
            same = [line for line in wanted if line in printed] == printed if more else printed == wanted
            if not same:
                entry.update(result="failed", says="other results than plain:\n" + ended.stdout)
        return entry

    def all(self):
        self.arguments.out = self.arguments.out.resolve()
        self.arguments.out.mkdir(parents=True, exist_ok=True)
        if not (self.prepared / "probe_driver").exists():
            print(f"gpu-check: nothing prepared in {self.prepared}: run scripts/gpu-check --prepare where nvcc is")
            return 2
        self.check_manifest()
        if not self.describe_machine():
            self.write()
            return 2
        for part in self.arguments.parts:
            start = time.monotonic()
            self.part_end = min(self.end, start + PARTS[part] * self.arguments.seconds)
            print(f"gpu-check: {part} ...", flush=True)
            getattr(self, part)()
            cut = time.monotonic() >= self.part_end
            self.results["parts"].append({"part": part, "seconds": round(time.monotonic() - start, 1), "cut_off": cut})
            self.write()
        self.results["complete"] = True
        self.write()
        print(gpu_report.text(self.results), end="")
        bad = [entry for entry in self.results["tests"] + self.results["frameworks"]
               if entry["result"] not in ("passed", "skipped")]
        return 1 if bad else 0


def lines_of(ended):
    """The probe's answers, as far as it came."""
    for line in (ended.stdout if ended is not None else "").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def judged(probe, case, rule, answers, ended):
    measured = answers.get(rule["rule"])
    entry = {"probe": probe, "case": case, "rule": rule["rule"], "assumed": rule["assumed"] or None,
             "measured": measured, "agrees": None}
    if measured is None:
        entry["reason"] = "no time left" if ended is None else f"{ended.how()}; {ended.last_words()}"
    elif rule["assumed"]:
        entry["agrees"] = measured == rule["assumed"]
    return entry


def result(name, way, ended):
    entry = {"name": name, "way": way}
    if ended is None:
        return dict(entry, result="no time left", seconds=0)
    entry["seconds"] = round(ended.seconds, 2)
    if ended.code == 0:
        only_simulated = ended.stdout.endswith("only on the simulator\n")
        return dict(entry, result="skipped" if only_simulated else "passed")
    return dict(entry, result="no end" if ended.code is None else "failed", says=f"{ended.how()}\n"
                + (ended.stdout + ended.stderr)[-4000:])


def absolute(paths):
    return ":".join(os.path.abspath(path) for path in paths.split(":") if path)


def parse():
    parser = argparse.ArgumentParser(prog="gpu-check")
    parser.add_argument("--prepared", type=pathlib.Path, default=ROOT / "build/gpu")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/gpu-check")
    parser.add_argument("--parts", type=lambda text: text.split(","), default=list(PARTS))
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--copy-bytes", type=lambda text: [int(count) for count in text.split(",")],
                        default=COPY_BYTES)
    parser.add_argument("--frameworks", type=lambda text: text.split(","), default=list(FRAMEWORKS))
    parser.add_argument("--file-mebibytes", type=int, default=4096)
    parser.add_argument("--file-tensors", type=int, default=300)
    parser.add_argument("--tests", default="", help="only test programs (WAY/NAME) in which this pattern is found")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--shim", type=pathlib.Path)
    parser.add_argument("--library-path", default="", type=absolute)
    arguments = parser.parse_args()
    unknown = [part for part in arguments.parts if part not in PARTS]
    if unknown:
        parser.error(f"unknown parts: {', '.join(unknown)}")
    return arguments


if __name__ == "__main__":
    sys.exit(Check(parse()).all())
