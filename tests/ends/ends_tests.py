"""How processes end, plain and with libcistern.so preloaded: by signals, with exit codes, with leaks that are known."""
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "host"))
import host_tests  # noqa: E402
import odd_paths  # noqa: E402
from host_tests import ARGUMENTS, HostTest  # noqa: E402
from report_rows import gpu_rows  # noqa: E402

SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def full_pipe():
    """Its ends; who writes to it waits."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    try:
        while os.write(write, bytes(65536)):
            pass
    except BlockingIOError:
        os.set_blocking(write, True)
    return read, write


class EndTest(HostTest):
    def settings(self, environment):
        clean = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("CISTERN_")}
        return clean | (environment or {})

    def shim_settings(self, **options):
        return {"LD_PRELOAD": str(ARGUMENTS.shim), **{f"CISTERN_{name}": str(value) for name, value in options.items()}}

    def signalled(self, way, number, environment=None, signals=1, started=None):
        """What it said, how it ended, and after how many seconds."""
        process = subprocess.Popen([self.program("signalled"), way], env=self.settings(environment),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, **(started or {}))
        first = process.stdout.readline()
        time.sleep(0.05)
        sent = time.monotonic()
        for _ in range(signals):
            process.send_signal(number)
        out, err = process.communicate(timeout=60)
        return (first + out).decode(), err.decode(), process.returncode, time.monotonic() - sent

    def same_end(self, way, number, **more):
        """The report of a process that ends by the signal as it does plain."""
        report = self.folder / f"{way}-{number}.json"
        plain = self.signalled(way, number, **more)
        ours = self.signalled(way, number, self.shim_settings(REPORT=report, REPORT_FORMAT="json"), **more)
        self.assertEqual(ours[:3], plain[:3])
        self.assertEqual(plain[2], -number)
        return json.loads(report.read_text())


class Requests(EndTest):
    def started(self, way, **options):
        process = subprocess.Popen([self.program("signalled"), way], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=self.settings(self.shim_settings(REPORT_FORMAT="json", **options)))
        process.stdout.readline()
        return process

    def wait_for_report(self, path):
        """Complete: it is written in one piece, but a reader may come between."""
        for _ in range(1000):
            time.sleep(0.02)
            if path.exists() and path.read_text().endswith("}\n"):
                return json.loads(path.read_text())
        self.fail(f"no report at {path}")

    def test_a_signal_asks_for_reports_of_a_process_that_goes_on(self):
        for way in ("pause", "churn", "load", "churn_beside"):
            with self.subTest(way=way):
                path = self.folder / f"request-{way}.json"
                process = self.started(way, REPORT=path, REPORT_SIGNAL="USR1")
                process.send_signal(signal.SIGUSR1)
                first = self.wait_for_report(path)
                process.send_signal(signal.SIGUSR1)
                second = self.wait_for_report(path.with_name(f"{path.stem}.{process.pid}.json"))
                self.assertIsNone(process.poll())
                process.send_signal(signal.SIGTERM)
                process.communicate(timeout=60)
                self.assertEqual(process.returncode, -signal.SIGTERM)
                last = self.wait_for_report(path.with_name(f"{path.stem}.{process.pid}-2.json"))
                self.assertEqual([r["cistern"]["moment"] for r in (first, second, last)],
                                 ["request", "request", "SIGTERM"])
                # The thread that waits for requests is none of the program's.
                threads = 1 + 4 * (way == "churn_beside")
                for report in (first, second):
                    self.assertGreaterEqual(report["kinds"]["host"]["live_bytes"], 3 << 20)
                    self.assertEqual(report["judging"]["unseen_threads"], threads)
                self.assertEqual(last["judging"]["unseen_threads"], 0)

    def test_the_program_has_the_signal_where_it_wants_it(self):
        """Its own handler is called, and it reads the table as it left it."""
        code = ("import os, signal\n"
                "print(signal.getsignal(signal.SIGUSR1))\n"
                "old = signal.signal(signal.SIGUSR1, lambda *_: print('mine'))\n"
                "os.kill(os.getpid(), signal.SIGUSR1)\n"
                "print(old, signal.signal(signal.SIGUSR1, signal.SIG_IGN) is not None)\n"
                "os.kill(os.getpid(), signal.SIGUSR1)\n")
        path = self.folder / "own_handler.json"
        results = [subprocess.run(["/usr/bin/python3", "-c", code], env=self.settings(environment), text=True,
                                  capture_output=True, check=True, timeout=60)
                   for environment in (None, self.shim_settings(REPORT=path, REPORT_SIGNAL="USR1",
                                                                REPORT_FORMAT="json"))]
        self.assertEqual(results[0].stdout, results[1].stdout)
        self.assertIn("mine", results[0].stdout)
        self.assertEqual(json.loads(path.read_text())["cistern"]["moment"], "exit")

    def test_a_forked_child_answers_too(self):
        code = ("import os, signal, sys, time\n"
                "child = os.fork()\n"
                "if child == 0:\n"
                "    time.sleep(60)\n"
                "print(child, flush=True)\n"
                "sys.exit(-os.waitpid(child, 0)[1])\n")
        path = self.folder / "forked-%p.json"
        with subprocess.Popen(["/usr/bin/python3", "-c", code], stdout=subprocess.PIPE, text=True,
                              env=self.settings(self.shim_settings(REPORT=path, REPORT_SIGNAL="QUIT",
                                                                   REPORT_FORMAT="json"))) as process:
            child = int(process.stdout.readline())
            os.kill(child, signal.SIGQUIT)
            report = self.wait_for_report(self.folder / f"forked-{child}.json")
            os.kill(child, signal.SIGTERM)
            self.assertEqual(process.wait(timeout=60), 256 - signal.SIGTERM)
        self.assertEqual((report["cistern"]["pid"], report["cistern"]["moment"]), (child, "request"))


class Signals(EndTest):
    def test_each_signal_leaves_a_report_and_ends_the_process(self):
        for number in SIGNALS:
            for way in ("pause", "churn", "load", "churn_beside", "blocked_here", "small_stack", "handler"):
                with self.subTest(number=number, way=way):
                    report = self.same_end(way, number)
                    self.assertEqual(report["cistern"]["moment"], number.name)
                    self.assertGreaterEqual(report["kinds"]["host"]["live_bytes"], 3 << 20)

    def test_in_malloc_again_and_again(self):
        """The handler returns from there and is sent again."""
        for turn in range(20):
            self.assertEqual(self.same_end("churn", signal.SIGTERM)["cistern"]["moment"], "SIGTERM")
            (self.folder / "churn-15.json").unlink()

    def test_more_than_once(self):
        self.assertEqual(self.same_end("pause", signal.SIGTERM, signals=2)["cistern"]["moment"], "SIGTERM")

    def test_a_storm_of_them(self):
        """The handler does not nest: on a small stack that would be the end."""
        plain = self.plain(self.program("signalled"), "storm")
        ours = self.shimmed(self.program("signalled"), "storm", environment={"CISTERN_REPORT": str(self.folder / "%p")})
        self.assertEqual(ours.all(), plain.all())
        self.assertEqual(plain.out, "died of 15\n" * 5)

    def test_one_sent_to_itself_ends_it_there(self):
        """In a handler that interrupted malloc, too: what comes behind raise must not be done."""
        for _ in range(20):
            out, _, status, _ = self.signalled("raise", signal.SIGALRM, self.shim_settings(REPORT=self.folder / "%p"))
            self.assertEqual((out, status), ("ready\n", -signal.SIGTERM))

    def test_a_handler_that_comes_too_late(self):
        """The signal came first: it is not the handler's, and not again and again."""
        for _ in range(5):
            out, _, status, _ = self.signalled("late_handler", signal.SIGTERM,
                                               self.shim_settings(REPORT=self.folder / "%p"))
            self.assertEqual((out, status), ("ready\n", -signal.SIGTERM))

    def test_under_a_filter_that_would_not_allow_ours(self):
        plain = self.plain(self.program("signalled"), "strict")
        ours = self.shimmed(self.program("signalled"), "strict",
                            environment={"CISTERN_REPORT": str(self.folder / "%p")})
        self.assertEqual(ours.all(), plain.all())
        self.assertEqual(plain.out, "died of 15\n")

    def test_the_text_does_not_judge(self):
        _, err, status, _ = self.signalled("pause", signal.SIGTERM, self.shim_settings(REPORT="stderr"))
        self.assertEqual(status, -signal.SIGTERM)
        self.assertRegex(err, r"\nLIVE     no GPU memory was used      \(ended by SIGTERM\)\n")
        self.assertNotIn("never freed", err)

    def test_a_kill_soon_after_leaves_what_was_known(self):
        """Live memory by site: it was not judged yet, and native frames have no names."""
        report = self.folder / "killed.json"
        with subprocess.Popen([self.program("signalled"), "many"], stdout=subprocess.PIPE,
                              env=self.settings(self.shim_settings(REPORT=report, REPORT_FORMAT="json"))) as process:
            process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            while not report.exists() and process.poll() is None:
                time.sleep(0.001)
            process.kill()
        self.assertEqual(process.returncode, -signal.SIGKILL)
        known = json.loads(report.read_text())
        self.assertEqual((known["cistern"]["moment"], known["judging"]["why_not"]),
                         ("SIGTERM", "the process was killed before the judgement ended"))
        self.assertGreaterEqual(known["kinds"]["host"]["live_blocks"], 4_000_000)
        self.assertEqual([path.name for path in self.folder.iterdir() if "killed" in path.name], [report.name])

    def test_the_whole_report_takes_the_place_of_what_was_known_first(self):
        report = self.folder / "whole.json"
        judged = self.signalled("pause", signal.SIGTERM, self.shim_settings(REPORT=report, REPORT_FORMAT="json"))
        self.assertEqual(judged[2], -signal.SIGTERM)
        self.assertNotIn("why_not", json.loads(report.read_text())["judging"])
        self.assertEqual([path.name for path in self.folder.iterdir() if "whole" in path.name], [report.name])

    def test_without_a_report_nothing_is_done(self):
        for environment in (self.shim_settings(), self.shim_settings(REPORT="none")):
            out, err, status, seconds = self.signalled("pause", signal.SIGTERM, environment)
            self.assertEqual((out, err, status), ("ready\n", "", -signal.SIGTERM))

    def test_ignored_as_by_nohup(self):
        report = self.folder / "nohup.json"
        command = ["nohup", self.program("signalled"), "exiting"]
        process = subprocess.Popen(command, env=self.settings(self.shim_settings(REPORT=report, REPORT_FORMAT="json")),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 5)
        self.assertEqual(json.loads(report.read_text())["cistern"]["moment"], "exit")

    def test_by_timeout(self):
        report = self.folder / "timeout-%p.json"
        plain = self.plain("timeout", "0.3", self.program("signalled"), "pause")
        ours = self.shimmed("timeout", "0.3", self.program("signalled"), "pause",
                            environment={"CISTERN_REPORT": str(report), "CISTERN_REPORT_FORMAT": "json"})
        self.assertEqual(ours.all(), plain.all())
        self.assertEqual(ours.status, 124)
        reports = [json.loads(path.read_text()) for path in self.folder.glob("timeout-*.json")]
        moments = {pathlib.Path(one["cistern"]["command"].split()[0]).name: one["cistern"]["moment"] for one in reports}
        self.assertEqual(moments, {"timeout": "exit", "signalled": "SIGTERM"})

    def test_workers_report_too(self):
        report = self.folder / "workers-%p.json"
        plain = self.plain(self.program("signalled"), "workers")
        ours = self.shimmed(self.program("signalled"), "workers",
                            environment={"CISTERN_REPORT": str(report), "CISTERN_REPORT_FORMAT": "json"})
        self.assertEqual(ours.all(), plain.all())
        moments = [json.loads(path.read_text())["cistern"]["moment"] for path in self.folder.glob("workers-*.json")]
        self.assertEqual(sorted(moments), ["SIGTERM"] * 3 + ["exit"])

    def test_pythons_workers_report_too(self):
        script = ("import multiprocessing as m, time\n"
                  "def work(n): time.sleep(n)\n"
                  "if __name__ == '__main__':\n"
                  "    pool = m.get_context('fork').Pool(2)\n"
                  "    pool.map(work, [0.01] * 4)\n"
                  "    pool.map_async(work, [60] * 4); time.sleep(0.3)\n"
                  "    pool.terminate(); pool.join(); print('done')\n")
        report = self.folder / "python-%p.json"
        done = self.shimmed("/usr/bin/python3", "-c", script,
                            environment={"CISTERN_REPORT": str(report), "CISTERN_REPORT_FORMAT": "json"})
        self.assertEqual(done.all(), ("done\n", "", 0))
        moments = [json.loads(path.read_text())["cistern"]["moment"] for path in self.folder.glob("python-*.json")]
        self.assertEqual(sorted(moments), ["SIGTERM", "SIGTERM", "exit"])

    def test_a_report_that_cannot_be_written_keeps_nobody_alive(self):
        """A pipe that nobody reads is full at once: after two seconds the process dies all the same."""
        read, write = full_pipe()
        process = subprocess.Popen([self.program("signalled"), "pause"], stdout=subprocess.PIPE, stderr=write,
                                   env=self.settings(self.shim_settings(REPORT="stderr")))
        process.stdout.readline()
        sent = time.monotonic()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=60), -signal.SIGTERM)
        self.assertLess(time.monotonic() - sent, 10)
        process.stdout.close()
        os.close(read)
        os.close(write)

    def test_the_first_process_of_a_container_is_left_alone(self):
        """Without a handler it gets no signal at all."""
        command = ["unshare", "--fork", "--pid", "--kill-child", self.program("signalled"), "exiting"]
        if self.plain("unshare", "--fork", "--pid", "true").status:
            self.skipTest("needs a user that may make process namespaces")
        for way in ([], ["fork"]):
            plain = self.plain("unshare", "--fork", "--pid", self.program("signalled"), "first_process", *way)
            ours = self.shimmed("unshare", "--fork", "--pid", self.program("signalled"), "first_process", *way,
                                environment={"CISTERN_REPORT": str(self.folder / f"first{len(way)}-%p")})
            self.assertEqual((ours.out, ours.status), (plain.out, plain.status))
            self.assertEqual(plain.out, "alive\n")
        script = "import os, signal, subprocess, sys; p = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE); " \
                 "p.stdout.readline(); child = int(open(f'/proc/{p.pid}/task/{p.pid}/children').read()); " \
                 "os.kill(child, signal.SIGTERM); print(p.wait())"
        for environment in ({}, self.shim_settings(REPORT=self.folder / "container-%p")):
            done = subprocess.run([sys.executable, "-c", script, *map(str, command)], timeout=60,
                                  env=self.settings(environment), capture_output=True, text=True)
            self.assertEqual((done.stdout, done.stderr), ("5\n", ""))


    def test_a_user_of_gpu_memory_reports_without_being_asked(self):
        """By timeout, which sends the signal twice; a process that used none says nothing."""
        for way, reports in (("wait", 1), ("cpu_wait", 0)):
            plain = self.plain("timeout", "0.5", self.program("aborting"), way)
            ours = self.shimmed("timeout", "0.5", self.program("aborting"), way)
            self.assertEqual((ours.out, ours.status), (plain.out, 124))
            self.assertEqual(len(re.findall(r"^LIVE  .* \(ended by SIGTERM", ours.err, re.M)), reports, ours.err)
            self.assertEqual(bool(ours.err), bool(reports))
        silent = {"CISTERN_REPORT": "none"}
        self.assertEqual(self.shimmed("timeout", "0.5", self.program("aborting"), "wait", environment=silent).err, "")

    def test_a_second_signal_does_not_wait_for_a_report_that_hangs(self):
        """The process dies of the first one."""
        read, write = full_pipe()
        process = subprocess.Popen([self.program("aborting"), "wait"], stdout=subprocess.PIPE, stderr=write,
                                   env=self.settings(self.shim_settings()))
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        second = time.monotonic()
        self.assertEqual(process.wait(timeout=60), -signal.SIGTERM)
        self.assertLess(time.monotonic() - second, 1)
        process.stdout.close()
        os.close(read)
        os.close(write)


