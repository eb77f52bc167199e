"""`cistern run`: the program behaves as without it, and its reports are where they should be.

usage: run_test.py CISTERN SHIM
"""
import fcntl
import json
import os
import pathlib
import pty
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest

CISTERN = pathlib.Path(sys.argv[1]).resolve()
SHIM = pathlib.Path(sys.argv[2]).resolve()
ENVIRONMENT = {**os.environ, "LIBCISTERN_LIBRARY": str(SHIM)}
for name in [name for name in ENVIRONMENT if name.startswith(("CISTERN", "OMPI_", "PMI", "SLURM_"))]:
    del ENVIRONMENT[name]

# Writes a line when a signal comes, and ends at SIGTERM's second.
COUNTS_SIGNALS = """
import os, signal, sys, time
seen = []
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, lambda number, frame: seen.append(number))
print("ready", flush=True)
end = time.monotonic() + 20
while signal.SIGUSR2 not in seen and time.monotonic() < end: time.sleep(0.01)
time.sleep(0.1)
print(" ".join(str(int(number)) for number in seen), flush=True)
"""


class Run(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.here = pathlib.Path(self.folder.name)

    def run_cistern(self, *arguments, **options):
        options = {"cwd": self.here, "env": ENVIRONMENT, "capture_output": True, "text": True, "timeout": 60, **options}
        return subprocess.run([str(CISTERN), *arguments], check=False, **options)

    def start(self, *arguments, **options):
        options = {"cwd": self.here, "env": ENVIRONMENT, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
                   "text": True, **options}
        return subprocess.Popen([str(CISTERN), "run", "--", *arguments], **options)

    def folders(self):
        return sorted(path.name for path in self.here.iterdir() if path.name.startswith("cistern-"))


class Ends(Run):
    def test_the_exit_code_is_the_programs(self):
        for code in (0, 1, 23, 255):
            self.assertEqual(self.run_cistern("run", "--", "sh", "-c", f"exit {code}").returncode, code)

    def test_the_signal_is_the_programs(self):
        for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGHUP, signal.SIGABRT):
            ran = self.run_cistern("run", "--", "sh", "-c", f"kill -{int(number)} $$")
            self.assertEqual(ran.returncode, -number)

    def test_a_killed_program_has_no_report_and_no_folder(self):
        ran = self.run_cistern("run", "--", "sh", "-c", "kill -9 $$")
        self.assertEqual(ran.stderr, "cistern: no report: the program was killed before it could write one\n")
        self.assertEqual(self.folders(), [])

    def test_what_cannot_be_started(self):
        ran = self.run_cistern("run", "--", "no-such-program")
        self.assertEqual((ran.returncode, ran.stderr), (127, "cistern: no-such-program: not found\n"))
        ran = self.run_cistern("run", "--", "/etc/passwd")
        self.assertEqual((ran.returncode, ran.stderr), (126, "cistern: /etc/passwd: Permission denied\n"))
        self.assertEqual(self.folders(), [])

    def test_no_program(self):
        for arguments in (("run",), ("run", "--"), ("run", "--sites", "all", "--")):
            ran = self.run_cistern(*arguments)
            self.assertEqual((ran.returncode, ran.stderr), (
                2, "cistern: no program given: cistern run [OPTION...] -- PROGRAM [ARGUMENT...]\n"))


