"""malloc as an unmodified program sees it: every program holds plain, and does the same with libcistern.so preloaded.

--long: the settings that take minutes. --shim may name any library that brings a malloc, to compare with; what only
Cistern can answer is skipped then.
"""
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
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "host"))
import host_tests  # noqa: E402
from report_rows import host_rows  # noqa: E402

ARGUMENTS = host_tests.ARGUMENTS
PYTHON = "/usr/bin/python3"


class Run(host_tests.Run):
    """Ends the children too when the time is over: those of a fork that hangs would hold the pipes open."""

    def __init__(self, command, environment, preload, limit_s=120, **redirections):
        settings = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("CISTERN_")}
        if preload:
            settings["LD_PRELOAD"] = ":".join(map(str, preload))
        settings.update(environment)
        process = subprocess.Popen(list(map(str, command)), env=settings, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                                   **redirections)
        hung = ""
        try:
            out, err = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            hung = f"(hung: ended after {limit_s} s)"
        self.out, self.err = out.decode(errors="replace"), err.decode(errors="replace") + hung
        self.status = process.returncode


class PoolTest(host_tests.HostTest):
    def plain(self, *command, preload=(), environment=None, **more):
        return Run(command, environment or {}, preload, **more)

    def shimmed(self, *command, preload=(), environment=None, **more):
        return Run(command, environment or {}, [ARGUMENTS.shim, *preload], **more)

    def holds(self, name, *arguments, **more):
        """Plain and preloaded the same one line and status 0."""
        done = self.same(self.program(name), *arguments, **more)
        self.assertEqual((done.err, done.status), ("", 0), done.out)
        self.assertEqual(len(done.out.splitlines()), 1)
        return done.out

    def holds_preloaded(self, name, *arguments, **more):
        """For settings that are too long to run twice."""
        done = self.shimmed(self.program(name), *arguments, **more)
        self.assertEqual((done.err, done.status), ("", 0), done.out)
        return done.out

    def require_cistern(self):
        """For what other libraries that bring a malloc have not. In Cistern none of it may be missing."""
        if b"cistern_version" not in ARGUMENTS.shim.read_bytes():
            self.skipTest(f"{ARGUMENTS.shim.name} is not Cistern")

    def require_installed(self, command):
        if not shutil.which(command):
            self.skipTest(f"{command} is not installed")


