#!/usr/bin/python3
"""Storms under libcistern.so, round after round, each a process of its own with a seed and options of its own: no
crash, no hang, and every report that was written agrees with itself. At the first failure the stacks of all threads of
all processes are printed (gdb), and how to run that round again.

  run_storm.py --shim /path/libcistern.so --programs FOLDER [--minutes N | --seconds N | --rounds N] [--seed N]
  --plain: without Cistern, the control."""
import argparse
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
import report_checks  # noqa: E402

# One choice of each line for a round.
OPTIONS = [
    [{}, {"CISTERN_SITES": "all"}, {"CISTERN_SITES": "off"}, {"CISTERN_HOST_SAMPLE": "4KiB"}],
    [{}, {}, {"CISTERN_DEVICE_ORDER": "deferred"}],
    [{}, {}, {"CISTERN_TRIM_INTERVAL": "1ms"}],
    [{}, {"CISTERN_MAINTENANCE": "10ms"}],
    # Children report too, then.
    [{"CISTERN_REPORT": "none"}, {"CISTERN_REPORT": "%.report"},
     {"CISTERN_REPORT": "%.report", "CISTERN_REPORT_FORMAT": "json"}],
]
# What Cistern may say on stderr: memory that ran out on purpose.
EXPECTED = re.compile(r"^cistern: (\d+ more lines like: )?(cudaMalloc|clCreateBuffer) of .*: out of memory")
BROKEN = re.compile(r"^storm: broken|^broken |^cistern: .*(double free|invalid)")