class Streams(Run):
    def test_standard_streams_are_the_programs(self):
        ran = self.run_cistern("run", "--", "sh", "-c", "cat; echo to-stderr >&2", input="to-stdout\n")
        self.assertEqual(ran.stdout, "to-stdout\n")
        self.assertTrue(ran.stderr.startswith("to-stderr\ncistern: "), ran.stderr)

    def test_the_reader_of_a_closed_stream_sees_its_end(self):
        started = self.start("sh", "-c", "exec >&-; exec sleep 20", stdin=subprocess.DEVNULL)
        began = time.monotonic()
        self.assertEqual(started.stdout.read(), "")
        self.assertLess(time.monotonic() - began, 10)
        started.terminate()
        started.communicate()

    def test_no_descriptor_of_ours_is_in_the_program(self):
        script = "import os; print(sorted(os.listdir('/proc/self/fd')))"
        plain = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
        self.assertEqual(self.run_cistern("run", "--", sys.executable, "-c", script).stdout, plain.stdout)

    def test_an_inherited_lock_is_free_once_the_program_closes_it(self):
        lock = self.here / "lock"
        script = ("import fcntl, os, sys; os.close(int(sys.argv[1])); f = open(sys.argv[2]); "
                  "fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB); print('locked')")
        descriptor = os.open(lock, os.O_CREAT | os.O_RDWR)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        started = subprocess.Popen([str(CISTERN), "run", "--", "sh", "-c", 'sleep 0.5; exec "$@"', "sh", sys.executable,
                                    "-c", script, str(descriptor), str(lock)], cwd=self.here, env=ENVIRONMENT,
                                   pass_fds=[descriptor], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        os.close(descriptor)
        self.assertEqual(started.communicate(timeout=60)[0], "locked\n")


class Signals(Run):
    def counted(self, send, **options):
        started = self.start(sys.executable, "-c", COUNTS_SIGNALS, start_new_session=True, **options)
        self.assertEqual(started.stdout.readline(), "ready\n")
        send(started)
        time.sleep(0.1)
        os.kill(started.pid, signal.SIGUSR2)
        output, _ = started.communicate(timeout=60)
        return [signal.Signals(int(number)) for number in output.split()]

    def test_a_signal_to_the_command_reaches_the_program_once(self):
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            seen = self.counted(lambda started: os.kill(started.pid, number))
            self.assertEqual(seen, [number, signal.SIGUSR2])

    def test_a_signal_to_the_group_reaches_the_program_once(self):
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            seen = self.counted(lambda started: os.killpg(started.pid, number))
            self.assertEqual(seen, [number, signal.SIGUSR2])

    def test_every_other_signal_is_handed_on_with_its_value(self):
        script = ("import signal, sys\n"
                  "numbers = [int(word) for word in sys.argv[1:]]\n"
                  "signal.pthread_sigmask(signal.SIG_BLOCK, numbers)\n"
                  "print('ready', flush=True)\n"
                  "for _ in numbers:\n"
                  "    info = signal.sigtimedwait(numbers, 20)\n"
                  "    print(info and info.si_signo, flush=True)\n")
        numbers = [signal.SIGPROF, signal.SIGVTALRM, signal.SIGIO, signal.SIGPWR, signal.SIGURG, signal.SIGPIPE,
                   signal.SIGABRT, signal.SIGSEGV, signal.SIGFPE, signal.SIGSYS, signal.SIGRTMIN + 1, signal.SIGRTMAX]
        started = self.start(sys.executable, "-c", script, *(str(int(number)) for number in numbers))
        self.assertEqual(started.stdout.readline(), "ready\n")
        for number in numbers:
            os.kill(started.pid, number)
            self.assertEqual(started.stdout.readline(), f"{int(number)}\n")
        started.communicate(timeout=60)
        self.assertEqual(started.returncode, 0)

    def test_a_program_that_left_the_group_gets_its_signals_too(self):
        script = ("import os, signal, time\n"
                  "signal.signal(signal.SIGINT, lambda *_: os._exit(5))\n"
                  "os.setpgid(0, 0)\n"
                  "print('ready', flush=True)\n"
                  "time.sleep(20)\n")
        started = self.start(sys.executable, "-c", script, start_new_session=True)
        self.assertEqual(started.stdout.readline(), "ready\n")
        os.killpg(started.pid, signal.SIGINT)
        started.communicate(timeout=60)
        self.assertEqual(started.returncode, 5)

    def test_signals_after_the_programs_end_change_nothing(self):
        script = ("import os, signal, time\n"
                  "signal.signal(signal.SIGTERM, lambda *_: os._exit(7))\n"
                  "print('ready', flush=True)\n"
                  "time.sleep(20)\n")
        for _ in range(5):
            started = self.start(sys.executable, "-c", script)
            self.assertEqual(started.stdout.readline(), "ready\n")
            while started.poll() is None:
                started.terminate()
                time.sleep(0.001)
            self.assertEqual(started.returncode, 7)
            self.assertIn("cistern: next: ", started.communicate()[1])

    def test_ignored_signals_and_the_mask_are_inherited(self):
        script = ("import signal; print([signal.getsignal(n) for n in (signal.SIGCHLD, signal.SIGHUP)], "
                  "signal.pthread_sigmask(signal.SIG_BLOCK, []))")

        def prepare():
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        plain = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True,
                               preexec_fn=prepare)
        ran = self.run_cistern("run", "--", sys.executable, "-c", script, preexec_fn=prepare)
        self.assertEqual((ran.returncode, ran.stdout), (0, plain.stdout))

    def test_the_program_ends_with_the_killed_command(self):
        started = self.start("sh", "-c", "echo $$; exec sleep 60")
        program = int(started.stdout.readline())
        started.kill()
        started.communicate()
        for _ in range(100):
            try:
                state = pathlib.Path(f"/proc/{program}/stat").read_text().split()[2]
            except FileNotFoundError:
                return
            if state == "Z":
                return
            time.sleep(0.05)
        self.fail("the program is still there")

    def test_stops_and_continues_with_the_program(self):
        started = self.start("sh", "-c", "kill -STOP $$; echo continued")
        self.assertTrue(os.WIFSTOPPED(os.waitpid(started.pid, os.WUNTRACED)[1]))
        os.kill(started.pid, signal.SIGCONT)
        output, _ = started.communicate(timeout=60)
        self.assertEqual((output, started.returncode), ("continued\n", 0))

    def test_the_terminals_keys(self):
        """Ctrl-Z, fg and Ctrl-C of a shell with job control."""
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(self.here)
            os.execve("/bin/bash", ["bash", "--norc", "-i"], {**ENVIRONMENT, "PS1": "READY "})
        output = b""

        def until(text):
            nonlocal output
            end = time.monotonic() + 30
            while text not in output and time.monotonic() < end:
                output += os.read(terminal, 4096)
            self.assertIn(text, output)
            output = output.split(text, 1)[1]
        until(b"READY ")
        (self.here / "keys.sh").write_text(
            "trap 'echo interrupted; exit 5' INT\necho started\nwhile :; do sleep 0.1; done\n")
        os.write(terminal, f"{CISTERN} run -- bash keys.sh\n".encode())
        until(b"started")
        os.write(terminal, b"\x1a")
        until(b"Stopped")
        until(b"READY ")
        os.write(terminal, b"fg\n")
        until(b"keys.sh")
        time.sleep(0.3)
        os.write(terminal, b"\x03")
        until(b"interrupted")
        until(b"READY ")
        os.write(terminal, b"echo code=$?\n")
        until(b"code=5")
        os.write(terminal, b"exit\n")
        os.waitpid(child, 0)


