#!/usr/bin/python3
"""OpenCL programs from the distribution, run plain, plain again (the control), preloaded, as a layer and both: same
stdout, stderr and exit code once addresses and timings are masked. The masks are the same for all programs and must
already make plain equal to plain. Programs that are not installed are skipped, with a line; exit code 77 when none is.

Packages: clblast-tests, clfft-client, ffmpeg, hashcat. Their first run compiles kernels, hashcat's for about a minute;
with a cache per invocation of this script each kernel is compiled once."""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import run_ways

TIME_LIMIT_S = 600

# A session of its own: hashcat refuses to start beside another one, whatever HOME says.
SESSION = f"opencl{os.getpid()}"

PROGRAMS = {
    "CLBlast's test of axpy": ["clblast_test_xaxpy", "-platform", "0", "-device", "0"],
    "CLBlast's test of dot": ["clblast_test_xdot", "-platform", "0", "-device", "0"],
    "clFFT's client, 2D and back": ["clFFT-client", "-x", "256", "-y", "64", "-b", "4", "-o", "-p", "5"],
    "clFFT's client, real to hermitian": ["clFFT-client", "-x", "1024", "-b", "8", "-o", "--inLayout", "5",
                                          "--outLayout", "3"],
    "ffmpeg's filters": ["ffmpeg", "-nostdin", "-hide_banner", "-loglevel", "warning", "-f", "lavfi", "-i",
                         "testsrc2=size=320x240:rate=10:duration=1", "-init_hw_device", "opencl=ocl:0.0",
                         "-filter_hw_device", "ocl", "-vf",
                         "format=yuv420p,hwupload,avgblur_opencl=3,unsharp_opencl,nlmeans_opencl=s=2:p=3:r=5,"
                         "hwdownload,format=yuv420p", "-f", "framemd5", "-"],
    "hashcat, one MD5": ["hashcat", "--quiet", "-m", "0", "-a", "3", "-D", "1", "--force", "--potfile-disable", "-O",
                         "--session", SESSION, "--restore-disable",
                         "fbdc3517421655ebc456eaff3ead947d", "?l?l?l?l?l?ln"],
}

MASKS = [
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"0x[0-9a-fA-F]{6,}"), "ADDRESS"),
    # Every number on a line that speaks of time or speed, and every number with such a unit.
    (re.compile(r"^.*\b(?:time|elapsed|speed|gflops|started|stopped|took)\b.*$", re.I | re.M),
     lambda line: re.sub(r"\d+(?:[.:]\d+)*(?:e[-+]?\d+)?", "N", line.group())),
    (re.compile(r"\b\d+(?:\.\d+)? ?(?:ns|us|ms|s|sec|seconds|fps|[kMG]?H/s|[KMG]i?B/s)\b"), "N"),
    # The compiler speaks of a kernel only when no cache had it.
    (re.compile(r"^\d+ warnings? generated\.\n", re.M), ""),
]


def masked(text):
    for pattern, replacement in MASKS:
        text = pattern.sub(replacement, text)
    return text


class Run:
    def __init__(self, command, home, shim=None, way=()):
        with tempfile.TemporaryDirectory() as reports:
            started = time.monotonic()
            environment = {**run_ways.environment(shim, way, reports), "HOME": home}
            process = subprocess.Popen(command, cwd=home, env=environment, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
            try:
                out, err = process.communicate(timeout=TIME_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
            self.seconds = time.monotonic() - started
            self.seen = {"stdout": masked(out), "stderr": masked(err), "exit code": str(process.returncode)}
            report = pathlib.Path(reports) / f"{process.pid}.json"
            self.report = json.loads(report.read_text()) if report.exists() else None

    def figures(self):
        if not self.report:
            return "no report"
        opencl = self.report["kinds"].get("opencl", {})
        names = ("allocations", "pool_hits", "live_blocks")
        return ", ".join(f"{name} {opencl.get(name)}" for name in names)


def judge(name, command, shim, home):
    """Complaints about one program."""
    complaints = []
    Run(command, home)  # fills the caches, so that what compilers say is said here
    plain = Run(command, home)
    runs = {"plain again": Run(command, home)}
    if shim:
        for way in ("preload", "layer", "preload and layer"):
            runs[way] = Run(command, home, shim, run_ways.WAYS[way])
    if plain.seen["exit code"] != "0" or not plain.seen["stdout"].strip():
        complaints.append(f"plain fails or says nothing:\n{plain.seen}")
    allocations = set()
    print(f"{name}: plain {plain.seconds:.1f} s, {len(plain.seen['stdout'].splitlines())} lines")
    for way, run in runs.items():
        for part, expected in plain.seen.items():
            if run.seen[part] != expected:
                lines = run_ways.ways.difference(expected.splitlines(), run.seen[part].splitlines(), way)
                complaints.append(f"{way}: {part} differs\n{lines}")
        if way == "plain again":
            continue
        print(f"  {way}: {run.seconds:.1f} s; {run.figures()}")
        if not run.report or not run.report["kinds"].get("opencl", {}).get("allocations"):
            complaints.append(f"{way}: no OpenCL allocation in its report")
        else:
            allocations.add(run.report["kinds"]["opencl"]["allocations"])
    if len(allocations) > 1:
        complaints.append(f"the ways in count differently: {sorted(allocations)}")
    return complaints


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shim", help="absolute path of libcistern.so; without it only plain and control are run")
    parser.add_argument("--only", help="programs whose name contains this")
    arguments = parser.parse_args()
    found = complained = 0
    with tempfile.TemporaryDirectory() as home:
        for name, command in PROGRAMS.items():
            if arguments.only and arguments.only not in name:
                continue
            if not shutil.which(command[0]):
                print(f"skipped: {name}: {command[0]} is not installed")
                continue
            found += 1
            for complaint in judge(name, command, arguments.shim, home):
                complained += 1
                print(f"{name}: {complaint}")
            sys.stdout.flush()
    if not found:
        return 77
    print(f"{found} programs, {complained} complaints")
    return 1 if complained else 0


if __name__ == "__main__":
    sys.exit(main())