class Aborts(EndTest):
    """abort, and what ends in it: as plain, but with a report where GPU memory was used."""

    def aborted(self, way, *rest, **options):
        """The reports' first lines after the heads; what else is said, and the end, are the plain program's."""
        plain = self.plain(self.program("aborting"), way, *rest)
        ours = self.shimmed(self.program("aborting"), way, *rest,
                            environment={f"CISTERN_{name}": value for name, value in options.items()})
        self.assertEqual((ours.out, ours.status), (plain.out, plain.status))
        self.assertTrue(ours.err.startswith(plain.err))
        return re.findall(r"^(?:LIVE   |VERDICT)  .*$", ours.err, re.M), ours.err[len(plain.err):]

    def test_each_leaves_a_report(self):
        for way in ("abort", "assert", "throw", "thread", "two_threads", "blocked", "let_in_by_ppoll",
                    "raising_handler", "shown", "at_exit", "beside_churn"):
            with self.subTest(way=way):
                verdicts, _ = self.aborted(way)
                self.assertEqual(len(verdicts), 1)
                self.assertRegex(verdicts[0], r"^LIVE     1 block, 4\.0 KiB (possibly )?lost at 1 site      "
                                              r"\(ended by SIGABRT: it might still have freed this memory\)$")

    def test_nothing_is_said_without_gpu_memory(self):
        for way in ("cpu_abort", "cpu_assert", "cpu_throw", "cpu_thread"):
            self.assertEqual(self.aborted(way), ([], ""))

    def test_nothing_is_said_where_the_program_has_a_handler_or_ignores_it(self):
        for way in ("own_handler", "ignored"):
            self.assertEqual(self.aborted(way), ([], ""))

    def test_a_handler_on_a_small_stack_has_all_of_it(self):
        """Two frames of the kernel, ours and what the handler uses may be more than there is."""
        for handlers_own_bytes in (16, 1000, 2000, 3000, 4000):
            self.assertEqual(self.aborted("fault", handlers_own_bytes), ([], ""))

    def test_nothing_is_said_without_a_report(self):
        self.assertEqual(self.aborted("abort", REPORT="none"), ([], ""))

    def test_a_wrong_free_ends_at_once(self):
        status = self.shimmed(self.program("aborting"), "freed_twice").status
        self.assertEqual(status, -signal.SIGABRT)

    def test_children(self):
        """One that used no GPU memory itself has nothing to say, and its parent goes on."""
        for way, reports in (("forked", 0), ("forked_user", 1), ("vforked", 0), ("spawned", 0)):
            with self.subTest(way=way):
                verdicts, _ = self.aborted(way)
                self.assertEqual([line.split()[0] for line in verdicts], ["LIVE"] * reports + ["VERDICT"])

    def test_from_outside_in_malloc(self):
        for _ in range(10):
            report = self.folder / "abort.json"
            process = subprocess.Popen([self.program("aborting"), "churn"], stdout=subprocess.PIPE,
                                       env=self.settings(self.shim_settings(REPORT=report, REPORT_FORMAT="json")))
            process.stdout.readline()
            time.sleep(0.02)
            process.send_signal(signal.SIGABRT)
            process.communicate(timeout=60)
            self.assertEqual(process.returncode, -signal.SIGABRT)
            self.assertEqual(json.loads(report.read_text())["cistern"]["moment"], "SIGABRT")
            report.unlink()

    def test_the_core_dump_is_as_without_it(self):
        pattern = pathlib.Path("/proc/sys/kernel/core_pattern").read_text().strip()
        if not shutil.which("gdb") or pattern.startswith(("|", "/")):
            self.skipTest(f"needs gdb, and core dumps in the current folder, not {pattern}")
        resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
        stacks = []
        for run in (self.plain, self.shimmed):
            folder = self.folder / run.__name__
            folder.mkdir()
            self.assertEqual(run(self.program("aborting"), "throw", environment={"WITH_CORE": "1"}, cwd=folder).status,
                             -signal.SIGABRT)
            cores = list(folder.iterdir())
            if not cores:
                self.skipTest("no core dump is to be had")
            shown = subprocess.run(["gdb", "-batch", "-ex", "bt", "-ex", "p $_siginfo.si_code",
                                    self.program("aborting"), cores[0]], capture_output=True, text=True).stdout
            stacks.append(re.sub("0x[0-9a-f]+", "", "\n".join(re.findall(r"^(?:#|\$).*", shown, re.M))))
        self.assertEqual(stacks[0], stacks[1])
        self.assertIn("main", stacks[0])