class Folders(Run):
    def test_a_report_for_each_process_and_a_summary(self):
        ran = self.run_cistern("run", "--", "sh", "-c", "/bin/true; /bin/true; exit 3")
        self.assertEqual(ran.returncode, 3)
        [folder] = self.folders()
        self.assertRegex(folder, r"^cistern-sh-\d+$")
        reports = list((self.here / folder).glob("*.json"))
        self.assertEqual(len(reports), 3)
        commands = sorted(json.loads(path.read_text())["cistern"]["command"] for path in reports)
        self.assertEqual(commands, ["/bin/true", "/bin/true", "sh -c /bin/true; /bin/true; exit 3"])
        self.assertEqual(ran.stderr, "cistern: no GPU memory was used  (3 processes)\n"
                                     f"cistern: next: cistern html {folder}\n")
        shown = self.run_cistern("report", folder)
        self.assertEqual(shown.stdout, (self.here / folder / "summary.txt").read_text())

    def test_a_folder_by_name_and_one_that_cannot_be_made(self):
        self.run_cistern("run", "-o", "mine", "--", "/bin/true")
        self.assertEqual(len(list((self.here / "mine").glob("*.json"))), 1)
        temporary = self.here / "temporary"
        temporary.mkdir()
        ran = self.run_cistern("run", "-o", "/proc/none", "--", "/bin/true",
                               env={**ENVIRONMENT, "TMPDIR": str(temporary)})
        self.assertEqual(ran.returncode, 0)
        self.assertIn(f"the reports go to {temporary}/cistern-true-", ran.stderr)
        self.assertEqual(len(list(temporary.glob("cistern-true-*/*.json"))), 1)

    def test_a_folder_of_another_run_is_left_alone(self):
        self.run_cistern("run", "-o", "mine", "--", "/bin/true")
        before = sorted((self.here / "mine").iterdir())
        ran = self.run_cistern("run", "-o", "mine", "--", "/bin/true", env={**ENVIRONMENT, "TMPDIR": str(self.here)})
        self.assertRegex(ran.stderr, "^cistern: mine: it has reports of another run; the reports go to "
                                     f"{self.here}/cistern-true-")
        self.assertEqual(sorted((self.here / "mine").iterdir()), before)

    def test_a_folder_that_was_there_stays(self):
        (self.here / "mine").mkdir()
        self.run_cistern("run", "-o", "mine", "--", "no-such-program")
        self.run_cistern("run", "-o", "mine", "--", "sh", "-c", "kill -9 $$")
        self.assertTrue((self.here / "mine").is_dir())

    def test_a_folder_with_signs_of_report_paths(self):
        self.run_cistern("run", "-o", "100%%p%r", "--", "/bin/true")
        self.assertEqual(len(list((self.here / "100%%p%r").glob("*.json"))), 1)

    def test_folders_that_vanish(self):
        gone = self.here / "gone"
        gone.mkdir()
        ran = self.run_cistern("run", "--", "sh", "-c", f"rm -rf {gone}; exit 3", cwd=gone)
        self.assertEqual(ran.returncode, 3)
        script = f"mkdir vanished; cd vanished; rmdir ../vanished; {CISTERN} run -- sh -c 'exit 4'"
        for temporary in (str(self.here), "/nonexistent", "/etc/passwd"):
            ran = subprocess.run(["sh", "-c", script], check=False, cwd=self.here, capture_output=True, text=True,
                                 env={**ENVIRONMENT, "TMPDIR": temporary}, timeout=60)
            self.assertEqual(ran.returncode, 4, ran.stderr)

    def test_the_folder_wins_over_the_environment(self):
        self.run_cistern("run", "-o", "mine", "--", "/bin/true", env={**ENVIRONMENT, "CISTERN_REPORT": "none"})
        self.assertEqual(len(list((self.here / "mine").glob("*.json"))), 1)
        ran = self.run_cistern("run", "-o", "other", "--report", "x", "--", "/bin/true")
        self.assertEqual((ran.returncode, ran.stderr), (2, "cistern: -o and --report: reports go to one place only\n"))

    def test_few_descriptors(self):
        ran = self.run_cistern("run", "--", "sh", "-c", "exit 3",
                               preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (6, 6)))
        self.assertEqual(ran.returncode, 3)

    def test_flags_are_options(self):
        script = "import os; print(os.environ['CISTERN_SITES'], os.environ['CISTERN_TRIM_INTERVAL'])"
        ran = self.run_cistern("run", "--sites", "all", "--set", "trim-interval=7s", "--", sys.executable, "-c", script)
        self.assertEqual(ran.stdout, "all 7s\n")
        before = self.folders()
        ran = self.run_cistern("run", "--report", "own.txt", "--", "/bin/true")
        self.assertEqual((self.folders(), ran.stderr), (before, ""))
        self.assertTrue((self.here / "own.txt").read_text().startswith("cistern "))
        ran = self.run_cistern("run", "--report-format", "text", "--", "/bin/true")
        self.assertEqual((ran.returncode, ran.stderr),
                         (2, "cistern: --report-format needs --report: a folder of reports has JSON\n"))

    def test_words_of_the_program_are_none_of_ours(self):
        for separator in (["--"], []):
            ran = self.run_cistern("run", *separator, "echo", "--sites", "all", "--", "-o", "x")
            self.assertEqual(ran.stdout, "--sites all -- -o x\n")

    def test_what_else_is_preloaded_stays(self):
        script = "import os; print(os.environ['LD_PRELOAD'])"
        ran = self.run_cistern("run", "--", sys.executable, "-c", script,
                               env={**ENVIRONMENT, "LD_PRELOAD": f"/no/such.so {SHIM}"})
        self.assertEqual(ran.stdout, f"{SHIM}:/no/such.so\n")

    def test_no_library(self):
        ran = self.run_cistern("run", "--", "/bin/true", env={**ENVIRONMENT, "LIBCISTERN_LIBRARY": "/none.so"})
        self.assertEqual((ran.returncode, ran.stderr),
                         (2, "cistern: LIBCISTERN_LIBRARY=/none.so: there is no such file\n"))

    def test_ranks_share_a_folder(self):
        for rank in ("1", "0"):
            ran = self.run_cistern("run", "--", "/bin/true", env={
                **ENVIRONMENT, "OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": "job@1"})
            self.assertEqual(ran.returncode, 0)
            self.assertEqual("when all have ended: cistern report" in ran.stderr, rank == "0", ran.stderr)
        self.assertEqual(self.folders(), ["cistern-true-job_1"])
        names = sorted(path.name for path in (self.here / "cistern-true-job_1").glob("*.json"))
        self.assertEqual([name.split("-")[1] for name in names], ["0", "1"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[3:]])