class Calls(PoolTest):
    def test_edges_of_sizes_and_alignments(self):
        self.assertRegex(self.holds("failure_matrix"), r"^failure_matrix: \d{5} checks, 0 broken$")
        self.holds_preloaded("failure_matrix", "overflows")

    def test_they_hold_when_the_pool_is_off(self):
        self.require_cistern()
        for setting in ("on", "off"):
            figures = self.host(self.program("queries"), environment={"CISTERN_HOST_POOL": setting})
            self.assertEqual("sizes" in figures, setting == "on", "the pool serves, or not")
        for environment in ({"CISTERN_HOST_POOL": "off"}, {"CISTERN_HOST": "off"},
                            {"CISTERN_HOST_POOL": "off", "CISTERN_HOST": "off"}):
            self.holds("failure_matrix", environment=environment)
            self.holds("queries", environment=environment)
            self.holds("model", 2, 100000, 3, environment=environment)

    def test_alignment(self):
        for seed in range(1, 20 if ARGUMENTS.long else 2):
            self.holds("alignment", seed)

    def test_queries_and_settings(self):
        self.holds("queries")

    def test_contents_of_freed_blocks_prove_nothing(self):
        self.holds("stale_contents")

    def test_they_fail_as_the_c_librarys_do(self):
        done = self.same(self.program("failing_calls"), limit_s=300)
        self.assertEqual((done.err, done.status), ("", 0))
        self.assertGreater(len(done.out.splitlines()), 500)

    def test_perturbed_memory(self):
        for environment in ({"MALLOC_PERTURB_": "165"}, {"GLIBC_TUNABLES": "glibc.malloc.perturb=90"}):
            done = self.same(self.program("perturb"), environment=environment)
            self.assertIn("malloc(300000): all 1, last byte " + ("5a" if "MALLOC_PERTURB_" in environment else "a5"),
                          done.out)
        # From mallopt on; what fresh memory holds before nobody knows.
        for run in (self.plain, self.shimmed):
            done = run(self.program("perturb"), "165")
            self.assertEqual((done.err, done.status), ("", 0))
            self.assertTrue(done.out.startswith("mallopt: 1\n"), done.out)
            # Small ones may come from its thread's cache, and are as they were.
            self.assertEqual(re.findall(r"(\w+) malloc\(\d{5,}\): (.*)", done.out),
                             [("main", "all 1, last byte 5a")] * 2 + [("thread", "all 1, last byte 5a")])

    def test_malloc_info_is_xml_and_malloc_stats_speaks_on_stderr(self):
        for done in (self.plain(self.program("statistics")), self.shimmed(self.program("statistics"))):
            self.assertEqual(done.status, 0)
            self.assertTrue(done.out.startswith('<malloc version="1">'), done.out)
            # glibc 2.36 closes the element <sizes> of a heap without opening it when nothing is in it.
            text = re.sub(r"(<heap nr=\"\d+\">\n)</sizes>\n", r"\1", done.out)
            self.assertEqual(xml.etree.ElementTree.fromstring(text).tag, "malloc")
            self.assertGreater(len(done.err.splitlines()), 1)

    def test_a_plugin_allocates_and_the_program_frees(self):
        for way in ("redirect", "keep"):
            self.holds("deepbind", self.program("libdeepbind_plugin.so"), "from_plugin",
                       environment={"CISTERN_DEEPBIND": way})

    def test_the_program_allocates_and_a_plugin_frees(self):
        for environment in ({}, {"CISTERN_DEEPBIND": "clear"}, {"CISTERN_HOST_POOL": "off"}):
            self.holds("deepbind", self.program("libdeepbind_plugin.so"), "from_program", environment=environment)


class Threads(PoolTest):
    def test_the_model(self):
        if ARGUMENTS.long:
            for threads, seed in ((1, 11), (2, 12), (8, 13)):
                self.holds_preloaded("model", threads, 100000000, seed, limit_s=3600)
        for threads, operations, seed in ((1, 500000, 1), (2, 1000000, 2), (32, 2000000, 3), (32, 2000000, 13)):
            self.holds("model", threads, operations, seed)

    def test_forks_while_threads_allocate(self):
        self.holds("fork_storm", 2000 if ARGUMENTS.long else 80, 1, limit_s=1800)

    def test_threads_that_die(self):
        for seed in (1, 2):
            self.holds("thread_death", 40000 if ARGUMENTS.long else 4000, seed, limit_s=1800)

    def test_signal_handlers_that_allocate(self):
        self.holds("signals", 5000 if ARGUMENTS.long else 60, limit_s=600)


class Processes(PoolTest):
    def test_before_main_and_after(self):
        self.assertEqual(self.holds("static_destructors"), "static_destructors: the last destructor ran\n")

    def test_a_program_has_a_function_of_the_c_librarys(self):
        self.assertEqual(self.holds("own_find_object"), "whole 0\n")

    def test_libraries_that_come_and_go(self):
        libraries = [self.program("libtls_medium.so"), self.program("libtls_large.so")]
        self.holds("dlopen_tls", 1000 if ARGUMENTS.long else 150, *libraries)

    def test_locked_memory_stays_small(self):
        plain = self.plain(self.program("locked"))
        if plain.out == "not permitted\n":
            self.skipTest("mlockall is not permitted here")
        shimmed = self.shimmed(self.program("locked"))
        self.assertEqual((plain.status, shimmed.err, shimmed.status), (0, "", 0))
        self.assertLess(int(shimmed.out), int(plain.out) + 32 * 1024)

    def test_a_lock_ends_with_its_block(self):
        for options in ({}, {"CISTERN_SITES": "all"}, {"CISTERN_SYSTEM_CALLS": "few"}):
            with self.subTest(**options):
                done = self.shimmed(self.program("memory_locks"), environment=options)
                if done.out == "not permitted\n":
                    self.skipTest("mlock is not permitted here")
                steps = ("the first pages", "pages in the middle", "on fault", "unlocked before", "shrunk", "grown",
                         "in a child", "all unlocked")
                self.assertEqual(done.out.splitlines(), [f"{step}: 0" for step in steps] + ["refused: -1 1"])
                self.assertEqual((done.err, done.status), ("", 0))


