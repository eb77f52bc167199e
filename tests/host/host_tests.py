"""Whole processes, plain and with libcistern.so preloaded: same output and status, true counts, exact lines."""
import argparse
import errno
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import odd_paths  # noqa: E402
import report_checks  # noqa: E402
from report_rows import host_rows  # noqa: E402

ARGUMENTS = argparse.Namespace()


class Run:
    """What a process printed and how it ended."""

    def __init__(self, command, environment, preload, stdin=None, cwd=None, **redirections):
        settings = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("CISTERN_")}
        if preload:
            settings["LD_PRELOAD"] = ":".join(map(str, preload))
        settings.update(environment)
        redirections.setdefault("stdout", subprocess.PIPE)
        redirections.setdefault("stderr", subprocess.PIPE)
        done = subprocess.run(list(map(str, command)), env=settings, input=stdin, cwd=cwd, timeout=120, **redirections)
        self.out = (done.stdout or b"").decode(errors="replace")
        self.err = (done.stderr or b"").decode(errors="replace")
        self.status = done.returncode

    def all(self):
        return self.out, self.err, self.status


class HostTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def program(self, name):
        return ARGUMENTS.programs / name

    def plain(self, *command, preload=(), environment=None, **more):
        return Run(command, environment or {}, preload, **more)

    def shimmed(self, *command, preload=(), environment=None, **more):
        return Run(command, environment or {}, [ARGUMENTS.shim, *preload], **more)

    def reported(self, *command, expected_status=0, environment=None, **more):
        """Runs with a report in a file; returns the run and the report of the process itself."""
        pattern = self.folder / f"report-{len(list(self.folder.iterdir()))}-%p.json"
        settings = {"CISTERN_REPORT": str(pattern), "CISTERN_REPORT_FORMAT": "json", **(environment or {})}
        done = self.shimmed(*command, environment=settings, **more)
        self.assertEqual(done.status, expected_status, done.err)
        prefix = pattern.name.split("%p")[0]
        reports = [json.loads(path.read_text()) for path in self.folder.iterdir() if path.name.startswith(prefix)]
        return done, reports

    def host(self, *command, **more):
        """The host figures of the only process."""
        done, reports = self.reported(*command, **more)
        self.assertEqual(len(reports), 1)
        self.assertEqual(report_checks.complaints(reports[0]), [])
        return reports[0]["kinds"]["host"]

    def same(self, *command, **more):
        """Preloaded and plain print the same and end the same; returns the plain run."""
        plain, shimmed = self.plain(*command, **more), self.shimmed(*command, **more)
        self.assertEqual(shimmed.all(), plain.all(), command)
        return plain


class Contracts(HostTest):
    def test_the_malloc_family_keeps_its_contracts(self):
        self.assertEqual(self.same(self.program("contracts")).all(), ("all contracts hold\n", "", 0))

    def test_they_hold_without_counting(self):
        done = self.shimmed(self.program("contracts"), environment={"CISTERN_HOST": "off"})
        self.assertEqual(done.all(), ("all contracts hold\n", "", 0))

    def test_a_failing_new_is_the_programs_own(self):
        done = self.same(self.program("failing_new"))
        self.assertEqual(done.status, 0)
        self.assertIn("unwound\nnew: caught std::bad_alloc after 2 calls of the handler\n", done.out)
        self.assertIn("nothrow new: returned null after 2 calls of the handler\n", done.out)
        self.assertIn("served after 1 calls of the handler\n", done.out)

    def test_a_failing_new_of_a_private_plugin(self):
        done = self.same(self.program("plugin_host"), self.program("libfailing_new_plugin.so"))
        self.assertEqual(done.all(), ("the plugin caught bad_alloc, 100 words\n", "", 0))

    def test_replaced_operators_of_a_library_are_called(self):
        self.assertEqual(self.same(self.program("own_operators_user")).all(), ("10 new, 10 delete\n", "", 0))

    def test_a_program_with_its_own_allocator(self):
        printed = ("50 words, sized 1, failed 0\n", "", 0)
        self.assertEqual(self.same(self.program("own_allocator_linked")).all(), printed)
        self.assertEqual(self.same(self.program("own_allocator_user")).all(), printed)
        own = [self.program("libown_allocator.so")]
        self.assertEqual(self.same(self.program("own_allocator_user"), preload=own).all(), printed)

    def test_calls_that_allocate_on_their_way(self):
        done = self.same(self.program("runtime_calls"))
        self.assertEqual((done.err, done.status), ("", 0))
        self.assertTrue(done.out.startswith("thread ran\n"))
        self.assertTrue(done.out.endswith("40 handlers ran\n"))


class Lookups(HostTest):
    def test_a_chain_of_libraries_ends(self):
        links = [self.program("libfirst.so"), self.program("libsecond.so")]
        plain = self.plain(self.program("chain"), preload=links)
        printed = "second: first: hello\nroot of 81 is 9\nmissing: not found\nreason given: yes\n"
        self.assertEqual(plain.all(), (printed, "", 0))
        for place in range(3):
            preload = links[:place] + [ARGUMENTS.shim] + links[place:]
            self.assertEqual(self.plain(self.program("chain"), preload=preload).all(), plain.all(), preload)

    def test_answers_and_reasons_are_the_plain_ones(self):
        done = self.same(self.program("lookups"))
        self.assertEqual((done.err, done.status), ("", 0))
        self.assertIn("default: null, undefined symbol: clCreateBuffer, then none\n", done.out)
        self.assertIn("next: null, undefined symbol: clCreateBuffer, then none\n", done.out)
        self.assertIn("program: null, undefined symbol: clCreateBuffer, then none\n", done.out)

    def test_a_private_icd_loader_is_answered_for(self):
        plain = self.plain(self.program("lookups"), "libOpenCL.so.1", "where")
        if "no OpenCL here" in plain.out:
            self.skipTest("libOpenCL.so.1 is not installed")
        shimmed = self.shimmed(self.program("lookups"), "libOpenCL.so.1", "where")
        self.assertEqual(shimmed.out, plain.out)
        self.assertEqual(plain.err, "clCreateBuffer in libOpenCL.so.1\nclGetPlatformIDs in libOpenCL.so.1\n")
        self.assertEqual(shimmed.err, "clCreateBuffer in libcistern.so\nclGetPlatformIDs in libOpenCL.so.1\n")