class SignalTables(EndTest):
    def test_what_the_program_reads_is_its_own(self):
        plain = self.plain(self.program("signalled"), "tables")
        for environment in ({}, {"CISTERN_REPORT": str(self.folder / "tables-%p")}):
            ours = self.shimmed(self.program("signalled"), "tables", environment=environment)
            self.assertEqual(ours.all(), plain.all())
        self.assertEqual(plain.status, 0)
        self.assertGreaterEqual(plain.out.count("default"), 30)

    def test_pythons(self):
        script = "import signal; print([signal.getsignal(n) for n in (1, 2, 15)]); " \
                 "print(signal.signal(15, signal.SIG_DFL))"
        environment = {"CISTERN_REPORT": str(self.folder / "python-%p")}
        plain = self.plain("/usr/bin/python3", "-c", script)
        self.assertEqual(self.shimmed("/usr/bin/python3", "-c", script, environment=environment).all(), plain.all())


class SeveralThreads(EndTest):
    """Two threads end the process: the second one at a time at which the first would be through."""

    def test_the_first_one_is_let_through(self):
        for way in ("beside_exit", "beside__exit", "beside_return"):
            for options in ({"FAIL_ON": "any"}, {}):
                with self.subTest(way=way, options=options):
                    report = self.folder / f"{way}-{len(options)}.json"
                    environment = {f"CISTERN_{name}": value for name, value in options.items()}
                    plain = self.plain(self.program("leaker"), way, 0, 4096)
                    ours = self.shimmed(self.program("leaker"), way, 0, 4096, environment={
                        "CISTERN_REPORT": str(report), "CISTERN_REPORT_FORMAT": "json", **environment})
                    self.assertEqual((ours.out, ours.status), (plain.out, 23 if options else 0))
                    self.assertEqual(gpu_rows(json.loads(report.read_text()))[0]["blocks"], 1)