class Round:
    """One process and what it leaves: its output, its reports, and the stacks if it broke."""

    def __init__(self, command, environment, folder, limit_s):
        self.process = subprocess.Popen(command, env=environment, cwd=folder, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                                        start_new_session=True)
        self.lines, self.stacks = [], ""
        self.broke = threading.Event()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        self.output = []
        self.output_reader = threading.Thread(target=lambda: self.output.extend(self.process.stdout), daemon=True)
        self.output_reader.start()
        self.wait(limit_s)

    def read(self):
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))
            if BROKEN.search(line):
                self.broke.set()
        self.broke.set()

    def wait(self, limit_s):
        end = time.monotonic() + limit_s
        while time.monotonic() < end and not self.broke.wait(0.2):
            pass
        broken = [line for line in self.lines if BROKEN.search(line)]
        hung = False
        if not broken:
            try:
                self.process.wait(max(1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                hung = True
                self.lines.append(f"(hung: did not end in {limit_s} s)")
        if broken or hung:
            self.stacks = stacks_of_session(self.process.pid)
        end_session(self.process.pid)
        self.status = self.process.wait()
        for reader in (self.reader, self.output_reader):
            reader.join(10)


def members_of_session(session):
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getsid(int(entry.name)) == session:
                yield int(entry.name)
        except ProcessLookupError:
            pass


def end_session(session):
    for member in members_of_session(session):
        try:
            os.kill(member, signal.SIGKILL)
        except ProcessLookupError:
            pass


def stacks_of_session(session):
    if not shutil.which("gdb"):
        return "(gdb is not installed: no stacks)"
    texts = []
    for member in sorted(members_of_session(session)):
        try:
            done = subprocess.run(["gdb", "-p", str(member), "-batch", "-ex", "thread apply all bt 25"],
                                  capture_output=True, text=True, errors="replace", timeout=60)
            lines = [line[:200] for line in done.stdout.splitlines() if re.match(r"#|Thread ", line)]
            texts.append(f"--- process {member}\n" + "\n".join(lines))
        except subprocess.TimeoutExpired:
            texts.append(f"--- process {member}: gdb did not answer")
    return "\n".join(texts)


def environment_of(arguments, chosen, folder):
    kept = {name: value for name, value in os.environ.items()
            if name not in ("LD_PRELOAD", "OPENCL_LAYERS") and not name.startswith("CISTERN_")}
    if arguments.simulator:
        kept["LD_LIBRARY_PATH"] = ":".join([arguments.simulator, kept.get("LD_LIBRARY_PATH", "")]).rstrip(":")
        kept["SIMCUDA_MEMORY"] = str(256 << 20)
    if not arguments.plain:
        kept.update(chosen, LD_PRELOAD=":".join([*arguments.in_front.split(":"), arguments.shim]).strip(":"))
        kept["CISTERN_REPORT"] = chosen["CISTERN_REPORT"].replace("%", f"{folder}/end-%p")
    return kept


def complaints_about(done, chosen, folder, plain):
    if done.status != 0:
        yield f"ended with status {done.status}"
    if not any(" holds; ends by " in line for line in done.output):
        yield "did not come to its end"
    # Threads and children may cut each other's lines; what is looked for is what nobody should say.
    odd = [line for line in done.lines if not EXPECTED.search(line)]
    if odd:
        yield "said on stderr:\n  " + "\n  ".join(odd[:20])
    if plain:
        return
    reports = list(folder.glob("asked-*.json")) + list(folder.glob("child-*.json"))
    ends = list(folder.glob("end-*.report"))
    if not ends and chosen["CISTERN_REPORT"] != "none":
        yield "no report at the end"
    if chosen.get("CISTERN_REPORT_FORMAT") == "json":
        reports += ends
    for path in reports:
        try:
            report = json.loads(path.read_text())
        except ValueError as error:
            yield f"{path.name}: {error}"
            continue
        yield from (f"{path.name}: {text}" for text in report_checks.complaints(report, busy=True))


def run_one(arguments, command, chosen, seed):
    """Whether one process and its children held."""
    with tempfile.TemporaryDirectory(prefix="storm-") as name:
        folder = pathlib.Path(name)
        started = time.monotonic()
        done = Round([*command, "--seed", str(seed), "--folder", name], environment_of(arguments, chosen, folder),
                     folder, arguments.round_seconds + 2 * arguments.hang_seconds + 60)
        wrong = list(complaints_about(done, chosen, folder, arguments.plain))
    settings = " ".join(f"{name}={value}" for name, value in sorted(chosen.items()))
    print(f"{time.monotonic() - started:.0f} s: {settings}: {''.join(done.output).strip()}", flush=True)
    for line in done.output:
        if found := re.match(r"storm: no (\S+) here", line):
            print(f"skipped: {found[1]}: not on this machine")
    if wrong:
        print(f"FAILED, seed {seed}: {' '.join(command)}")
        print("\n".join(wrong))
        print("last lines of stderr:\n  " + "\n  ".join(done.lines[-15:]))
        print(done.stacks)
        print(f"again: {' '.join(sys.argv)} --seed {seed} --rounds 1")
    return not wrong


def run_round(arguments, seed):
    choose = random.Random(seed)
    chosen = {}
    for line in OPTIONS:
        chosen.update(choose.choice(line))
    if chosen.get("CISTERN_SITES") == "all":
        chosen["CISTERN_REPORT"] = "none"  # every child's report would name every site: seconds each
    programs = pathlib.Path(arguments.programs)
    storm = [str(programs / "storm"), "--seconds", str(arguments.round_seconds), "--hang-seconds",
             str(arguments.hang_seconds), "--stay"]
    storm += ["--others"] if arguments.in_front else []
    storm += ["--actors", arguments.actors] if arguments.actors else []
    storm += ["--end", arguments.end] if arguments.end else []
    # Where children report, each takes its time.
    alone = [str(programs / "storm_alone"), "--forks", "300" if chosen["CISTERN_REPORT"] == "none" else "30"]
    # Its handlers fork in the middle of a fork, which the C library lets only a process of one thread do.
    of_one_thread = {name: value for name, value in chosen.items() if name != "CISTERN_MAINTENANCE"}
    return (run_one(arguments, storm, chosen, seed) and
            (arguments.actors or run_one(arguments, alone, of_one_thread, seed)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shim", help="absolute path of libcistern.so")
    parser.add_argument("--in-front", default="", help="libraries to preload before it, as in LD_PRELOAD")
    parser.add_argument("--programs", required=True, help="the folder of storm and its plug-in")
    parser.add_argument("--simulator", help="folders of the simulated driver and its runtime, as in LD_LIBRARY_PATH")
    parser.add_argument("--plain", action="store_true", help="without Cistern")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, help="so many instead")
    parser.add_argument("--round-seconds", type=int, default=8)
    parser.add_argument("--hang-seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--actors", help="only these: A,B")
    parser.add_argument("--end", help="exit, _exit, busy-exit, busy-_exit or thread-exit")
    arguments = parser.parse_args()
    if not arguments.plain and not arguments.shim:
        parser.error("--shim or --plain")
    print(f"storm: seed {arguments.seed}", flush=True)
    seconds = arguments.minutes * 60 if arguments.minutes else arguments.seconds
    end = time.monotonic() + seconds
    rounds = 0
    while rounds < arguments.rounds if arguments.rounds else time.monotonic() < end or not rounds:
        if not run_round(arguments, arguments.seed + rounds):
            return 1
        rounds += 1
    print(f"storm: {rounds} rounds held")
    return 0


if __name__ == "__main__":
    sys.exit(main())