class Counting(HostTest):
    def test_counts_are_exact(self):
        for threads in (1, 7, 40):
            few = self.host(self.program("counts"), 10, threads)
            many = self.host(self.program("counts"), 1010, threads)
            self.assertEqual(many["allocations"] - few["allocations"], 10 * 1000 * threads)
            self.assertEqual(many["frees"] - few["frees"], 9 * 1000 * threads)
            self.assertEqual(many["live_blocks"] - few["live_blocks"], 1000 * threads)
            self.assertEqual(many["failed"] - few["failed"], 1000 * threads)
            self.assertGreaterEqual(many["live_bytes"] - few["live_bytes"], 100 * 1000 * threads)
            self.assertLess(many["live_bytes"] - few["live_bytes"], 150 * 1000 * threads)
            # What moves counts where it was and where it is; valloc gives a system page.
            a_round = 2 * 16 + 32 + 64 + 3 * 112 + 2 * 128 + 3072 + 4096
            self.assertEqual(many["allocated_bytes"] - few["allocated_bytes"], a_round * 1000 * threads)

    def test_threads_are_the_first_to_call_the_c_librarys_malloc(self):
        """About one run in twelve crashed."""
        ends = [self.shimmed(self.program("first_calls"), environment={"CISTERN_REPORT": "none"}).status
                for _ in range(100)]
        self.assertEqual(ends, [0] * 100)

    def test_live_blocks_are_births_less_deaths(self):
        host = self.host(self.program("counts"), 100, 4)
        self.assertEqual(host["live_blocks"], host["allocations"] - host["frees"])

    def test_the_peak_is_near_the_truth(self):
        small, large = self.host(self.program("peak"), 1), self.host(self.program("peak"), 50)
        # Counted in pages: eight blocks of 10 KiB leave 20 % of theirs.
        self.assertAlmostEqual(large["peak_bytes"] - small["peak_bytes"], 49 << 20, delta=10 << 20)
        self.assertLess(large["live_bytes"], 1 << 20)
        _, reports = self.reported(self.program("peak"), 1)
        self.assertIn("kinds.host.peak_bytes", reports[0]["estimated"])

    def test_new_is_counted_once(self):
        few, many = self.host(self.program("own_allocator_user")), self.host(self.program("contracts"))
        self.assertGreater(few["allocations"], 50)
        self.assertGreater(many["failed"], 10)

    def test_counting_can_be_switched_off(self):
        for word in ("off", "0", "false"):
            pattern = self.folder / f"{word}.json"
            done = self.shimmed(self.program("counts"), 5, environment={
                "CISTERN_HOST": word, "CISTERN_REPORT": str(pattern), "CISTERN_REPORT_FORMAT": "json"})
            self.assertEqual(done.all(), ("", "", 0))
            self.assertNotIn("host", json.loads(pattern.read_text())["kinds"])

    def test_a_program_with_gaps_between_its_segments_has_its_name_and_build_id(self):
        program = self.program("leaves_one")
        _, reports = self.reported(program, environment={"CISTERN_SITES": "all"})
        [leak] = [row for row in host_rows(reports[0]) if row["block_bytes_min"] == 100000]
        frame = leak["frames"][0]
        notes = subprocess.run(["readelf", "-n", program], capture_output=True, text=True, check=True).stdout
        self.assertEqual((frame["function"], frame["module"]), ("main", str(program.resolve())))
        self.assertIn(f"Build ID: {frame['build_id']}\n", notes)

    def test_counting_beside_threads_believes_none_of_their_blocks(self):
        for environment in ({}, {"CISTERN_SITES": "all"}, {"CISTERN_HOST_SAMPLE": "4KiB"}):
            done = self.shimmed(self.program("counting_beside_threads"), 1500, environment=environment)
            self.assertEqual(done.all(), ("counted\n", "", 0))

    def test_a_report_beside_threads(self):
        for end in ("exit", "_exit") * 10:
            done, reports = self.reported(self.program("counting_beside_threads"), 20, end,
                                          environment={"CISTERN_HOST_SAMPLE": "4KiB"})
            self.assertEqual((done.out, done.err), ("", ""))
            host = reports[0]["kinds"]["host"]
            self.assertEqual(host["allocations"] - host["frees"], host["live_blocks"])


