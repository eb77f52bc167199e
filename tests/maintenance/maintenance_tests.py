"""Memory that goes back while a program is idle (CISTERN_MAINTENANCE), or where memory is scarce, by what is resident
before and after. A program may see little of the thread that does it.

usage: maintenance_tests.py CISTERN SHIM SIMULATOR WATCHED IDLE LINKED [TEST...]
"""
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest

CISTERN, SHIM, SIMULATOR, WATCHED, IDLE, LINKED = sys.argv[1:7]
SHIM = str(pathlib.Path(SHIM).resolve())
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("CISTERN", "LD_"))}
PYTHON = "/usr/bin/python3"
MIB = 1 << 20
LARGE_MIB, SMALL_MIB = 150, 48


def wait_until(holds, seconds=20):
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.01)
    return holds()


class Program:
    """A program that does what its lines of input say, under Cistern."""

    def __init__(self, test, program=(IDLE,), **options):
        environment = {"CISTERN_MAINTENANCE": "100ms", "CISTERN_REPORT": "none", **options.pop("environment", {})}
        self.process = subprocess.Popen(
            program, env={**ENVIRONMENT, "LD_PRELOAD": SHIM, "LD_LIBRARY_PATH": SIMULATOR, **environment},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
        test.addCleanup(self.stop)
        self.test, self.pid = test, self.process.pid

    def send(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def do(self, line):
        self.send(line)
        answer = self.process.stdout.readline().strip()
        if not answer:
            self.test.fail(f"{line}: no answer, {self.process.wait(20)}, {self.process.stderr.read()}")
        return answer

    def end(self, how):
        """Its output, exit code and errors."""
        out, errors = self.process.communicate(f"end {how}\n", timeout=60)
        return out, self.process.returncode, errors

    def stop(self):
        self.process.kill()
        self.process.communicate()

    def status(self, name):
        text = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(text.split(name + ":")[1].split()[0])

    def resident_mib(self):
        return self.status("VmRSS") >> 10

    def cpu_s(self):
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Maintenance(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.here = pathlib.Path(temporary.name)

    def start(self, interval="100ms", **options):
        return Program(self, environment={"CISTERN_MAINTENANCE": interval, **options.pop("environment", {})}, **options)


class Idle(Maintenance):
    def returned_mib(self, program, line, at_least_mib):
        """The memory that the program has less than one without the thread after the line, when both are idle. The
        test waits for so much."""
        without = self.start("0")
        without.do(line)
        program.do(line)
        returned = lambda: without.resident_mib() - program.resident_mib()
        wait_until(lambda: returned() >= at_least_mib, 4)
        return returned()

    def test_free_blocks(self):
        for environment in ({}, {"CISTERN_TRIM_INTERVAL": "0"}, {"CISTERN_LIVE": "thread"}, {"CISTERN_SITES": "all"}):
            program = self.start(environment=environment)
            self.assertGreater(self.returned_mib(program, f"large {LARGE_MIB}", 40), 40, environment)
            self.assertEqual(program.do("tasks"), "2")

    def test_memory_that_ended_threads_left(self):
        program = self.start()
        self.assertGreaterEqual(self.returned_mib(program, f"threads {SMALL_MIB}", 10), 10)
        self.assertEqual(program.do("check"), "done")
        program.do(f"threads {SMALL_MIB}")
        self.assertEqual(program.do("check"), "done")

    def test_not_without_the_thread_nor_before_its_time(self):
        for interval in ("", "1h"):
            program = self.start(interval)
            self.assertLess(self.returned_mib(program, f"large {LARGE_MIB}", 40), 20, interval)

    def test_what_a_live_thread_has_stays_whole(self):
        program = self.start("10ms")
        for _ in range(5):
            program.do("live 8")
            time.sleep(0.1)
        self.assertEqual(program.do("check"), "done")

    def test_it_takes_no_time(self):
        program = self.start()
        program.do(f"large {LARGE_MIB}")
        program.do(f"threads {SMALL_MIB}")
        time.sleep(1)
        before = program.cpu_s()
        time.sleep(3)
        self.assertLess(program.cpu_s() - before, 0.15)

    def test_a_report_says_how_much(self):
        report = self.here / "report.json"
        program = self.start(environment={"CISTERN_REPORT": str(report), "CISTERN_REPORT_FORMAT": "json"})
        self.returned_mib(program, f"large {LARGE_MIB}", 40)
        self.assertEqual(program.end("exit")[1], 5)
        host = json.loads(report.read_text())["fragmentation"]["host"]
        self.assertGreater(host["returned_by_maintenance_bytes"], 40 * MIB)
        self.assertNotIn("returned_under_pressure_bytes", host)


class Thread(Maintenance):
    def test_who_has_one(self):
        for environment, tasks in (({}, "2"), ({"CISTERN": "off"}, "1"), ({"CISTERN_MAINTENANCE": "0"}, "1"),
                                   ({"CISTERN_SYSTEM_CALLS": "few"}, "1"), ({"CISTERN_LIVE": "thread"}, "2"),
                                   ({"CISTERN_HOST_POOL": "off"}, "1"), ({"LD_PRELOAD": ""}, "1")):
            self.assertEqual(self.start(environment=environment).do("tasks"), tasks, environment)

    def test_its_name_and_signals(self):
        program = self.start()
        program.do("tasks")
        tasks = {path.name: path for path in pathlib.Path(f"/proc/{program.pid}/task").iterdir()}
        own = tasks[next(name for name in tasks if name != str(program.pid))]
        self.assertTrue(wait_until(lambda: (own / "comm").read_text() == "cistern\n"))
        blocked = int((own / "status").read_text().split("SigBlk:")[1].split()[0], 16)
        for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGCHLD):
            self.assertTrue(blocked >> (number - 1) & 1, number)

    def test_it_is_gone_before_exit_handlers(self):
        for interval in ("10ms", "1h"):
            program = self.start(interval)
            program.do("at_exit")
            begin = time.monotonic()
            self.assertEqual(program.end("exit"), ("handler 1\ndestructor 1\n", 5, ""))
            self.assertLess(time.monotonic() - begin, 5)

    def test_ends(self):
        for how, code in (("exit", 5), ("_exit", 5), ("quick_exit", 5), ("abort", -signal.SIGABRT), ("last_thread", 0)):
            for interval in ("10ms", "1h"):
                program = self.start(interval)
                program.do("large 30")
                self.assertEqual(program.end(how), ("", code, ""), how)

    def test_children(self):
        program = self.start("10ms")
        program.do(f"threads {SMALL_MIB}")
        for how in ("fork", "daemon"):
            for _ in range(3):
                self.assertEqual(program.do(how), "2 7", how)
        self.assertEqual(program.do("tasks"), "2")

    def test_a_program_that_it_executes(self):
        program = self.start("10ms")
        for _ in range(3):
            self.assertEqual(program.do("tasks"), "2")
            self.assertEqual(program.do("execute"), "again")
        self.assertEqual(program.do("tasks"), "2")

    def test_capabilities_end_it(self):
        program = self.start("10ms")
        self.assertEqual(program.do("capabilities"), "done")
        self.assertEqual(program.do("tasks"), "1")
        self.assertEqual(program.end("exit"), ("", 5, ""))

    def test_a_filter_of_system_calls_ends_it(self):
        program = self.start("10ms", program=(WATCHED,))
        program.do("allocate host 100000")
        self.assertEqual(program.do("filter"), "done")
        time.sleep(0.1)
        for _ in range(100):
            program.do("allocate host 3000000")
            program.do("free")
        self.assertEqual(program.end("exit"), ("", 0, ""))

    def test_limits(self):
        for name, limit in ((resource.RLIMIT_AS, 300 * MIB), (resource.RLIMIT_DATA, 100 * MIB),
                            (resource.RLIMIT_NOFILE, 4), (resource.RLIMIT_STACK, 256 << 10)):
            program = self.start("10ms", preexec_fn=lambda: resource.setrlimit(name, (limit, limit)))
            program.do("large 40")
            program.do("threads 8")
            self.assertEqual(program.do("check"), "done")
            self.assertEqual(program.end("exit"), ("", 5, ""), name)

    def test_a_linked_program(self):
        for interval, tasks in (("10ms", 2), ("0", 1)):
            ran = subprocess.run([LINKED], env={**ENVIRONMENT, "CISTERN_MAINTENANCE": interval}, capture_output=True,
                                 text=True, timeout=60)
            self.assertEqual((ran.stdout, ran.returncode, ran.stderr),
                             (f"before 1\nidle {tasks}\ndestructor 1\n", 0, ""))


class Pools(Maintenance):
    def kinds(self, program):
        subprocess.run([CISTERN, "top", str(program.pid), "--once"], env=ENVIRONMENT, capture_output=True, timeout=60)
        pages = pathlib.Path(f"/dev/shm/cistern-{os.geteuid()}").glob(f"*-{program.pid}-*.json")
        return json.loads(next(pages).read_text())["kinds"]

    def retained(self, program, kind):
        return self.kinds(program)[kind]["pooled_blocks"]

    def test_cuda(self):
        for kind, row in (("device", "device:0"), ("pinned", "pinned")):
            programs = {interval: self.start(interval, program=(WATCHED,), environment={"CISTERN_LIVE": "thread"})
                        for interval in ("100ms", "1h")}
            for program in programs.values():
                program.do(f"allocate {kind} {3 * MIB}")
                program.do(f"allocate {kind} {MIB}")
                program.do("free")
            self.assertTrue(wait_until(lambda: self.retained(programs["100ms"], row) == 0), kind)
            self.assertEqual(self.retained(programs["1h"], row), 1)
            self.assertEqual(self.kinds(programs["100ms"])[row]["live_blocks"], 1)

    def test_what_is_used_stays(self):
        program = self.start("2s", program=(WATCHED,), environment={"CISTERN_LIVE": "thread"})
        for _ in range(25):
            program.do(f"allocate device {MIB}")
            program.do("free")
            time.sleep(0.2)
        self.assertEqual(self.kinds(program)["device:0"]["driver_allocs"], 1)

    def test_what_an_option_reserves_stays(self):
        program = self.start(program=(WATCHED,), environment={"CISTERN_LIVE": "thread",
                                                               "CISTERN_DEVICE_POOL_MIN": "1GiB"})
        program.do(f"allocate device {MIB}")
        program.do("free")
        time.sleep(0.5)
        self.assertEqual(self.retained(program, "device:0"), 1)

    def test_where_the_host_pool_does_not_serve(self):
        program = self.start(program=(WATCHED,), environment={"CISTERN_HOST_POOL": "off", "CISTERN_LIVE": "on"})
        self.assertEqual(program.do("threads"), "1")
        program.do(f"allocate pinned {MIB}")
        self.assertEqual(program.do("threads"), "2")
        program.do("free")
        self.assertTrue(wait_until(lambda: self.retained(program, "pinned") == 0))

    def test_opencl_as_a_layer(self):
        script = self.here / "layered.py"
        script.write_text(
            "import sys\nimport pyopencl as cl\ncontext = cl.Context(cl.get_platforms()[0].get_devices())\n"
            "for line in sys.stdin:\n"
            "    cl.Buffer(context, cl.mem_flags.READ_WRITE, 1 << 20).release()\n    print('done', flush=True)\n")
        for interval, retained in (("100ms", 0), ("1h", 1)):
            for preload in ({"LD_PRELOAD": "", "OPENCL_LAYERS": SHIM}, {}):
                program = self.start(interval, program=(PYTHON, str(script)),
                                     environment={"CISTERN_LIVE": "thread", **preload})
                self.assertEqual(program.do("allocate"), "done")
                tasks = pathlib.Path(f"/proc/{program.pid}/task")
                self.assertTrue(wait_until(lambda: "cistern\n" in [path.read_text() for path in tasks.glob("*/comm")]))
                self.assertTrue(wait_until(lambda: self.retained(program, "opencl") == retained), interval)


def mounted_groups():
    """Where control groups of version 2 are mounted; none: nowhere."""
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        if " - cgroup2 " in line:
            return pathlib.Path(line.split()[4])
    return None


class Pressure(Maintenance):
    def start_in_group(self, interval, report, **files):
        """A program that sees these files of its group in place of the system's own."""
        if os.geteuid() or not mounted_groups():
            self.skipTest("only root mounts other files over those of control groups of version 2, where there are any")
        folder = self.here / "group"
        folder.mkdir(exist_ok=True)
        for name, text in files.items():
            (folder / f"memory.{name}").write_text(f"{text}\n")
        script = f'mount --bind {folder} {mounted_groups()} && LD_PRELOAD={SHIM} exec {IDLE}'
        return self.start(interval, program=("unshare", "-m", "sh", "-c", script),
                          environment={"LD_PRELOAD": "", "CISTERN_REPORT": str(report),
                                       "CISTERN_REPORT_FORMAT": "json"})

    def in_a_real_group(self, limit):
        """One whose memory is limited. The test is skipped where the machine lets none be made."""
        if not mounted_groups():
            self.skipTest("no control groups of version 2 are mounted")
        group = mounted_groups() / f"cistern-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError as error:
            self.skipTest(f"no control group can be made: {error}")
        self.addCleanup(group.rmdir)
        try:
            (group / "memory.high").write_text(str(limit))
        except OSError as error:
            self.skipTest(f"control groups of version 2 do not limit memory here: {error}")
        return group

    def returned_bytes(self, program, report):
        """The memory of a live thread and of ended ones that went back while the program allocated."""
        program.do("live 60")
        program.do("threads 20")
        for _ in range(8):
            time.sleep(0.3)
            program.do("live 1")
        self.assertEqual(program.do("check"), "done")
        self.assertEqual(program.end("exit"), ("", 5, ""))
        host = json.loads(report.read_text())["fragmentation"]["host"]
        return host.get("returned_under_pressure_bytes", 0)

    def test_near_a_limit_free_memory_goes_back(self):
        for name in ("high", "max"):
            for used, returns in ((95 * MIB, True), (50 * MIB, False)):
                report = self.here / f"{name}-{used}.json"
                program = self.start_in_group("0", report, high="max", max="max", current=used)
                (self.here / "group" / f"memory.{name}").write_text(str(100 * MIB))
                self.assertEqual(self.returned_bytes(program, report) > 10 * MIB, returns, (name, used))

    def test_near_a_limit_of_a_real_group(self):
        group, report = self.in_a_real_group(160 * MIB), self.here / "report.json"
        program = self.start("0", environment={"CISTERN_REPORT": str(report), "CISTERN_REPORT_FORMAT": "json"})
        (group / "cgroup.procs").write_text(str(program.pid))
        program.do("live 100")
        self.assertGreater(self.returned_bytes(program, report), 10 * MIB)

    def test_where_tasks_wait_an_idle_program_returns_all(self):
        for percent, returns in (("50.00", True), ("3.00", False)):
            report = self.here / f"{percent}.json"
            program = self.start_in_group("1h", report, pressure=f"some avg10={percent} avg60=0.00 avg300=0.00 total=1")
            program.do(f"large {LARGE_MIB}")
            before = program.resident_mib()
            self.assertEqual(wait_until(lambda: before - program.resident_mib() > 30, 10 if returns else 3), returns)
            self.assertEqual(program.end("exit"), ("", 5, ""))

    def test_programs_ask_no_sooner_than_in_a_second_and_keep_nothing_open(self):
        program = self.start("0")
        before = sorted(os.listdir(f"/proc/{program.pid}/fd"))
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            program.do("live 2")
        self.assertEqual(sorted(os.listdir(f"/proc/{program.pid}/fd")), before)
        self.assertEqual(program.end("exit"), ("", 5, ""))


class Hard(Maintenance):
    def test_busy_threads_that_end_and_fork(self):
        for environment in ({}, {"CISTERN_LIVE": "thread"}, {"CISTERN_SITES": "all"}):
            program = self.start("10ms", environment=environment)
            self.assertEqual(program.do("busy 3"), "done", environment)
            self.assertEqual(program.do("check"), "done")
            self.assertEqual(program.end("exit"), ("", 5, ""))

    def test_kinds_beside_it(self):
        program = self.start("10ms", program=(WATCHED,))
        self.assertEqual(program.do("churn 4"), "done")
        self.assertEqual(program.end("exit"), ("", 0, ""))

    def test_handlers_that_jump(self):
        program = self.start("10ms")
        self.assertEqual(program.do("jumps 3"), "done")
        self.assertEqual(program.end("exit"), ("", 5, ""))

    def test_ends_at_once(self):
        for _ in range(100):
            ran = subprocess.run([IDLE], env={**ENVIRONMENT, "LD_PRELOAD": SHIM, "CISTERN_MAINTENANCE": "10ms"},
                                 input="end exit\n", capture_output=True, text=True, timeout=60)
            self.assertEqual((ran.stdout, ran.returncode, ran.stderr), ("", 5, ""))

    def test_behind_and_before_another_interposer(self):
        libraries = [path for path in pathlib.Path("/usr/lib").glob("*/faketime/libfaketime.so.1")]
        libraries += [path for path in pathlib.Path("/usr/lib").glob("*/libjemalloc.so.2")]
        self.assertTrue(libraries, "libfaketime or libjemalloc2 is missing")
        for library in libraries:
            for preload in (f"{SHIM}:{library}", f"{library}:{SHIM}"):
                for fake in ("-100d", "+100d x1000", "2020-01-01 00:00:00"):
                    program = self.start(environment={"LD_PRELOAD": preload, "FAKETIME": fake})
                    program.do("large 60")
                    before = program.cpu_s()
                    time.sleep(1)
                    self.assertLess(program.cpu_s() - before, 0.2, (preload, fake))
                    self.assertEqual(program.end("exit"), ("", 5, ""))

    def test_programs_are_as_without_it(self):
        script = "print(sum(i * i for i in range(200000)), len([bytes(n) for n in range(3000)]))"
        commands = (
            ["sh", "-c", "for i in 1 2 3 4 5 6; do echo $i | cat; done; exit 3"],
            ["bash", "-c", "(exit 4) & wait $!; echo $?; seq 1 20000 | sort -R --random-source=/dev/zero | md5sum"],
            ["perl", "-e", 'my %h = map {$_ => $_ ** 2} 1 .. 9999; print join(",", sort values %h); exit 5'],
            ["python3", "-c", script], ["python3", "-W", "error", "-c", "import os\nif os.fork(): print(os.wait()[1])"],
            ["git", "--version"], ["find", "/usr/share/doc", "-maxdepth", "1", "-name", "g*"],
            ["grep", "-rc", "the", "/usr/share/common-licenses"],
            ["awk", "BEGIN {while (i < 99999) a[i++] = i; print i}"],
            ["tar", "-cf", "-", "--sort=name", "--mtime=@0", "-C", "/usr/share", "common-licenses"],
            ["gzip", "-9nc", "/usr/share/common-licenses/GPL-3"],
            ["xz", "-T2", "-c", "/usr/share/common-licenses/GPL-3"],
            ["openssl", "speed", "-help"], ["make", "-f", "/dev/null", "-pq"], ["env", "-i", "A=1", "env"],
            ["setpriv", "--nnp", "id", "-u"], ["timeout", "5", "sleep", "0.05"], ["nice", "date", "-d", "@0", "-u"])
        for command in commands:
            if subprocess.run(["sh", "-c", f"command -v {command[0]}"], capture_output=True).returncode:
                continue
            ran = [subprocess.run(command, env={**ENVIRONMENT, **environment}, capture_output=True, timeout=120)
                   for environment in ({}, {"LD_PRELOAD": SHIM, "CISTERN_MAINTENANCE": "10ms"})]
            shown = [(one.stdout, one.returncode, one.stderr) for one in ran]
            if command[0] == "make":  # it prints the environment
                shown = [one[1:] for one in shown]
            self.assertEqual(*shown, command)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[7:]], verbosity=2)
