#!/usr/bin/python3
"""Runs programs under glibc's malloc, Debian's jemalloc, tcmalloc, mimalloc and rpmalloc, and ours, in turn, several
rounds:

  workloads     the classic loads of allocators, written anew in bench/host; CPU time and peak memory
  large         blocks of 256 KiB to 128 MiB, 2 to 200 live, replaced in several ways; CPU time and peak memory
  real          python, perl, sqlite3, cc1plus, numpy, node, git, ffmpeg, and redis-server and postgres on loopback;
                CPU time and peak memory
  instructions  of one malloc and one free in a tight loop, counted by callgrind
  nanoseconds   of the same loops, CPU time of all threads
  startup       what /bin/true takes more than under glibc

    bench/host.py BUILD_DIRECTORY [--workloads] [--large] [--real] [--instructions] [--nanoseconds] [--startup]
                  [--rounds N] [--only REGEX] [--peers REGEX] [--options 'K=V ...']... [--library FILE]
                  [--threads N] [--json FILE]

Without one of the six it does all. Times and peaks are minima of the rounds. Each --options is one more variant of
ours. An allocator that is not installed is left out. A program that fails under an allocator is said and is missing
from that allocator's geometric mean; a second mean is then that of the programs which ran under all. The exit status
is 1 if glibc or ours failed."""
import argparse
import contextlib
import dataclasses
import datetime
import hashlib
import json
import math
import os
import pathlib
import platform
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

SOURCES = pathlib.Path(__file__).resolve().parent / "host"
# The newest first.
PEERS = {"jemalloc": ["libjemalloc.so.2"], "tcmalloc": ["libtcmalloc_minimal.so.4"],
         "mimalloc": ["libmimalloc.so.3", "libmimalloc.so.2"], "rpmalloc": ["librpmalloc.so.1"]}
SEED, TIMEOUT_S = 1, 120
INSTRUCTION_ROUNDS, INSTRUCTION_SIZES = 20_000, (16, 64, 256, 1024, 4096, 32768)
NANOSECOND_LOOPS = (("pair", 16, 20_000_000), ("pair", 64, 20_000_000), ("pair", 4096, 10_000_000),
                    ("pair", 32768, 5_000_000), ("fifo", 64, 10_000_000), ("fifo", 1024, 10_000_000),
                    ("fifo", 4096, 5_000_000), ("fifo", 32768, 2_000_000), ("lifo", 64, 10_000_000),
                    ("lifo", 1024, 10_000_000), ("lifo", 4096, 5_000_000), ("lifo", 32768, 2_000_000),
                    ("pass", 64, 5_000_000))
STARTS_PER_ROUND = 50
# KiB of a block, and how many are live, as far as there is memory for them.
LARGE_KINDS = ("random", "queue", "phases", "grow")
LARGE_KIB, LARGE_LIVE, LARGE_LIVE_MIB_MAX = (256, 2048, 16384, 131072), (2, 20, 200), 3200
# Strings of several sizes written, read and removed, lists, hashes, sets: about a second of the server's time.
REDIS_LOADS = (["-d", "40", "-n", "300000", "-t", "set,get"], ["-d", "400", "-n", "200000", "-t", "set,lpush,lpop"],
               ["-n", "200000", "-t", "hset,sadd,zadd"], ["-d", "3000", "-n", "50000", "-t", "set"],
               ["-n", "100000", "DEL", "key:__rand_int__"])


class Failed(Exception):
    """A program ended badly, or printed something else than under the first allocator."""


@dataclasses.dataclass
class Allocator:
    name: str
    preload: list
    environment: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Job:
    """A program to run, with what must be the same whatever the allocator: its output."""
    name: str
    command: list
    environment: dict = dataclasses.field(default_factory=dict)
    output: pathlib.Path | None = None
    digest: str | None = None

    def run(self, measure, allocator):
        used, printed = measure.run(self.command, allocator, self.environment)
        if self.output:
            printed = self.output.read_bytes()
        digest = hashlib.sha256(printed).hexdigest()
        self.digest = self.digest or digest
        if digest != self.digest:
            raise Failed("its output differs")
        return used


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def wait_until(answers, what):
    for _ in range(200):
        if answers():
            return
        time.sleep(0.05)
    raise Failed(f"{what} does not answer")