class Ends(HostTest):
    def moment_of(self, way, **more):
        done, reports = self.reported(self.program("ends"), way, **more)
        self.assertEqual(len(reports), 1, (way, done.err))
        return done, reports[0]["cistern"]["moment"]

    def test_every_orderly_end_reports_once(self):
        for way in ("return", "exit", "thread"):
            done, moment = self.moment_of(way, expected_status=7)
            self.assertEqual((done.out, done.err, moment), ("", "", "exit"), way)
        self.assertEqual(self.moment_of("last_thread")[1], "exit")
        done, moment = self.moment_of("errx", expected_status=7)
        self.assertEqual((done.err, moment), ("ends: told\n", "exit"))

    def test_ends_without_destructors_say_so(self):
        for way in ("_exit", "_Exit", "quick_exit", "handler"):
            self.assertEqual(self.moment_of(way, expected_status=7)[1], "_exit", way)

    def test_ends_that_nobody_sees_leave_no_report(self):
        for way, status in (("killed", -signal.SIGKILL), ("small_stack_handler", 7)):
            self.assertEqual(self.reported(self.program("ends"), way, expected_status=status)[1], [], way)

    def test_status_and_output_are_the_plain_ones(self):
        for way in ("return", "exit", "_exit", "_Exit", "quick_exit", "errx", "thread", "last_thread", "handler",
                    "small_stack_handler", "killed", "abort"):
            self.same(self.program("ends"), way)

    def test_a_handler_that_interrupts_malloc_does_not_hang(self):
        # A run that hangs is ended by its time limit. Interrupted outside of malloc, the process reports.
        program = self.program("handler_in_malloc")
        made = [self.reported(program, delay * 10, expected_status=7)[1] for delay in range(80)]
        self.assertIn(1, [len(reports) for reports in made])
        self.assertTrue(all(report["cistern"]["moment"] == "_exit" for reports in made for report in reports))

    def test_the_report_comes_after_the_last_destructor(self):
        host = self.host(self.program("late_frees"))
        self.assertLess(host["live_bytes"], 100000)
        self.assertGreater(host["peak_bytes"], 11 * 100000)

    def test_opened_late_it_reports_what_it_sees(self):
        path = self.folder / "late.json"
        script = f"import ctypes; ctypes.CDLL({str(ARGUMENTS.shim)!r}); print('ran')"
        done = self.plain("/usr/bin/python3", "-c", script, environment={
            "CISTERN_REPORT": str(path), "CISTERN_REPORT_FORMAT": "json"})
        self.assertEqual(done.all(), ("ran\n", "", 0))
        report = json.loads(path.read_text())
        self.assertEqual((report["cistern"]["moment"], report["kinds"]), ("exit", {}))


class Forks(HostTest):
    def test_children_start_with_clean_counts(self):
        done, reports = self.reported(self.program("forks"), 50)
        self.assertEqual(done.out, "0 children failed\n")
        self.assertEqual(len(reports), 7)
        by_size = sorted(report["kinds"]["host"]["allocations"] for report in reports)
        self.assertGreater(by_size[-1], 20000)
        for allocations in by_size[:-1]:
            self.assertGreaterEqual(allocations, 50)
            self.assertLess(allocations, 100)
        self.assertEqual(len({report["cistern"]["pid"] for report in reports}), 7)

    def test_a_vfork_child_changes_nothing(self):
        self.same(self.program("vforks"))
        done, reports = self.reported(self.program("vforks"))
        self.assertEqual((done.out, done.err), ("the first child said 3\nthe second child said 0\n", ""))
        self.assertEqual(len(reports), 1)
        self.assertEqual(reports[0]["cistern"]["moment"], "exit")

    def test_beside_threads_in_the_c_librarys_locks(self):
        done = self.same(self.program("forks_beside_c_library"), 4000)
        self.assertEqual(done.all(), ("0 children failed\n", "", 0))
        # The children report, with names, though a thread of the parent was in the dynamic linker.
        done, reports = self.reported(self.program("forks_beside_c_library"), 4000,
                                      environment={"CISTERN_HOST_SAMPLE": "4KiB"})
        self.assertEqual((done.out, done.err), ("0 children failed\n", ""))
        self.assertGreater(len(reports), 2)
        functions = {frame.get("function") for report in reports for site in host_rows(report)
                     for frame in site["frames"]}
        self.assertIn("main", functions)

    def test_beside_handlers_that_allocate(self):
        self.assertEqual(self.same(self.program("atfork_user")).all(), ("0 children failed\n", "", 0))
        # Before us and behind us in the order of loading, so that its handlers are registered behind ours and before
        # them: those run while the thread that forks has all locks of ours, which is by design.
        library = self.program("libatfork_library.so")
        for preload in ((library, ARGUMENTS.shim), (ARGUMENTS.shim, library)):
            for sites in ("gpu", "all"):
                settings = {"CISTERN_SITES": sites, "CISTERN_REPORT": str(self.folder / f"at-{sites}-%p.txt")}
                done = Run([self.program("atfork_user")], settings, preload)
                self.assertEqual(done.all(), ("0 children failed\n", "", 0), (preload, sites))

    def test_misuse_in_a_child_is_the_programs_or_a_threads_that_was_cut_off(self):
        self.assertEqual(self.shimmed(self.program("free_again_in_child"), "C").all(), ("status 0\n", "", 0))
        done = self.shimmed(self.program("free_again_in_child"), "program")
        self.assertEqual(done.out, f"signal {signal.SIGABRT}\n")
        self.assertRegex(done.err, r"^cistern: free\(0x[0-9a-f]+\): double free: .*; aborting\n$")

    def test_while_a_library_is_half_unloaded(self):
        path = self.folder / "child.json"
        done = self.shimmed(self.program("report_in_child"), path, self.program("libplugin.so"),
                            environment={"CISTERN_SITES": "all"})
        self.assertEqual(done.all(), ("status 0\n", "", 0))
        functions = {frame.get("function") for site in host_rows(json.loads(path.read_text()))
                     for frame in site["frames"]}
        self.assertLessEqual({"main", "constructed"}, functions)

    def test_in_a_handler_that_interrupts_malloc_and_fork(self):
        self.assertEqual(self.same(self.program("forks_in_handler"), 400).all(), ("0 children failed\n", "", 0))
        # With two threads the C library's own malloc may hang here: the plain program is not asked.
        for environment in ({}, {"CISTERN_SITES": "all"}):
            done = self.shimmed(self.program("forks_in_handler"), 400, "threads", environment=environment)
            self.assertEqual(done.all(), ("0 children failed\n", "", 0))