class NativeBlocks(PoolTest):
    """Blocks of the C library's own heap that the program frees."""

    KEEP = {"CISTERN_DEEPBIND": "keep"}

    def test_their_frees_cost_little_however_many_there_are(self):
        for more in ((), ("thread",)):
            for count in (1000, 20000):
                ns = min(int(self.shimmed(self.program("native_blocks"), "time", count, *more,
                                          environment=self.KEEP).out) for _ in range(5))
                # A tenth of this, where the machine has nothing else to do.
                self.assertLess(ns, 2000, (count, more))

    def test_they_are_freed_where_system_calls_are_refused(self):
        for when in ("refused", "refused_before"):
            for call in ("mincore", "madvise", "mremap"):
                done = self.same(self.program("native_blocks"), when, call, environment=self.KEEP)
                self.assertEqual((done.out, done.err, done.status), (f"{call} refused: 672\n", "", 0), when)


class LargeBlocks(PoolTest):
    """Memory of large blocks stays resident while the program replaces them, but not much more than it uses. CPU time
    follows from the page faults, and those do not depend on what else the machine does."""

    def used(self, preload, *load):
        """The process that is measured begins as a copy of the static launcher's, which is small."""
        with tempfile.TemporaryFile() as figures:
            done = Run([self.program("measure"), figures.fileno(), self.program("large_blocks"), *load],
                       {"CHILD_PRELOAD": str(preload)}, [], pass_fds=[figures.fileno()])
            self.assertEqual((done.out, done.err, done.status), ("", "", 0))
            figures.seek(0)
            return json.loads(figures.read())

    def test_replaced_ones_fault_about_as_little_as_the_c_librarys(self):
        # The sizes that a seed gives favour one or the other.
        seeds = [random.randrange(1 << 30) for _ in range(4)]
        for how, kib, live in (("random", 512, 20), ("random", 2048, 20), ("random", 8192, 20), ("random", 2048, 200),
                               ("random", 40960, 2), ("random", 12288, 2), ("queue", 65536, 4), ("phases", 2048, 20),
                               ("grow", 8192, 20)):
            with self.subTest(how=how, kib=kib, live=live, seeds=seeds):
                loads = [(how, kib, live, max(1024, 3 * kib * live // 1024), seed) for seed in seeds]
                plain = [self.used("", *load) for load in loads]
                shimmed = [self.used(ARGUMENTS.shim, *load) for load in loads]
                # Besides, the library's own pages.
                for figure, most, own in (("faults", 1.25, 1000), ("peak_kib", 1.1, 2048)):
                    self.assertLess(sum(one[figure] for one in shimmed),
                                    sum(one[figure] for one in plain) * most + own * len(seeds), figure)


class Trims(PoolTest):
    """One block in a hundred survives a burst of 400 MiB: pages without a survivor go back."""

    def left_kib(self, way, **settings):
        done = self.shimmed(self.program("trimmed"), way, environment=settings)
        self.assertEqual((done.err, done.status), ("", 0))
        peak, left = map(int, done.out.split())
        self.assertGreater(peak, 380_000)
        return left

    def plain_kib(self, way):
        return int(self.plain(self.program("trimmed"), way).out.split()[1])

    def test_malloc_trim(self):
        self.assertLess(self.left_kib("trim"), 1.2 * self.plain_kib("trim") + 4000)

    def test_one_threads_trim_reaches_the_others(self):
        self.assertLess(self.left_kib("other"), 1.2 * self.plain_kib("trim") + 8000)

    def test_what_is_quiet_goes_back_by_itself(self):
        self.assertLess(self.left_kib("quiet", CISTERN_TRIM_INTERVAL="1s"), 50_000)
        self.assertGreater(self.left_kib("quiet", CISTERN_TRIM_INTERVAL="0"), 100_000)

    def test_what_ended_threads_freed(self):
        self.assertLess(self.left_kib("threads"), 50_000)


class Forks(PoolTest):
    """A child that ends soon, or calls exec, copies few pages: those that it and its parent write."""

    def test_page_faults(self):
        plain = list(map(int, self.plain(self.program("fork_faults")).out.split()))
        done = self.shimmed(self.program("fork_faults"))
        self.assertEqual((done.err, done.status), ("", 0))
        parent, child = map(int, done.out.split())
        self.assertLessEqual(parent, plain[0] + 6)
        self.assertLessEqual(child, plain[1] + 30)


class SmallStacks(PoolTest):
    """malloc is called on coroutines and in handlers of signals with 4 KiB: no way through it takes more than 3."""

    def holds_with(self, **environment):
        self.assertEqual(self.holds("small_stacks", environment=environment), "small stacks: ok\n")

    def test_samples_are_taken(self):
        self.holds_with()
        self.holds_with(CISTERN_HOST_SAMPLE="64KiB")

    def test_every_block_has_a_site(self):
        self.holds_with(CISTERN_SITES="all")

    def test_no_block_has_a_site(self):
        self.holds_with(CISTERN_SITES="off")

    def test_the_pool_does_not_serve(self):
        self.holds_with(CISTERN_HOST_POOL="off")

    def test_free_memory_goes_back_at_once(self):
        self.holds_with(CISTERN_TRIM_INTERVAL="0")

    def test_a_report_is_asked_for(self):
        """Then want of memory is said, in a line that is put together on that stack."""
        self.require_cistern()
        for sites in "gpu", "all":
            done = self.shimmed(self.program("small_stacks"), environment={
                "CISTERN_REPORT": str(self.folder / f"{sites}-%p.json"), "CISTERN_SITES": sites})
            self.assertEqual((done.out, done.status), ("small stacks: ok\n", 0), done.err)
            self.assertIn("out of memory", done.err)


class Sites(PoolTest):
    """Which code made what is alive at exit."""

    def report(self, mode, blocks, **environment):
        done, reports = self.reported(self.program("sites"), blocks, sites=mode, **environment)
        self.assertEqual((done.out, done.err), ("", ""))
        return reports[0]

    def reported(self, *command, sites, **environment):
        path = self.folder / f"{sites}.json"
        done = self.shimmed(*command, environment={"CISTERN_SITES": sites, "CISTERN_REPORT": str(path), **environment,
                                                   "CISTERN_REPORT_FORMAT": "json"})
        self.assertEqual(done.status, 0, done.err)
        text = path.read_text()
        path.unlink()
        return done, [json.loads(text)]

    def blocks_by_function(self, report):
        found = {}
        for site in host_rows(report):
            self.assertIn(site["class"], ("lost", "indirectly lost", "possibly lost", "reachable"))
            names = [frame.get("function", "") for frame in site["frames"]]
            for name in ("thread_keeps_nodes", "keep_nodes", "drop_nodes", "keep_large"):
                if any(one.startswith(name) for one in names):
                    blocks, size = found.get(name, (0, 0))
                    found[name] = blocks + site["blocks"], size + site["bytes"]
        return found

    def test_every_block_has_its_own(self):
        report = self.report("all", 20000)
        found = self.blocks_by_function(report)
        self.assertEqual(set(found), {"keep_nodes", "thread_keeps_nodes", "keep_large"})
        self.assertEqual(found["keep_nodes"], (20000, 20000 * 112))
        self.assertEqual(found["thread_keeps_nodes"], (20000, 20000 * 112))
        self.assertEqual(found["keep_large"][0], 1)
        host = report["kinds"]["host"]
        # All but the loader's few blocks, older than the options.
        before = host["live_blocks"] - sum(site["blocks"] for site in host_rows(report))
        self.assertEqual(report["host_without_site"]["blocks"], before)
        self.assertGreaterEqual(before, 0)
        self.assertLess(before, 60)
        self.assertLess(host["live_bytes"] - sum(site["bytes"] for site in host_rows(report)), 100000)
        self.assertEqual(report["sites"]["mode"], "gpu:all,host:all")
        self.assertNotIn("leaks.host", report["estimated"])
        # Of each 112 bytes 100 were asked for; the large block lost less than a page.
        fragmentation = report["fragmentation"]["host"]
        self.assertAlmostEqual(fragmentation["live_bytes"] - fragmentation["requested_bytes"], 40000 * 12, delta=30000)

    def test_samples_estimate_it(self):
        report = self.report("gpu", 400000, CISTERN_HOST_SAMPLE="64KiB")
        found = self.blocks_by_function(report)
        # Some 680 samples each of a number that is known: four standard deviations are 6 %.
        for name in ("keep_nodes", "thread_keeps_nodes"):
            self.assertAlmostEqual(found[name][0], 400000, delta=400000 * 0.07)
        self.assertAlmostEqual(found["keep_nodes"][0] + found["thread_keeps_nodes"][0], 800000, delta=800)
        nodes = [site for site in host_rows(report) if site["blocks"] > 100000]
        for site in nodes:
            self.assertEqual((site["block_bytes_min"], site["block_bytes_max"]), (100, 100))
            self.assertAlmostEqual(site["bytes_error"] / site["bytes"], 680 ** -0.5, delta=0.015)
        large, = (site for site in host_rows(report) if site["frames"][0]["function"].startswith("keep_large"))
        self.assertNotIn("bytes_error", large)
        self.assertNotIn("drop_nodes", found)
        self.assertEqual(found["keep_large"][0], 1)
        self.assertIn("leaks.host", report["estimated"])
        self.assertEqual(report["sites"]["mode"], "gpu:all,host:64KiB")

    def test_estimates_are_no_more_than_what_is_known(self):
        path = self.folder / "churn"
        for _ in range(5):
            self.shimmed(self.program("churn"), environment={"CISTERN_REPORT": str(path)})
            lines = path.read_text().splitlines()
            path.unlink()
            self.assertEqual([line for line in lines if line.startswith("PEAK BY SITE host")], [])
            self.assertEqual(sum(line.startswith("LIVE HOST MEMORY BY SITE") for line in lines), 1)

    def test_without_there_are_none(self):
        for environment in ({"CISTERN_HOST_SAMPLE": "0"}, {"CISTERN_HOST_POOL": "off"}):
            report = self.report("gpu", 1000, **environment)
            self.assertEqual((host_rows(report), report["sites"]["mode"]), ([], "gpu:all,host:off"))
        report = self.report("off", 1000)
        self.assertEqual((host_rows(report), report["sites"]["mode"]), ([], "off"))

    def test_programs_hold_with_every_block_sampled(self):
        environment = {"CISTERN_SITES": "all"}
        self.holds("failure_matrix", environment=environment)
        self.holds("alignment", environment=environment)
        self.holds("stale_contents", environment=environment)
        self.holds("static_destructors", environment=environment)
        self.holds("model", 8, 300000, 21, environment=environment)
        self.holds("signals", environment=environment)
        self.holds("fork_storm", 20, 5, environment=environment)

    def test_programs_hold_with_many_samples(self):
        for seed in (31, 32):
            self.holds("model", 8, 300000, seed, environment={"CISTERN_HOST_SAMPLE": "4KiB"})

    def test_misuse_is_named_with_every_block_sampled(self):
        for name in ("double_free_small", "double_free_from_other_thread", "interior_small", "realloc_of_freed"):
            done = self.shimmed(self.program(f"misuse/{name}"), environment={"CISTERN_SITES": "all"})
            self.assertEqual(done.status, -signal.SIGABRT, name)
            self.assertRegex(done.err, r"^cistern: \w+\(0x[0-9a-f]+\): (double free|invalid)")


class Limits(PoolTest):
    def test_of_address_space(self):
        for mib in (60, 200, 1000):
            for work in ("run", "run_in_thread"):
                with self.subTest(mib=mib, work=work):
                    self.holds("limits", "as", mib, work)

    def test_of_data(self):
        for mib in (60, 200, 1000):
            for work in ("run", "run_in_thread"):
                with self.subTest(mib=mib, work=work):
                    self.holds("limits", "data", mib, work)

    def test_are_set_where_nothing_may_be_waited_for(self):
        for where in (("handler", "limit"), ("handler", "lock"), ("child", "limit"), ("child", "lock"), ("vfork",)):
            with self.subTest(where=where):
                self.holds("limits_anywhere", *where)

    def test_call_sites_without_memory_for_them(self):
        self.holds("sites_without_memory")


class Misuse(PoolTest):
    """Ended by SIGABRT after one line that names the pointer. The program prints it before it misuses it."""

    def test_each_is_named(self):
        self.require_cistern()
        names = sorted(path.stem for path in (HERE / "programs" / "misuse").glob("*.c"))
        self.assertGreater(len(names), 15)
        for name in names:
            with self.subTest(name):
                done = self.shimmed(self.program("misuse") / name)
                self.assertEqual(done.status, -signal.SIGABRT, done.err)
                pointer = done.out.strip()
                self.assertRegex(pointer, "^0x[0-9a-f]+$")
                first_line = (done.err.splitlines() or [""])[0]
                # Of a large block nothing is left that says that there was one.
                twice = name == "realloc_of_freed" or name.startswith("double_free") and "_large" not in name and (
                    "_huge" not in name)
                what = "double free" if twice else "invalid pointer"
                self.assertRegex(first_line, rf"^cistern: (free|realloc)\({pointer}\): {what}: .*; aborting$")

    def test_sites_are_named_where_every_block_has_one(self):
        for name, sites in (("double_free_small", 2), ("interior_small", 2), ("interior_large", 2),
                            ("realloc_of_freed", 2), ("realloc_of_interior", 2), ("of_stack", 1),
                            ("double_free_large", 1)):
            with self.subTest(name):
                done = self.shimmed(self.program("misuse") / name, environment={"CISTERN_SITES": "all"})
                self.assertEqual(done.status, -signal.SIGABRT, done.err)
                lines = re.findall(rf" at main \([^)]*{name}\.c:(\d+)\)", done.err)
                self.assertEqual(len(set(lines)), sites, done.err)
                self.assertIn("; this call at main", done.err)


    def test_the_program_may_go_on_instead(self):
        self.require_cistern()
        for name in ("double_free_small", "double_free_from_other_thread", "interior_large", "of_global"):
            done = self.shimmed(self.program("misuse") / name, environment={"CISTERN_HOST_MISUSE": "continue"})
            self.assertEqual(done.status, 0, name)
            self.assertRegex(done.err, r"^cistern: free\(0x[0-9a-f]+\): (double free|invalid).*\n$")


class Live(PoolTest):
    """What is live at exit, to the block and the byte: by comparison with a run that leaves nothing."""

    def setUp(self):
        super().setUp()
        self.require_cistern()

    def left_and_none(self, environment=None):
        """The printed lines of a run, as numbers: size, blocks, usable bytes; the figures of the host of both runs."""
        figures = []
        for arguments in ((), ("none",)):
            done, reports = self.reported(self.program("live1900"), *arguments, environment=environment)
            self.assertEqual((done.err, len(reports)), ("", 1))
            figures.append(reports[0]["kinds"]["host"])
            lines = [tuple(map(int, line.split())) for line in done.out.splitlines()]
        self.assertEqual(sum(blocks for _, blocks, _ in lines), 1900)
        return lines, *figures

    def test_blocks_and_bytes(self):
        lines, left, none = self.left_and_none()
        self.assertEqual(left["live_blocks"] - none["live_blocks"], 1900)
        self.assertEqual(left["live_bytes"] - none["live_bytes"], sum(usable for _, _, usable in lines))
        self.assertEqual(left["allocations"], none["allocations"])
        self.assertEqual(none["frees"] - left["frees"], 1900)

    def test_by_class(self):
        """To the block, whichever of them are samples; what is larger than any class is the rest of the total."""
        for sample in ("64B", "16KiB", "512KiB", "0"):
            lines, left, none = self.left_and_none({"CISTERN_HOST_SAMPLE": sample})
            without = {size["block_bytes"]: size["live_blocks"] for size in none["sizes"]}
            more = {size["block_bytes"]: size["live_blocks"] - without.get(size["block_bytes"], 0)
                    for size in left["sizes"]}
            wanted = {usable // blocks: blocks for bytes_, blocks, usable in lines if bytes_ <= 32768}
            self.assertEqual(len(wanted), 2)
            self.assertEqual({size: blocks for size, blocks in more.items() if blocks}, wanted, sample)
            self.assertEqual(left["live_blocks"] - none["live_blocks"] - sum(wanted.values()), 250)


class RealPrograms(PoolTest):
    def test_pythons_own_tests(self):
        modules = ["test_json", "test_list", "test_dict", "test_unicode", "test_set", "test_bytes", "test_deque",
                   "test_memoryview"]
        if self.plain(PYTHON, "-c", "import test.libregrtest, test.test_json, test.test_deque").status != 0:
            self.skipTest("libpython3.*-testsuite is not installed")
        # Without Python's own allocator of small objects every one of them comes to malloc.
        for environment in ({"PYTHONMALLOC": "malloc"}, {})[:2 if ARGUMENTS.long else 1]:
            done = self.shimmed(PYTHON, "-m", "test", *modules, environment=environment, cwd=self.folder, limit_s=900)
            self.assertEqual(done.status, 0, done.out + done.err)
            self.assertIn(f"All {len(modules)} tests OK", done.out)

    def test_python_with_threads_and_processes(self):
        script = ("import json, concurrent.futures as futures\n"
                  "def work(n): return sum(len(json.dumps({str(i): [i] * (i % 50)})) for i in range(n))\n"
                  "if __name__ == '__main__':\n"
                  "    with futures.ThreadPoolExecutor(4) as pool: print(list(pool.map(work, range(0, 4000, 400))))\n"
                  "    with futures.ProcessPoolExecutor(2) as pool: print(list(pool.map(work, range(0, 4000, 400))))\n")
        path = self.folder / "script.py"
        path.write_text(script)
        self.assertEqual(self.same(PYTHON, path, environment={"PYTHONMALLOC": "malloc"}).status, 0)

    def test_sqlite(self):
        self.require_installed("sqlite3")
        rows, text = (400000, 1000) if ARGUMENTS.long else (60000, 100)
        script = (f"create table t(id integer primary key, name text, value real);"
                  f"with recursive n(i) as (select 1 union all select i + 1 from n where i < {rows})"
                  f"insert into t select i, printf('%0{text}d', i * 7919 % {rows}), i * 0.5 from n;"
                  "create index by_name on t(name);"
                  "select count(*), sum(value), sum(length(name)) from t;"
                  "select id, substr(name, -8) from t order by name limit 5;"
                  "select a.id, group_concat(b.id) from t a join t b on b.id = a.id * 2 where a.id % 1000 = 0"
                  " group by a.id order by a.id limit 10;"
                  "delete from t where id % 3 = 0; vacuum; select count(*) from t;"
                  "select json_group_array(id) from (select id from t where id < 500);")
        done = self.same("sqlite3", ":memory:", script, limit_s=900)
        self.assertEqual((done.err, done.status), ("", 0))
        self.assertIn(f"{rows}|", done.out)

    def test_a_compiler_makes_the_same_object(self):
        self.require_installed("g++")
        made = []
        for run in (self.plain, self.shimmed):
            path = self.folder / "object.o"
            done = run("g++", "-std=c++20", "-O1", "-c", HERE / "programs" / "model.cpp", "-o", path)
            self.assertEqual(done.all(), ("", "", 0))
            made.append(path.read_bytes())
            path.unlink()
        self.assertEqual(made[0], made[1])

    def test_perl(self):
        self.require_installed("perl")
        script = ("my %h; for my $i (1 .. 60000) { $h{'key' . $i * 7919 % 60000} = 'x' x ($i % 300) . $i }"
                  "my @k = sort keys %h; my $t = join ',', map { length $h{$_} } @k; $t =~ s/(\\d)1/$1-/g;"
                  "print scalar(@k), ' ', length $t, ' ', unpack('%32C*', $t), \"\\n\"; exit 4;")
        self.assertEqual(self.same("perl", "-e", script).status, 4)

    def test_node(self):
        self.require_installed("node")
        script = ("const {Worker} = require('worker_threads');"
                  "const text = JSON.stringify(Array.from({length: 50000}, (_, i) => ({i, s: 'x'.repeat(i % 40)})));"
                  "const buffers = []; for (let i = 0; i < 2000; ++i) buffers.push(Buffer.alloc(i * 10, i % 256));"
                  "console.log(JSON.parse(text).length, buffers.reduce((sum, b) => sum + b.length, 0));"
                  "new Worker('console.log(Array(99999).fill(3).map(String).join().length)', {eval: true})"
                  ".on('exit', () => process.exit(6));")
        self.assertEqual(self.same("node", "-e", script).status, 6)

    def test_java(self):
        self.require_installed("java")
        self.assertEqual(self.same("java", "-version").status, 0)
        if not shutil.which("javac"):
            self.skipTest("javac is not installed: only java -version ran")
        (self.folder / "Small.java").write_text(
            "import java.util.*;\n"
            "import java.util.stream.*;\n"
            "public class Small {\n"
            "  public static void main(String[] arguments) throws Exception {\n"
            "    Map<String, Integer> map = new TreeMap<>();\n"
            "    for (int i = 0; i < 50000; ++i) map.put(\"key\" + i * 7919 % 50000, i);\n"
            "    System.out.println(map.size() + \" \" + map.values().stream().mapToInt(x -> x).sum());\n"
            "    java.util.zip.Deflater deflater = new java.util.zip.Deflater();\n"
            "    deflater.setInput(new byte[1 << 20]); deflater.finish();\n"
            "    System.out.println(deflater.deflate(new byte[1 << 20])); deflater.end();\n"
            "    System.out.println(IntStream.range(0, 1000000).parallel().filter(x -> x % 7 == 0).count());\n"
            "    java.nio.ByteBuffer direct = java.nio.ByteBuffer.allocateDirect(5 << 20);\n"
            "    System.out.println(direct.capacity()); System.exit(5);\n"
            "  }\n"
            "}\n")
        self.assertEqual(self.same("javac", "-d", self.folder, self.folder / "Small.java").status, 0)
        self.assertEqual(self.same("java", "-Xmx200m", "-cp", self.folder, "Small").status, 5)


if __name__ == "__main__":
    host_tests.main("long")