class RedisJob:
    """The server is measured, from its start until it was told to shut down; redis-benchmark runs plain."""
    name = "redis"

    def __init__(self, libc, folder):
        self.libc, self.folder = libc, folder

    def run(self, measure, allocator):
        port = free_port()
        server = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no",
                  "--dir", str(self.folder), "--daemonize", "no"]
        # Debian's server is linked with jemalloc: what is preloaded last but before it is glibc.
        with_libc = Allocator(allocator.name, [*allocator.preload, self.libc], allocator.environment)
        return measure.run(server, with_libc, {}, meanwhile=lambda: self.drive(port))[0]

    def drive(self, port):
        client = ["redis-cli", "-p", str(port)]
        wait_until(lambda: subprocess.run([*client, "PING"], capture_output=True).stdout.strip() == b"PONG", "redis")
        for load in REDIS_LOADS:
            command = ["redis-benchmark", "-p", str(port), "-q", "-P", "16", "-c", "10", "-r", "30000", *load]
            done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S)
            if done.returncode != 0:
                raise Failed(f"redis-benchmark {' '.join(load)} ended with {done.returncode}")
        subprocess.run([*client, "SHUTDOWN", "NOSAVE"], capture_output=True, timeout=TIMEOUT_S)


class PostgresJob:
    """The server and its processes are measured, one database for all runs; pgbench, with a seed, runs plain."""
    name = "postgres"

    def __init__(self, programs, folder):
        self.programs, self.data = programs, folder / "postgres"
        # The server refuses to be root: then it is whoever its package made.
        self.user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
        if self.user:
            self.data.mkdir()
            shutil.chown(self.data, "postgres")
            folder.chmod(0o755)
        self.do([programs / "initdb", "-D", self.data, "-A", "trust", "-U", "postgres", "--no-sync"])

    def do(self, command):
        done = subprocess.run([*self.user, *map(str, command)], capture_output=True, text=True, timeout=TIMEOUT_S)
        if done.returncode != 0:
            raise Failed(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[-300:]}")

    def run(self, measure, allocator):
        port = free_port()
        server = [*self.user, self.programs / "postgres", "-D", self.data, "-h", "127.0.0.1", "-p", port, "-k", "",
                  "-c", "fsync=off", "-c", "shared_buffers=16MB", "-c", "autovacuum=off", "-c", "max_wal_size=2GB"]
        return measure.run(server, allocator, {}, meanwhile=lambda: self.drive(port))[0]

    def drive(self, port):
        where = ["-h", "127.0.0.1", "-p", port, "-U", "postgres"]
        wait_until(lambda: subprocess.run([str(word) for word in (self.programs / "pg_isready", *where)],
                                          capture_output=True).returncode == 0, "postgres")
        try:
            load = [self.programs / "pgbench", *where, "-n"]
            self.do([*load, "-i", "-q", "-s", 1, "postgres"])
            self.do([*load, "--random-seed=1", "-c", 2, "-t", 1500, "postgres"])
        finally:
            self.do([self.programs / "pg_ctl", "stop", "-D", self.data, "-m", "fast"])