class Filters(HostTest):
    """Filters of system calls: no call that the program would not make without Cistern."""

    def test_a_filter_that_only_malloc_passes(self):
        for way in ("prctl", "syscall"):
            for end in ("exit", "_exit", "return"):
                for more in ((), ("first",)):
                    done = self.same(self.program("filtered"), way, end, *more)
                    self.assertEqual(done.all(), ("filtered\n", "", 0), (way, end, more))

    @unittest.skipUnless(os.uname().machine == "x86_64", "written for x86-64")
    def test_one_that_nobody_sees(self):
        self.assertEqual(self.plain(self.program("filtered"), "unseen", "exit").all(), ("filtered\n", "", 0))
        done = self.shimmed(self.program("filtered"), "unseen", "exit", environment={"CISTERN_SYSTEM_CALLS": "few"})
        self.assertEqual(done.all(), ("filtered\n", "", 0))

    def test_calls_that_are_refused(self):
        for error in (errno.EPERM, errno.ENOSYS):
            self.same(self.program("refused_calls"), error)

    def test_no_report_of_host_memory_alone(self):
        """CISTERN_REPORT in everybody's environment must not end a server's part that locked itself in."""
        environment = {"CISTERN_REPORT": str(self.folder / "%p")}
        for way in ("prctl", "syscall"):
            for end in ("exit", "_exit", "return"):
                done = self.shimmed(self.program("filtered"), way, end, environment=environment)
                self.assertEqual(done.all(), ("filtered\n", "", 0), (way, end))


class SwitchedOff(HostTest):
    """CISTERN=off: nothing of ours but the forwarding of calls."""

    OFF = {"CISTERN": "off", "CISTERN_REPORT": "stderr", "CISTERN_SITES": "all"}

    def test_no_report_and_no_pool(self):
        for command in (("contracts",), ("filtered", "prctl", "exit"), ("atfork_user",), ("forks", 10),
                        ("ends", "exit")):
            with self.subTest(command=command):
                plain = self.plain(self.program(command[0]), *command[1:])
                done = self.shimmed(self.program(command[0]), *command[1:], environment=self.OFF)
                self.assertEqual(done.all(), plain.all())

    def test_every_block_is_the_c_librarys(self):
        # The pool's window lies at low addresses, where the C library puts nothing.
        program = self.program("counting_beside_threads")
        maps = [Run(["/bin/cat", "/proc/self/maps"], environment, [ARGUMENTS.shim]).out
                for environment in ({}, self.OFF)]
        below = [[line for line in text.splitlines() if int(line.split("-")[0], 16) < 1 << 40] for text in maps]
        self.assertTrue(below[0])
        self.assertEqual(below[1], [])
        self.assertEqual(self.shimmed(program, 100, environment=self.OFF).all(), ("counted\n", "", 0))


class StandardError(HostTest):
    REPORT = {"CISTERN_REPORT": "stderr"}

    def assertIsReport(self, text):
        self.assertTrue(text.startswith("cistern "), text)
        self.assertIn("VERDICT", text)

    def test_programs_that_close_it_still_report(self):
        for command in (("/bin/ls", "/"), ("/bin/true",), ("/bin/cat", "/dev/null")):
            done = self.shimmed(*command, environment=self.REPORT)
            self.assertIsReport(done.err)
            self.assertEqual((done.out, done.status), (self.plain(*command).out, 0))

    def daemon(self, way, **more):
        path = self.folder / f"{way}.data"
        environment = {**self.REPORT, "CISTERN_POOOL": "1"}
        done = self.shimmed(self.program("daemon"), path, way, environment=environment, **more)
        self.assertEqual(done.status, 0, done.err)
        return path, done

    def test_a_data_file_on_its_place_is_left_alone(self):
        path, _ = self.daemon("closed", stderr=None, preexec_fn=lambda: os.close(2))
        self.assertEqual(path.read_bytes(), b"data")
        path, done = self.daemon("reopened")
        self.assertEqual((path.read_bytes(), done.err), (b"data", ""))

    def test_a_log_on_its_place_gets_the_report(self):
        path, done = self.daemon("log")
        self.assertEqual(done.err, "")
        lines = path.read_text()
        self.assertTrue(lines.startswith("datacistern: CISTERN_POOOL: no such option"), lines)
        self.assertIn("\ncistern ", lines)
        self.assertEqual(self.daemon("null")[1].err, "")

    def test_a_reader_that_left_does_no_harm(self):
        for command in (("/bin/true",), (self.program("ends"), "exit"), (self.program("ends"), "_exit")):
            reader, writer = os.pipe()
            os.close(reader)
            done = self.shimmed(*command, environment=self.REPORT, stderr=writer)
            os.close(writer)
            self.assertEqual(done.status, self.plain(*command).status, command)

    def test_a_full_disk_does_no_harm(self):
        with open("/dev/full", "wb") as full:
            self.assertEqual(self.shimmed("/bin/true", environment=self.REPORT, stderr=full).status, 0)
        environment = {"CISTERN_REPORT": str(self.folder / "limited")}
        done = self.shimmed("/bin/sh", "-c", "ulimit -f 0; exec /bin/true", environment=environment)
        self.assertEqual(done.status, 0)
        self.assertRegex(done.err,
                         "cistern: cannot write the report to .*/limited: File too large; the report follows\n")
        self.assertIn("VERDICT", done.err)


class Descriptors(HostTest):
    """The program's files have the numbers that they have without us, and nobody else uses them."""

    def holds_with(self, **environment):
        self.same(self.program("descriptors"), environment=environment)

    def test_as_it_is(self):
        self.holds_with()

    def test_with_sites_of_all_blocks(self):
        self.holds_with(CISTERN_SITES="all")

    def test_with_samples_of_most_blocks(self):
        self.holds_with(CISTERN_HOST_SAMPLE="4KiB")

    def test_with_a_report(self):
        for number, environment in enumerate(({}, {"CISTERN_SITES": "all"}, {"CISTERN_FAIL_ON": "growing"},
                                              {"CISTERN_REPORT_SIGNAL": "USR2"}, {"CISTERN_NUMA": "interleave"})):
            self.holds_with(CISTERN_REPORT=str(self.folder / f"{number}-%p.txt"), **environment)