class Families(EndTest):
    """Processes that fork from several threads: each child reports, and what one has looked up the others know."""

    def rows(self, report, function):
        found = []
        for row in report["leaks"]:
            frames = [(frame.get("function"), frame.get("file"), frame.get("line")) for frame in row["frames"]]
            if frames and frames[0][0] == function:
                found.append((row["class"], row["blocks"], frames))
        return found

    def test_children_of_many_threads_report_what_they_lost(self):
        threads, children = 6, 6
        command = self.program("family"), threads, children
        done, reports = self.reported(*command, environment={"CISTERN_SITES": "all"})
        self.assertEqual((done.out, done.err), (self.plain(*command).out, ""))
        self.assertEqual(len(reports), 1 + threads * children)
        lost = [self.rows(report, "lose_some") for report in reports]
        lost = [rows for rows in lost if rows]
        self.assertEqual(len(lost), threads * children * 2 // 3)
        frames = {tuple(row[2]) for rows in lost for row in rows}
        self.assertEqual(len(frames), 1, frames)
        self.assertEqual({sum(row[1] for row in rows) for rows in lost}, {8})

    def test_a_child_has_the_names_that_its_sibling_found(self):
        """The library's file is gone when the second one asks."""
        library = self.folder / "losing_library.so"
        library.write_bytes(pathlib.Path(self.program("liblosing_library.so")).read_bytes())
        done, reports = self.reported(self.program("family"), "library", library, environment={"CISTERN_SITES": "all"})
        self.assertEqual(done.out, "wrong 0\n")
        named = [row for report in reports for row in self.rows(report, "lose_in_library")]
        self.assertEqual(len(named), 2)
        self.assertEqual(named[0], named[1])
        self.assertEqual(pathlib.Path(named[0][2][0][1]).name, "losing_library.c")

    def test_a_process_with_a_filter_maps_nothing_for_its_children(self):
        plain = self.plain(self.program("family"), "filtered")
        ours = self.shimmed(self.program("family"), "filtered", environment={
            "CISTERN_REPORT": str(self.folder / "filtered-%p"), "CISTERN_SITES": "all"})
        self.assertEqual(plain.all(), ("wrong 0\n", "", 0))
        self.assertEqual(ours.all(), plain.all())


class Codes(EndTest):
    def ended(self, *arguments, **options):
        environment = {f"CISTERN_{name}": str(value) for name, value in options.items()}
        plain = self.plain(self.program("leaker"), *arguments)
        ours = self.shimmed(self.program("leaker"), *arguments, environment=environment)
        self.assertEqual(ours.out, plain.out)
        return plain.status, ours.status, ours.err

    def test_a_leak_changes_the_code_whatever_way_the_process_ends(self):
        for way in ("return", "exit", "_exit", "quick_exit", "errx", "beside_reader"):
            with self.subTest(way=way):
                plain, ours, err = self.ended(way, 0, 4096, FAIL_ON="any")
                self.assertEqual((plain, ours), (0, 23))
                self.assertRegex(err, r"VERDICT  1 block, 4\.0 KiB (possibly )?lost at 1 site      "
                                      r"\(exit code 23 instead of 0, by CISTERN_FAIL_ON\)")

    def test_the_code_asked_for(self):
        self.assertEqual(self.ended("return", 0, 4096, FAIL_ON="ANY", FAIL_CODE=99)[:2], (0, 99))
        plain, ours, err = self.ended("return", 0, 4096, FAIL_ON="any", FAIL_CODE=256)
        self.assertEqual((plain, ours), (0, 23))
        self.assertIn("cistern: CISTERN_FAIL_CODE: '256' is not a whole number from 1 to 255; processes that used "
                      "GPU memory will fail\n", err)

    def test_the_programs_own_failure_wins(self):
        for way in ("return", "exit", "_exit", "quick_exit", "errx"):
            with self.subTest(way=way):
                plain, ours, err = self.ended(way, 3, 4096, FAIL_ON="any")
                self.assertEqual((plain, ours), (3, 3))
                self.assertIn("(exit code unchanged)", err)
        self.assertEqual(self.ended("handler", 0, 4096, FAIL_ON="any")[:2], (9, 9))

    def test_nothing_leaked(self):
        plain, ours, err = self.ended("return", 0, FAIL_ON="any", REPORT="stderr")
        self.assertEqual((plain, ours), (0, 0))
        self.assertIn("(exit code unchanged)", err)

    def test_a_size_to_fail_from(self):
        self.assertEqual(self.ended("return", 0, 4096, 4096, FAIL_ON="any:8KiB")[1], 23)
        self.assertEqual(self.ended("return", 0, 4096, 4096, FAIL_ON="any:8193")[1], 0)

    def test_not_asked_for(self):
        self.assertEqual(self.ended("return", 0, 4096)[:2], (0, 0))
        self.assertEqual(self.ended("return", 0, 4096, FAIL_ON="off")[:2], (0, 0))

    def test_without_a_report(self):
        plain, ours, err = self.ended("return", 0, 4096, FAIL_ON="any", REPORT="none")
        self.assertEqual((plain, ours, err), (0, 23, ""))

    def test_classes_that_do_not_exist_fail_the_run(self):
        for word in ("growing:", "grown", "lost:", "any:x", "anything", "all", "off:1"):
            with self.subTest(word=word):
                plain, ours, err = self.ended("return", 0, 4096, FAIL_ON=word)
                self.assertEqual((plain, ours), (0, 23))
                self.assertIn(f"cistern: CISTERN_FAIL_ON: '{word}' is not off or a comma-separated list of any, lost, "
                              "possible, growing, each with an optional :SIZE; processes that used GPU memory "
                              "will fail\n",
                              err)

    def test_in_json(self):
        report = self.folder / "report.json"
        self.ended("return", 0, 4096, FAIL_ON="any", REPORT=report, REPORT_FORMAT="json")
        self.assertEqual(json.loads(report.read_text())["cistern"]["exit_code"], 23)

    def test_a_forked_child_is_judged_by_its_own_leaks(self):
        self.assertEqual(self.ended("fork", 0, 4096, FAIL_ON="any")[:2], (0, 23))


class Suppressions(EndTest):
    def ended(self, lines, *sizes, **options):
        rules = self.folder / "rules"
        rules.write_text(lines)
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        settings = {"SUPPRESSIONS": rules, "HOST_SAMPLE": "0", "REPORT": report, "REPORT_FORMAT": "json",
                    "FAIL_ON": "any", **options}
        done = self.shimmed(self.program("leaker"), "return", 0, *sizes,
                            environment={f"CISTERN_{name}": str(value) for name, value in settings.items()})
        shown = json.loads(report.read_text()) if settings["REPORT"] == report else {}
        return done, {rule["rule"]: rule["blocks"] for rule in shown.get("suppressions", []) if not rule["built_in"]}

    def test_by_function(self):
        done, rules = self.ended("# known\n\n  leak:leak_known \n", 4096, REPORT="stderr", REPORT_FORMAT="text")
        self.assertEqual(done.status, 0)
        self.assertIn("VERDICT  nothing leaked on the GPU      (exit code unchanged)", done.err)
        self.assertRegex(done.err, r"\nSUPPRESSED  GPU memory: 1 block, 4\.0 KiB at 1 site\n"
                                   r"(SUPPRESSED  host memory: .*\n)?      by leak:leak_known")
        self.assertNotIn("LEAKS BY SITE", done.err)

    def test_what_is_not_named_counts(self):
        done, rules = self.ended("leak:leak_known\n", 4096, 8192)
        self.assertEqual((done.status, rules), (23, {"leak:leak_known": 1}))

    def test_file_module_and_patterns(self):
        for pattern in ("leaker.c", "programs/leaker", "^leak_known$", "leak_*nown", "^leak_k", "known$"):
            done, rules = self.ended(f"leak:{pattern}\n", 4096)
            self.assertEqual((done.status, list(rules)), (0, [f"leak:{pattern}"]), pattern)
            self.assertGreaterEqual(rules[f"leak:{pattern}"], 1)  # and what host memory it kept
        for pattern in ("^known", "leak_$", "^eak*n", "unknown"):
            done, rules = self.ended(f"leak:{pattern}\n", 4096)
            self.assertEqual((done.status, rules), (23, {f"leak:{pattern}": 0}), pattern)

    def test_unused_ones_are_listed(self):
        done, _ = self.ended("leak:nobody\nleak:leak_known\n", 4096, REPORT="stderr", REPORT_FORMAT="text")
        self.assertIn("\nSUPPRESSIONS UNUSED  leak:nobody\n", done.err)

    def test_lines_that_are_no_rules(self):
        done, rules = self.ended("race:leak_known\nleak:\nleak:leak_known", 4096)
        path = self.folder / "rules"
        self.assertEqual((done.status, rules), (23, {"leak:leak_known": 1}))
        self.assertEqual(done.err.splitlines(), [
            f"cistern: CISTERN_SUPPRESSIONS: {path}: line {n} is not of the form leak:PATTERN" for n in (1, 2)])

    def test_a_file_of_any_path_that_the_system_takes(self):
        for path in odd_paths.paths_in(self.folder):
            pathlib.Path(path).write_text("leak:leak_known\n")
            with self.subTest(path=path):
                done, _ = self.ended("", 4096, SUPPRESSIONS=path)
                self.assertEqual((done.err, done.status), ("", 0))

    def test_no_such_file(self):
        done = self.shimmed(self.program("leaker"), "return", 0, 4096,
                            environment={"CISTERN_SUPPRESSIONS": "/nonexistent", "CISTERN_FAIL_ON": "any"})
        self.assertEqual(done.status, 23)
        self.assertIn("cistern: CISTERN_SUPPRESSIONS: /nonexistent: No such file or directory\n", done.err)


class OutOfMemory(EndTest):
    """Of host memory; of device memory options.limit, of OpenCL's opencl.short_of_memory."""

    def line(self, what, **options):
        plain = self.plain(self.program("hungry"), what)
        ours = self.shimmed(self.program("hungry"), what,
                            environment={f"CISTERN_{name}": value for name, value in options.items()})
        self.assertEqual((ours.out, ours.status), (plain.out, plain.status))
        return [line for line in ours.err.splitlines() if line.startswith("cistern: ")]

    def test_the_limit_that_refused_is_named_once(self):
        for what, name in (("as", r"RLIMIT_AS \(ulimit -v\)"), ("data", r"RLIMIT_DATA \(ulimit -d\)")):
            line, = self.line(what, REPORT=str(self.folder / f"{what}.txt"))
            self.assertRegex(line, rf"^cistern: malloc of 768\.0 MiB: out of memory; refused by {name}=512\.0 MiB, of "
                                   r"which [\d.]+ MiB is in use(; the limit of its control group is .+)? "
                                   r"\(printed once\)$")

    def test_more_than_the_machine_has(self):
        line, = self.line("machine", REPORT=str(self.folder / "machine.txt"))
        self.assertRegex(line, r"^cistern: malloc of 64\.0 TiB: out of memory; refused by (the system, which has "
                               r"[\d.]+ [GM]iB of memory and swap|vm\.overcommit_memory=2: .*)")

    def test_what_nobody_could_have_is_no_lack_of_memory(self):
        self.assertEqual(self.line("never", REPORT=str(self.folder / "never.txt")), [])

    def test_silent_processes_stay_silent(self):
        self.assertEqual(self.line("as"), [])
        self.assertEqual(self.line("as", REPORT="none"), [])


class Complaints(EndTest):
    LINE = "cistern: CISTERN_REPROT: no such option (did you mean CISTERN_REPORT?)\n"

    def test_once_although_nothing_else_is_said(self):
        done = self.shimmed("sh", "-c", "uname; ls -d .", environment={"CISTERN_REPROT": "x"})
        self.assertEqual(done.all(), ("Linux\n.\n", self.LINE, 0))

    def test_where_the_parent_had_others(self):
        done = self.shimmed("sh", "-c", "CISTERN_REPROT=x uname; uname")
        self.assertEqual(done.all(), ("Linux\nLinux\n", self.LINE, 0))

    def test_never_where_no_report_is_wanted(self):
        done = self.shimmed("uname", environment={"CISTERN_REPROT": "x", "CISTERN_REPORT": "none"})
        self.assertEqual(done.all(), ("Linux\n", "", 0))

    def test_not_in_a_forked_child(self):
        done = self.shimmed("sh", "-c", "(exit 3); (exit 4)", environment={"CISTERN_REPROT": "x"})
        self.assertEqual(done.all(), ("", self.LINE, 4))


if __name__ == "__main__":
    host_tests.main()