class Measure:
    """Programs run under the small launcher bench/host/measure.c, which says what they used."""

    def __init__(self, build):
        self.launcher = build / "bench" / "host_measure"
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith(("CISTERN_", "LD_PRELOAD", "MALLOC_", "GLIBC_TUNABLES"))}

    def run(self, command, allocator, environment, meanwhile=None):
        """What the program used, and what it printed."""
        reader, writer = os.pipe()
        values = {**self.environment, **environment, **allocator.environment,
                  "CHILD_PRELOAD": " ".join(map(str, allocator.preload))}
        with open(reader, encoding="ascii") as figures, tempfile.TemporaryFile() as out, \
                tempfile.TemporaryFile() as errors:
            process = subprocess.Popen([str(self.launcher), str(writer), *map(str, command)], env=values,
                                       pass_fds=[writer], stdin=subprocess.DEVNULL, stdout=out, stderr=errors,
                                       start_new_session=True)
            os.close(writer)
            try:
                if meanwhile:
                    meanwhile()
                process.wait(TIMEOUT_S)
            except BaseException as why:
                # The launcher leads a group of its own: nothing of it stays behind, whatever went wrong.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                if isinstance(why, subprocess.TimeoutExpired):
                    raise Failed(f"not done after {TIMEOUT_S} s") from None
                raise
            used = json.loads(figures.read() or '{"code": null}')
            out.seek(0)
            errors.seek(0)
            said = errors.read().decode(errors="replace")
            if used["code"] != 0:
                raise Failed(f"ended with {used['code']}: {said.strip()[-300:]}")
            if "ld.so" in said:
                raise Failed(f"preloading failed: {said.strip()[:300]}")
            used["cpu_us"] = used["user_us"] + used["system_us"]
            return used, out.read()


class Figures:
    """By program and allocator: what each run used, and why one failed."""

    def __init__(self):
        self.runs, self.failures = {}, {}

    def best(self, job, allocator, figure):
        """The minimum, or None where a run failed."""
        if (job, allocator) in self.failures or (job, allocator) not in self.runs:
            return None
        return min(run[figure] for run in self.runs[job, allocator])

    def ratio(self, job, allocator, figure):
        own, plain = self.best(job, allocator, figure), self.best(job, "glibc", figure)
        return own / plain if own is not None and plain else None


def interleaved(measure, jobs, allocators, rounds):
    """Every program under every allocator, each time beginning with another allocator."""
    figures = Figures()
    for number in range(rounds):
        for place, job in enumerate(jobs):
            turn = (number + place) % len(allocators)
            for allocator in allocators[turn:] + allocators[:turn]:
                key = (job.name, allocator.name)
                if key in figures.failures:
                    continue
                try:
                    figures.runs.setdefault(key, []).append(job.run(measure, allocator))
                except Failed as failure:
                    figures.failures[key] = str(failure)
    return figures


def geometric_mean(ratios):
    known = [ratio for ratio in ratios if ratio]
    return math.exp(statistics.fmean(map(math.log, known))) if known else None


def print_ratios(title, figures, jobs, allocators):
    """CPU time and peak memory: glibc's own, and the others' as ratios to it. Returns the geometric means."""
    others = [allocator.name for allocator in allocators if allocator.name != "glibc"]
    kinds = (("cpu_us", "CPU ms", 1000), ("peak_kib", "peak MiB", 1024))
    wide = max(10, *(len(name) + 2 for name in others)) if others else 10
    names = "".join(f"{name:>{wide}}" for name in others)
    name_wide = max(20, *(len(job.name) + 2 for job in jobs)) if jobs else 20
    print(f"\n{title}: glibc's CPU time and peak memory, the others' as ratios to them\n"
          + f"{'':{name_wide}}" + " |".join(f"{heading:>10}{names}" for _, heading, _ in kinds))

    def cell(ratio, failed):
        return f"{'failed' if failed else '-' if ratio is None else format(ratio, '.3f'):>{wide}}"

    def mean_of(these):
        return {name: {figure: geometric_mean([figures.ratio(job.name, name, figure) for job in these])
                       for figure, _, _ in kinds} for name in others}

    for job in jobs:
        parts = []
        for figure, _, unit in kinds:
            plain = figures.best(job.name, "glibc", figure)
            parts.append(f"{'failed' if plain is None else format(plain / unit, '.1f'):>10}" + "".join(
                cell(figures.ratio(job.name, name, figure), (job.name, name) in figures.failures) for name in others))
        print(f"{job.name:{name_wide}}" + " |".join(parts))
    means = mean_of(jobs)
    failed = {job for job, _ in figures.failures}
    ran_under_all = mean_of([job for job in jobs if job.name not in failed])
    for heading, values in [("geometric mean", means)] + ([("of what never failed", ran_under_all)] if failed else []):
        print(f"{heading:{name_wide}}" + " |".join(
            f"{'':10}" + "".join(cell(values[name][figure], False) for name in others) for figure, _, _ in kinds))
    for (job, name), failure in figures.failures.items():
        print(f"FAILED: {job} under {name}: {failure}")
    return means