class ReportPaths(HostTest):
    def run_with(self, pattern, *command, **environment):
        done = self.shimmed(*(command or ("/bin/true",)), environment={"CISTERN_REPORT": str(pattern), **environment})
        self.assertEqual((done.out, done.status), ("", 0))
        return done.err

    def names(self):
        return sorted(path.name for path in self.folder.iterdir())

    def test_parts_of_the_name(self):
        self.assertEqual(self.run_with(self.folder / "%h-%r-%%-%x.txt", PMI_RANK="5"), "")
        self.assertEqual(self.names(), [f"{socket.gethostname()}-5-%-%x.txt"])
        self.assertTrue((self.folder / self.names()[0]).read_text().startswith("cistern "))

    def test_any_path_that_the_system_takes(self):
        for path in odd_paths.paths_in(self.folder):
            with self.subTest(path=path):
                self.assertEqual(self.run_with(path, CISTERN_REPORT_FORMAT="json"), "")
                self.assertEqual(report_checks.complaints(json.loads(pathlib.Path(path).read_text())), [])

    def test_a_path_that_is_too_long(self):
        """The report is on stderr instead, after a line that says so."""
        path = odd_paths.long_path(self.folder, odd_paths.PATH_MAX + 1)
        line, report = self.run_with(path, CISTERN_REPORT_FORMAT="json").split("\n", 1)
        self.assertEqual(line, f"cistern: cannot write the report to {path}: File name too long; "
                               "the report will follow here")
        self.assertEqual(report_checks.complaints(json.loads(report)), [])

    def test_programs_of_any_name(self):
        for name in odd_paths.NAMES:
            program = self.folder / name
            shutil.copy("/bin/true", program)
            with self.subTest(name=name):
                self.assertEqual(self.run_with("stderr", program, CISTERN_REPORT_FORMAT="text")[:8], "cistern ")
                report = json.loads(self.run_with("stderr", program, CISTERN_REPORT_FORMAT="json"))
                self.assertEqual(report_checks.complaints(report), [])

    def test_none(self):
        self.assertEqual(self.run_with("none", CISTERN_POOOL="1"), "")

    def test_an_existing_file_is_kept(self):
        path = self.folder / "run.json"
        path.write_text("mine")
        line = self.run_with(path)
        beside = [name for name in self.names() if name != "run.json"]
        self.assertEqual(len(beside), 1)
        self.assertRegex(beside[0], r"^run\.\d+\.json$")
        self.assertEqual(line, f"cistern: {path} exists; the report is in {self.folder / beside[0]}\n")
        self.assertEqual(path.read_text(), "mine")

    def test_the_path_is_that_of_the_first_process_that_launchers_started(self):
        script = "/bin/true; /bin/sh -c 'exec /bin/true' & wait; (exit 0); exit 0"
        self.assertEqual(self.run_with(self.folder / "run.txt", "/bin/sh", "-c", script), "")
        self.assertIn("run.txt", self.names())
        self.assertIn("  /bin/true  pid ", (self.folder / "run.txt").read_text().splitlines()[0])
        others = [name for name in self.names() if name != "run.txt"]
        self.assertEqual(len(others), 3, others)
        for name in others:
            pid = re.fullmatch(r"run\.(\d+)\.txt", name)[1]
            self.assertIn(f"pid {pid}", (self.folder / name).read_text().splitlines()[0])

    def test_a_launcher_that_starts_nobody_has_the_path(self):
        self.assertEqual(self.run_with(self.folder / "run.txt", "/bin/sh", "-c", "exit 0"), "")
        self.assertEqual(self.names(), ["run.txt"])

    def check_rank_and_children(self, name, command, *others, **environment):
        """`command` has the name; others add their pid, and nobody says a word."""
        self.assertEqual(self.run_with(self.folder / "rank-%r.txt", *others, **environment), "")
        self.assertEqual(sum(bool(re.fullmatch(rf"{name}\.\d+\.txt", other)) for other in self.names()), 3)
        self.assertEqual(len(self.names()), 4)
        self.assertIn(f"  {command}  pid ", (self.folder / f"{name}.txt").read_text().splitlines()[0])
        for path in self.folder.iterdir():
            path.unlink()

    def test_a_path_with_the_rank_is_that_of_its_first_process(self):
        """Not of the shell that starts it, nor of what it starts."""
        script = ("/bin/sh", "-c", "/bin/true; /bin/sh -c 'exec /bin/true' & wait; (exit 0); exit 0")
        for variable in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"):
            self.check_rank_and_children("rank-2", "/bin/true", *script, **{variable: "2"})
        self.check_rank_and_children("rank-0", "/bin/true", *script)

    def test_what_a_launcher_starts_is_the_first_process_of_its_rank(self):
        """By whatever it is known: the launcher has no rank, or another one, or the name of a launcher."""
        launcher = self.folder / "bin" / "mpirun"
        launcher.parent.mkdir()
        launcher.symlink_to("/bin/sh")
        for number, (shell, settings, environment) in enumerate((
                ("/bin/sh", "PMI_RANK=3", {}), ("/bin/sh", "PMI_RANK=3", {"PMI_RANK": "1"}),
                ("/bin/sh", "PMI_RANK=3", {"SLURM_PROCID": "0"}), (launcher, "PMI_RANK=3", {"PMI_RANK": "3"}))):
            reports = self.folder / str(number)
            reports.mkdir()
            self.assertEqual(self.run_with(reports / "rank-%r.txt", shell, "-c", f"{settings} /bin/true; exit 0",
                                           **environment), "")
            self.assertIn("  /bin/true  pid ", (reports / "rank-3.txt").read_text().splitlines()[0])

    def test_a_path_with_the_pid_is_everybodys(self):
        self.assertEqual(self.run_with(self.folder / "%p", "/bin/sh", "-c", "/bin/true; exit 0"), "")
        self.assertEqual(len(self.names()), 2)
        self.assertTrue(all(name.isdigit() for name in self.names()))

    def test_a_symbolic_link_is_not_followed(self):
        target, path = self.folder / "target", self.folder / "link"
        for existing in (False, True):
            if existing:
                target.write_text("mine")
            path.unlink(missing_ok=True)
            path.symlink_to(target)
            line = self.run_with(path)
            self.assertRegex(line, rf"^cistern: {path} is a symbolic link; the report is in {path}\.\d+\n$")
            self.assertEqual(target.exists() and target.read_text(), existing and "mine")

    def test_a_process_on_the_way_that_may_not_write(self):
        """Its report is worth one line: it is nobody's."""
        if os.geteuid() or not shutil.which("setpriv"):
            self.skipTest("needs root and setpriv")
        os.chmod(self.folder, 0o755)
        done = self.shimmed("setpriv", "--reuid=65534", "--clear-groups", "sh", "-c", "sh -c uname; true",
                            environment={"CISTERN_REPORT": str(self.folder / "report")})
        self.assertEqual((done.out, done.status), ("Linux\n", 0))
        lines = done.err.splitlines()
        self.assertEqual([line for line in lines if not line.startswith("cistern: cannot write")], [])
        self.assertIn(f"cistern: cannot write the report to {self.folder}/report", done.err)
        self.assertIn("Permission denied; it is dropped, because no GPU memory was used", done.err)

    def test_a_path_that_cannot_be_written(self):
        path = self.folder / "nowhere" / "report"
        lines = self.run_with(path)
        self.assertTrue(lines.startswith(
            f"cistern: cannot write the report to {path}: No such file or directory; the report follows\n"
            "cistern "), lines)
        self.assertIn("VERDICT", lines)
        lines = self.run_with(self.folder)
        self.assertIn(f"cistern: {self.folder} exists; the report is in {self.folder}.", lines)
        for stray in self.folder.parent.glob(self.folder.name + ".*"):
            stray.unlink()

    def test_devices_and_pipes_are_written_to(self):
        self.assertEqual(self.run_with("/dev/null"), "")
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        self.assertEqual(self.run_with(pipe), "")
        self.assertTrue(os.read(reader, 65536).startswith(b"cistern "))
        self.assertEqual(self.names(), ["pipe"])

    def test_a_pipe_that_nobody_reads(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        self.assertRegex(self.run_with(pipe),
                         rf"^cistern: {pipe} is a pipe without a reader; the report is in {pipe}\.\d+\n$")
        self.assertEqual(len(self.names()), 2)

    def test_a_link_to_a_device_is_followed(self):
        link = self.folder / "link"
        link.symlink_to("/dev/null")
        self.assertEqual(self.run_with(link), "")
        self.assertEqual(self.names(), ["link"])

    def test_sockets_are_written_to(self):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            with socket.socket(socket.AF_UNIX, kind) as end:
                path = self.folder / f"socket-{kind}"
                end.bind(str(path))
                if kind == socket.SOCK_STREAM:
                    end.listen()
                self.assertEqual(self.run_with(path), "")
                reader = end.accept()[0] if kind == socket.SOCK_STREAM else end
                self.assertTrue(reader.recv(65536).startswith(b"cistern "))
                reader.close()
        done = self.shimmed("/bin/true", environment={"CISTERN_REPORT": str(path)})
        self.assertIn(f"cannot write the report to {path}: Connection refused; the report follows\n", done.err)
        self.assertEqual(self.names(), ["socket-1", "socket-2"])

    def test_a_disk_is_left_alone(self):
        disk = next(iter(pathlib.Path("/sys/block").iterdir()), None)
        if not disk or not (pathlib.Path("/dev") / disk.name).is_block_device():
            self.skipTest("there is none")
        lines = self.run_with(f"/dev/{disk.name}").splitlines()
        self.assertEqual(lines[0], f"cistern: cannot write the report to /dev/{disk.name}: Operation not supported; "
                                   "the report will follow here")
        self.assertTrue(lines[1].startswith("cistern "), lines[1])

    def test_descriptors_of_the_process_are_appended_to(self):
        self.addCleanup(self.assertEqual, list(pathlib.Path("/dev").glob("std*.*")), [])
        for path in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "/proc/thread-self/fd/1"):
            done = self.shimmed("/bin/echo", "one", environment={"CISTERN_REPORT": path})
            self.assertTrue(done.out.startswith("one\ncistern "), done.out)
            self.assertEqual((done.err, done.status), ("", 0))
            with open(self.folder / "file", "w+b") as file:
                file.write(b"before\n")
                file.flush()
                self.shimmed("/bin/echo", "one", environment={"CISTERN_REPORT": path}, stdout=file)
                file.seek(0)
                self.assertTrue(file.read().startswith(b"before\none\ncistern "))
        for path in ("/dev/stderr", "/dev/fd/2", "/proc/self/fd/2"):
            self.assertTrue(self.run_with(path).startswith("cistern "))
        here, there = socket.socketpair()
        with here, there:
            self.assertEqual(self.shimmed("/bin/true", environment={"CISTERN_REPORT": f"/dev/fd/{there.fileno()}"},
                                          pass_fds=[there.fileno()]).all(), ("", "", 0))
            self.assertTrue(here.recv(65536).startswith(b"cistern "))

    def test_a_descriptor_of_another_process_is_appended_to(self):
        with open(self.folder / "file", "w+b") as file:
            file.write(b"before\n")
            file.flush()
            self.assertEqual(self.run_with(f"/proc/{os.getpid()}/fd/{file.fileno()}"), "")
            file.seek(0)
            self.assertTrue(file.read().startswith(b"before\ncistern "))

    def test_a_descriptor_that_is_none_or_another_file(self):
        lines = self.run_with("/dev/fd/77")
        self.assertTrue(lines.startswith(
            "cistern: cannot write the report to /dev/fd/77: Bad file descriptor; the report follows\ncistern "), lines)
        data = self.folder / "data"
        script = f"exec >{data}; echo mine; exit 3"
        done = self.shimmed("/bin/sh", "-c", script, environment={"CISTERN_REPORT": "/dev/stdout"})
        self.assertEqual((data.read_text(), done.out, done.status), ("mine\n", "", 3))
        self.assertIn("cannot write the report to /dev/stdout: Bad file descriptor; the report follows", done.err)

    def test_what_programs_read_of_their_children_has_no_report(self):
        script = "echo [$(/bin/echo one)] $(seq 3 | /usr/bin/wc -l); /bin/true"
        done = self.shimmed("/bin/sh", "-c", script, environment={"CISTERN_REPORT": "/dev/stdout"})
        self.assertTrue(done.out.startswith("[one] 3\ncistern "), done.out)
        self.assertEqual(done.out.count("VERDICT"), 2, "those that write to the same file have one each")
        self.assertEqual((done.err, done.status), ("", 0))

    def test_descriptors_have_the_programs_numbers(self):
        command = ("/usr/bin/python3", "-c", "import os; print(os.open('/dev/null', os.O_RDONLY), flush=True)")
        plain = self.plain(*command).out
        for path in (self.folder / "report", "/dev/stdout", self.folder / "missing" / "report"):
            done = self.shimmed(*command, environment={"CISTERN_REPORT": str(path), "CISTERN_SITES": "off"})
            self.assertTrue(done.out.startswith(plain), done.out)

    def test_nothing_is_made_before_there_is_a_report(self):
        done = self.shimmed("/bin/sh", "-c", "kill -9 $$", environment={"CISTERN_REPORT": str(self.folder / "report")})
        self.assertEqual((done.status, self.names()), (-signal.SIGKILL, []))

    def test_a_folder_that_the_program_makes(self):
        path = self.folder / "made" / "report"
        self.assertEqual(self.run_with(path, "/bin/mkdir", path.parent), "")
        self.assertTrue(path.exists())

    def test_a_folder_that_may_not_be_written_is_said_at_the_start(self):
        """One that was started by a user, and not by root as another one."""
        if os.geteuid():
            self.skipTest("needs root")
        path = self.folder / "report"
        os.chmod(self.folder, 0o755)
        started = f"LD_PRELOAD={ARGUMENTS.shim} CISTERN_REPORT={path} /bin/sh -c 'echo running >&2'; true"
        done = self.plain("/bin/sh", "-c", started, user=65534)
        lines = done.err.splitlines()
        self.assertEqual(lines[:2], [f"cistern: cannot write the report to {path}: Permission denied; "
                                     "the report will follow here", "running"])
        self.assertTrue(lines[2].startswith("cistern "), lines[2])
        self.assertEqual(done.err.count("cannot write"), 1)

    def test_a_server_that_gives_up_its_rights_says_one_line(self):
        if os.geteuid():
            self.skipTest("needs root")
        path = self.folder / "report"
        for give_up, reason in (("os.setresuid(65534, 65534, 65534)", "Permission denied"),
                                ("os.chroot('/var/empty'); os.setresuid(65534, 65534, 65534)", ".*")):
            if "chroot" in give_up and not pathlib.Path("/var/empty").is_dir():
                give_up = give_up.replace("/var/empty", "/proc")
            done = self.shimmed("/usr/bin/python3", "-c", f"import os; {give_up}",
                                environment={"CISTERN_REPORT": str(path)})
            self.assertRegex(done.err, rf"\Acistern: cannot write the report to {path}: {reason}; "
                                       r"this process has given up its right to write there\n\Z")
            self.assertEqual((done.out, done.status, self.names()), ("", 0, []))

    def test_relative_paths_start_where_the_process_did(self):
        done = self.shimmed(self.program("wanderer"), environment={"CISTERN_REPORT": "here.txt"}, cwd=self.folder)
        self.assertEqual(done.all(), ("", "", 0))
        self.assertEqual(self.names(), ["here.txt"])

    def test_many_processes_with_one_name(self):
        path = self.folder / "all"
        done = self.shimmed("/bin/sh", "-c", "for i in 1 2 3 4; do /bin/true; done", environment={
            "CISTERN_REPORT": str(path)})
        self.assertEqual(done.all(), ("", "", 0))
        self.assertEqual(len(self.names()), 5)
        self.assertIn("  /bin/true  pid ", path.read_text().splitlines()[0])


class OptionLines(HostTest):
    def lines_of(self, **environment):
        report = self.folder / "report"
        report.unlink(missing_ok=True)
        done = self.shimmed("/bin/true", environment={"CISTERN_REPORT": str(report), **environment})
        self.assertEqual((done.out, done.status), ("", 0))
        return done.err

    def test_bad_values_and_names(self):
        cases = {
            ("CISTERN_OPENCL_POOL", "maybe"): "'maybe' is not on or off; using on",
            ("CISTERN_OPENCL_POOL_MAX", "-1"): "'-1' is not a size such as 512MiB or 1.5GB; using 1TiB",
            ("CISTERN_OPENCL_POOL_MAX", "99999999999GiB"):
                "'99999999999GiB' is not a size such as 512MiB or 1.5GB; using 1TiB",
            ("CISTERN_OPENCL_POOL_MAX", b"\xff\xfeGiB"): "'??GiB' is not a size such as 512MiB or 1.5GB; using 1TiB",
            ("CISTERN_SYSTEM_CALLS", "CISTERN_REPORT"): "'CISTERN_REPORT' is not few or all; using all",
            ("CISTERN_STAGING_THREADS", "4KiB"): "'4KiB' is not a whole number from 0 to 1024; using 7",
            ("CISTERN_DEVICE_POOL_PERCENT", "1GiB"): "'1GiB' is not a percentage from 0 to 1000000; using 115",
            ("CISTERN_DEVICE_LIMIT", "8GIb "):
                "'8GIb ' is not a size such as 512MiB or 1.5GB; the limit is half of each device's memory",
            ("CISTERN_DEVICE_LIMIT", ""):
                "'' is not a size such as 512MiB or 1.5GB; the limit is half of each device's memory",
            ("CISTERN_TRIM_INTERVAL", "soon"): "'soon' is not a time such as 250ms, 300s or 1.5h; using 300s",
            ("CISTERN_MAINTENANCE", "often"): "'often' is not a time such as 250ms, 300s or 1.5h; using 0",
            ("CISTERN_MAINTENANCE", "-1s"): "'-1s' is not a time such as 250ms, 300s or 1.5h; using 0",
            ("CISTERN_REPORT_FORMAT", "xml"): "'xml' is not text, json or both; using text",
            ("CISTERN_POOOL", "1"): "no such option (did you mean CISTERN_OPENCL_POOL?)",
            ("CISTERN_REPROT", "x"): "no such option (did you mean CISTERN_REPORT?)",
            ("CISTERN_XYZZY", "x"): "no such option",
        }
        for (name, value), line in cases.items():
            self.assertEqual(self.lines_of(**{name: value}), f"cistern: {name}: {line}\n")

    def test_good_values_say_nothing(self):
        self.assertEqual(self.lines_of(CISTERN_OPENCL_POOL="OFF", CISTERN_OPENCL_POOL_MAX="2gib", CISTERN_HOST="1",
                                       CISTERN_TRIM_INTERVAL="500ms", CISTERN_REPORT_FORMAT="JSON"), "")
        self.assertEqual(self.lines_of(CISTERN_OPENCL_POOL_MAX="1.5 GiB", CISTERN_DEVICE_POOL_MAX="64MB",
                                       CISTERN_TRIM_INTERVAL="1.5h", CISTERN_LEAK_CHECK="5m",
                                       CISTERN_PINNED_POOL_PERCENT="115%", CISTERN_NUMA="OFF"), "")

    def test_a_process_that_has_nothing_else_to_say(self):
        done = self.shimmed("/bin/true", environment={"CISTERN_POOOL": "1", "CISTERN_HOST": "maybe"})
        self.assertEqual((done.out, done.status), ("", 0))
        self.assertEqual(done.err, "cistern: CISTERN_HOST: 'maybe' is not on or off; using on\n"
                                   "cistern: CISTERN_POOOL: no such option (did you mean CISTERN_OPENCL_POOL?)\n")