def as_json(figures, means=None):
    runs = {}
    for (job, name), of in figures.runs.items():
        runs.setdefault(job, {})[name] = of
    return {"runs": runs, "geometric_means": means,
            "failures": [{"program": job, "allocator": name, "why": why}
                         for (job, name), why in figures.failures.items()]}


def workload_jobs(build, threads):
    program = build / "bench" / "host_workloads"
    names = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
    return [Job(name, [program, name, threads, SEED]) for name in sorted(names)]


def large_jobs(build):
    program = build / "bench" / "host_large_blocks"
    return [Job(f"{kind} {kib} KiB x {live}", [program, kind, kib, live, max(2048, 3 * kib * live // 1024), SEED])
            for kind in LARGE_KINDS for kib in LARGE_KIB for live in LARGE_LIVE
            if kib * live <= LARGE_LIVE_MIB_MAX * 1024]


def real_jobs(folder, libc):
    """Those whose programs are installed; what is missing is said."""
    preprocessed, assembly, repository = folder / "real.ii", folder / "real.s", folder / "repository"
    compiler = subprocess.run(["g++", "-print-prog-name=cc1plus"], capture_output=True, text=True).stdout.strip()
    subprocess.run(["g++", "-std=c++20", "-E", SOURCES / "real_cc1plus.cpp", "-o", preprocessed], check=True)
    subprocess.run(["git", "clone", "-q", "--bare", "--single-branch", SOURCES.parent.parent, repository], check=True)
    jobs = [
        Job("python", ["/usr/bin/python3", SOURCES / "real_python.py"],
            {"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"}),
        Job("perl", ["perl", SOURCES / "real_perl.pl"], {"PERL_HASH_SEED": "0"}),
        Job("sqlite3", ["sqlite3", "-batch", ":memory:", f".read {SOURCES / 'real_sqlite.sql'}"]),
        Job("cc1plus", [compiler, "-quiet", "-fpreprocessed", "-std=c++20", "-O1", preprocessed, "-o", assembly],
            output=assembly),
        Job("numpy", ["/usr/bin/python3", SOURCES / "real_numpy.py"]),
        Job("node", ["node", SOURCES / "real_node.js"]),
        # All of this repository's history, packed anew.
        Job("git", ["git", "-C", repository, "-c", "pack.threads=1", "pack-objects", "--all", "--no-reuse-delta",
                    "--no-reuse-object", "--window=8", "--stdout", "-q"]),
        Job("ffmpeg", ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=640x360:rate=25:duration=16",
                       "-f", "lavfi", "-i", "sine=duration=16", "-c:v", "mpeg4", "-c:a", "aac", "-threads", "1",
                       "-bitexact", "-f", "md5", "-"]),
    ]
    for job in [job for job in jobs if not shutil.which(job.command[0])]:
        print(f"left out: {job.name}, which is not installed")
        jobs.remove(job)
    if all(map(shutil.which, ("redis-server", "redis-benchmark", "redis-cli"))):
        jobs.append(RedisJob(libc, folder))
    else:
        print("left out: redis, which is not installed (packages redis-server, redis-tools)")
    postgres = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/pgbench"))
    if postgres and shutil.which("setpriv"):
        jobs.append(PostgresJob(postgres[-1].parent, folder))
    else:
        print("left out: postgres, which is not installed (package postgresql)")
    return jobs


def count_instructions(measure, build, allocators, only):
    """(Instructions of 2n rounds - those of n rounds) / n, the loop's own ten included."""
    table, failures = {}, []
    for loop in ("pair", "fifo"):
        for size in INSTRUCTION_SIZES:
            if not re.search(only, f"{loop} {size} B"):
                continue
            row = table.setdefault(f"{loop} {size} B", {})
            for allocator in allocators:
                try:
                    micro = [build / "bench" / "host_micro", loop, size]
                    once, twice = (instructions_of(measure, allocator, [*micro, times * INSTRUCTION_ROUNDS])
                                   for times in (1, 2))
                    row[allocator.name] = (twice - once) / INSTRUCTION_ROUNDS
                except Failed as failure:
                    failures.append((allocator.name, f"{loop} {size} B: {failure}"))
    return table, failures


def instructions_of(measure, allocator, command):
    """All that the program executes, counted by callgrind."""
    values = {**measure.environment, **allocator.environment, "LD_PRELOAD": " ".join(map(str, allocator.preload))}
    try:
        done = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *map(str, command)],
                              env=values, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise Failed(f"not done after {TIMEOUT_S} s") from None
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or not found:
        raise Failed(f"under callgrind it ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return int(found.group(1))


def count_nanoseconds(measure, build, allocators, rounds, only):
    """(CPU time of n rounds - that of no round) / n, from the minima."""
    jobs = []
    loops = [loop for loop in NANOSECOND_LOOPS if re.search(only, f"{loop[0]} {loop[1]} B")]
    for loop, size, count in loops:
        jobs += [Job(f"{loop} {size} B", [build / "bench" / "host_micro", loop, size, count]),
                 Job(f"{loop} {size} B, start", [build / "bench" / "host_micro", loop, size, 0])]
    figures = interleaved(measure, jobs, allocators, rounds)
    table = {}
    for loop, size, count in loops:
        name = f"{loop} {size} B"
        row = table.setdefault(name, {})
        for allocator in allocators:
            all_rounds, start = (figures.best(job, allocator.name, "cpu_us") for job in (name, f"{name}, start"))
            if all_rounds is not None and start is not None:
                row[allocator.name] = 1000 * (all_rounds - start) / count
    return table, [(name, f"{job}: {why}") for (job, name), why in figures.failures.items()]


def print_absolute(title, table, allocators, digits):
    wide = max(10, *(len(allocator.name) + 2 for allocator in allocators))
    print(f"\n{title}\n{'':20}" + "".join(f"{allocator.name:>{wide}}" for allocator in allocators))
    for name, row in table.items():
        print(f"{name:20}" + "".join(
            f"{format(row[allocator.name], f'.{digits}f') if allocator.name in row else 'failed':>{wide}}"
            for allocator in allocators))


def measure_startup(measure, allocators, rounds):
    """Medians of many starts of /bin/true; the others' as differences to glibc's."""
    figures = interleaved(measure, [Job("true", ["/bin/true"])], allocators, rounds * STARTS_PER_ROUND)
    table = {}
    ended_well = [allocator.name for allocator in allocators if ("true", allocator.name) not in figures.failures]
    for figure, heading, unit in (
            ("cpu_us", "CPU ms", 1000), ("wall_us", "wall ms", 1000), ("peak_kib", "peak MiB", 1024)):
        medians = {name: statistics.median(run[figure] for run in figures.runs["true", name]) / unit
                   for name in ended_well}
        table[heading] = medians
        table[f"{heading}, added"] = {name: value - medians["glibc"] for name, value in medians.items()}
    return table, [(name, f"/bin/true: {why}") for (_, name), why in figures.failures.items()]


def libraries():
    """Name to path, as the dynamic loader finds them for this machine's 64-bit programs."""
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    found = {}
    for name, kind, path in re.findall(r"^\s*(\S+) \(([^)]*)\) => (\S+)$", listed, re.MULTILINE):
        if "64" in kind:
            found.setdefault(name, path)
    return found


def allocators_there(given, found):
    allocators = [Allocator("glibc", [])]
    for name, names_of_files in PEERS.items():
        if not re.search(given.peers, name):
            continue
        path = next((found[file] for file in names_of_files if file in found), None)
        if path:
            allocators.append(Allocator(name, [path]))
            print(f"{name}: {pathlib.Path(path).resolve().name}")
        else:
            print(f"left out: {name}, there is no {' or '.join(names_of_files)}")
    ours = (given.library or given.build / "libcistern.so").resolve()
    if not ours.exists():
        print(f"left out: ours, there is no {ours}")
        return allocators
    allocators.append(Allocator("ours", [ours]))
    for number, options in enumerate(given.options, 1):
        environment = dict(option.split("=", 1) for option in options.split())
        allocators.append(Allocator(f"ours+{number}", [ours], environment))
        print(f"ours+{number}: ours with {options}")
    return allocators


def arguments_given():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="configured with -DCISTERN_BENCH=ON")
    parts = ("workloads", "large", "real", "instructions", "nanoseconds", "startup")
    for part in parts:
        parser.add_argument(f"--{part}", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="workloads, large blocks, real programs and loops whose names match")
    parser.add_argument("--peers", default="", help="jemalloc, tcmalloc and mimalloc, those that match")
    parser.add_argument("--options", action="append", default=[], help="a variant of ours, as CISTERN_HOST=off")
    parser.add_argument("--library", type=pathlib.Path, help="ours; default: libcistern.so of the build directory")
    parser.add_argument("--threads", type=int, default=2, help="of the workloads that have threads")
    parser.add_argument("--json", type=pathlib.Path)
    given = parser.parse_args()
    given.build = given.build.resolve()
    given.all = not any(getattr(given, part) for part in parts)
    return given


def main():
    given = arguments_given()
    print(f"{platform.machine()}, {os.cpu_count()} cores, glibc {platform.libc_ver()[1]};"
          f" {datetime.date.today().isoformat()}; {given.rounds} rounds, {given.threads} threads, seed {SEED}")
    found = libraries()
    allocators, measure = allocators_there(given, found), Measure(given.build)
    results, failed = {}, []

    def ratios(part, title, jobs):
        jobs = [job for job in jobs if re.search(given.only, job.name)]
        figures = interleaved(measure, jobs, allocators, given.rounds)
        results[part] = as_json(figures, print_ratios(title, figures, jobs, allocators))
        failed.extend(name for _, name in figures.failures)

    def absolute(part, title, table_and_failures, digits):
        table, failures = table_and_failures
        print_absolute(title, table, allocators, digits)
        print("".join(f"FAILED under {name}: {why}\n" for name, why in failures), end="")
        results[part] = {"table": table, "failures": failures}
        failed.extend(name for name, _ in failures)

    if given.all or given.workloads:
        ratios("workloads", "Workloads", workload_jobs(given.build, given.threads))
    if given.all or given.large:
        ratios("large", "Large blocks", large_jobs(given.build))
    if given.all or given.real:
        with tempfile.TemporaryDirectory() as folder:
            ratios("real", "Real programs", real_jobs(pathlib.Path(folder), found["libc.so.6"]))
    if given.all or given.instructions:
        if shutil.which("valgrind"):
            absolute("instructions", "Instructions of one malloc and one free, about 10 of them the loop's",
                     count_instructions(measure, given.build, allocators, given.only), 1)
        else:
            print("left out: instructions, valgrind is not installed")
    if given.all or given.nanoseconds:
        absolute("nanoseconds", "Nanoseconds of one malloc and one free, CPU time of all threads",
                 count_nanoseconds(measure, given.build, allocators, given.rounds, given.only), 2)
    if given.all or given.startup:
        absolute("startup", f"/bin/true, medians of {given.rounds * STARTS_PER_ROUND} starts",
                 measure_startup(measure, allocators, given.rounds), 3)
    if given.json:
        given.json.write_text(json.dumps({
            "date": datetime.date.today().isoformat(), "machine": platform.machine(), "cpus": os.cpu_count(),
            "glibc": platform.libc_ver()[1], "rounds": given.rounds, "threads": given.threads, "seed": SEED,
            "allocators": {allocator.name: {"preload": list(map(str, allocator.preload)),
                                            "environment": allocator.environment} for allocator in allocators},
            **results}, indent=1) + "\n")
    sys.exit(1 if any(name not in PEERS for name in failed) else 0)


if __name__ == "__main__":
    main()