class Silence(HostTest):
    """Programs that use no GPU: every byte and the status as without Cistern."""

    COMMANDS = [
        ["/bin/sh", "-c", "echo one; echo two >&2; exit 3"],
        ["/bin/bash", "-c", "set -o pipefail; seq 1 2000 | sort -n | uniq | tail -1; "
                            "for i in a b c; do echo $i | cat; done"],
        ["/bin/bash", "-c", "yes | head -3; echo ${PIPESTATUS[@]}; (exit 4) & wait $!; echo $?; "
                            "echo $(echo deep $(echo er))"],
        ["/usr/bin/env", "-i", "A=1", "/usr/bin/env"],
        ["perl", "-e", 'my %h = map {$_ => $_ ** 2} 1 .. 999; print join(",", map {$h{$_}} sort keys %h), "\\n"; '
                       'exit 5'],
        ["git", "--version"],
        ["/usr/bin/python3", "-c", "import json, subprocess, threading; print(json.dumps(list(range(99)))); "
                                   "print(subprocess.run(['echo', 'child'], capture_output=True).stdout); "
                                   "raise SystemExit(6)"],
        ["sqlite3", ":memory:", "create table t(x); insert into t select value from generate_series(1, 500); "
                                "select sum(x), count(*) from t;"],
        ["g++", "--version"],
        ["find", "/etc/default", "-type", "f"],
        ["sed", "-n", "1p;bad", "/etc/passwd"],
        ["tar", "--version"],
    ]

    def test_tools(self):
        for command in self.COMMANDS:
            if not shutil.which(command[0]):
                continue
            with self.subTest(command=command):
                self.same(*command)

    def test_git_in_a_repository(self):
        if not shutil.which("git"):
            self.skipTest("git is not installed")
        script = ("git init -q . && git config user.email a@b && git config user.name a && echo text > file && "
                  "git add file && "
                  "GIT_COMMITTER_DATE=2020-01-01T00:00Z git commit -q --date=2020-01-01T00:00Z -m first && "
                  "git log --oneline | cat && git status --short && git diff HEAD")
        results = []
        for run in (self.plain, self.shimmed):
            folder = self.folder / run.__name__
            folder.mkdir()
            results.append(run("/bin/sh", "-c", script, cwd=folder).all())
        self.assertEqual(results[0], results[1])
        self.assertEqual(results[0][2], 0)

    def test_a_compiler(self):
        source = self.folder / "hello.cpp"
        source.write_text('#include <vector>\nint main() { return static_cast<int>(std::vector<int>(3).size()); }\n')
        compiled = self.same("g++", source, "-o", self.folder / "hello")
        self.assertEqual(compiled.all(), ("", "", 0))
        self.assertEqual(self.shimmed(self.folder / "hello").status, 3)

    def test_they_report_when_asked_to(self):
        done = self.shimmed("/bin/sh", "-c", "/bin/true; exit 3", environment={"CISTERN_REPORT": "stderr"})
        self.assertEqual((done.out, done.status), ("", 3))
        self.assertEqual(len(re.findall("^VERDICT", done.err, re.MULTILINE)), 2)


def main(*flags):
    """Runs the tests of the calling script: --shim FILE, --programs FOLDER, these flags; the rest is unittest's."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--shim", type=pathlib.Path, required=True)
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    for flag in flags:
        parser.add_argument(f"--{flag}", action="store_true")
    known, rest = parser.parse_known_args()
    vars(ARGUMENTS).update(vars(known), shim=known.shim.resolve(), programs=known.programs.resolve())
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)


if __name__ == "__main__":
    main()
