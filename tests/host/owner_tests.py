"""Whose malloc a program has: another allocator before or behind us, in the program or preloaded, sanitizers and
debuggers of memory. Each run ends and prints as without us, and what serves is said where a report is asked for.
"""
import glob
import os
import pathlib
import re
import shutil
import subprocess

import host_tests
from host_tests import ARGUMENTS, HostTest

SOURCES = pathlib.Path(__file__).resolve().parent / "programs"
LIBRARIES = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib", "/usr/lib/heaptrack"]
ASIDE = r"cistern: host memory is served by (\S*{}\S*): neither pooled nor counted\n"


def library(name):
    """The path of an installed library, whose name may be a pattern; None where it is missing."""
    return next((path for folder in LIBRARIES for path in sorted(glob.glob(f"{folder}/{name}"))), None)


class OwnerTest(HostTest):
    def require(self, name):
        path = library(name)
        if not path:
            self.skipTest(f"{name} is not installed")
        return path

    def holds(self, done):
        self.assertEqual((done.out, done.status), ("family: holds\n", 3), done.err)

    def check_both_ways(self, name, *family, err=lambda text: text, environment=None):
        """The library before us and behind us, as it is alone; returns its path."""
        path = self.require(name)
        program = [self.program("family"), *family]
        settings = environment or {}
        alone = self.plain(*program, preload=[path], environment=settings)
        self.holds(alone)
        for order in ([path, ARGUMENTS.shim], [ARGUMENTS.shim, path]):
            done = self.plain(*program, preload=order, environment=settings)
            self.assertEqual((done.out, err(done.err), done.status), (alone.out, err(alone.err), alone.status), order)
        return path

    def check_steps_aside(self, name, *family, **more):
        path = self.check_both_ways(name, *family, **more)
        for order in ([path, ARGUMENTS.shim], [ARGUMENTS.shim, path]):
            self.check_says_so(self.plain(self.program("family"), *family, preload=order, environment={
                "CISTERN_REPORT": "stderr", **more.get("environment", {})}), name)

    def check_says_so(self, done, name):
        self.holds(done)
        self.assertRegex(done.err, ASIDE.format(re.escape(name)))
        self.assertNotRegex(done.err, r"\n  host ")


class Allocators(OwnerTest):
    def test_one_in_the_program(self):
        self.holds(self.same(self.program("family_own")))
        self.holds(self.same(self.program("family_own_minimal"), "minimal"))

    def test_it_is_said_that_the_program_has_one(self):
        done = self.shimmed(self.program("family_own"), environment={"CISTERN_REPORT": "stderr"})
        self.holds(done)
        self.assertIn("cistern: host memory is served by the program itself or its debugger: neither", done.err)

    def test_one_archive_in_the_program(self):
        program = self.program("family_jemalloc")
        if not program.exists():
            self.skipTest("libjemalloc.a is not installed")
        self.holds(self.same(program))

    def test_one_that_a_library_brings(self):
        own = self.program("libown_allocator.so")
        for order in ([own, ARGUMENTS.shim], [ARGUMENTS.shim, own]):
            self.holds(self.plain(self.program("family"), preload=order))

    def test_jemalloc(self):
        self.check_both_ways("libjemalloc.so.2")

    def test_tcmalloc(self):
        self.check_both_ways("libtcmalloc_minimal.so.4")

    def test_mimalloc(self):
        self.check_both_ways("libmimalloc.so.2.?")

    def test_behind_us_it_is_counted_and_before_us_it_is_not(self):
        path = self.require("libjemalloc.so.2")
        host = self.host(self.program("family"), expected_status=3, preload=[path])
        self.assertGreater(host["allocations"], 60)
        self.assertEqual(host["failed_allocations"] if "failed_allocations" in host else 0, 0)
        done = self.plain(self.program("family"), preload=[path, ARGUMENTS.shim],
                          environment={"CISTERN_REPORT": "stderr"})
        self.check_says_so(done, "libjemalloc.so.2")

    def test_every_block_of_new_is_counted_once(self):
        for name in ("", "libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2.?"):
            path = name and self.require(name)
            for pool in ("on", "off"):
                with self.subTest(name=name, pool=pool):
                    few, many = (self.host(self.program("operators"), blocks, preload=[path] if path else [],
                                           environment={"CISTERN_HOST_POOL": pool}) for blocks in ("100", "1100"))
                    self.assertEqual([many[figure] - few[figure] for figure in ("allocations", "frees", "live_blocks")],
                                     [5000, 2500, 2500])
                    self.assertGreaterEqual(many["live_bytes"] - few["live_bytes"], 500 * (4 * 100 + 20 * 100))

    def test_real_programs(self):
        for name in ("libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2.?"):
            path = self.require(name)
            for command in (["/usr/bin/python3", "-c", "import json; print(len(json.dumps(list(range(9999)))))"],
                            ["perl", "-e", 'my %h = map {$_ => $_ x 9} 1 .. 9999; print scalar(%h), "\\n"'],
                            ["/bin/sh", "-c", "ls / | sort | head -3; exit 4"]):
                plain = self.plain(*command, preload=[path])
                for order in ([path, ARGUMENTS.shim], [ARGUMENTS.shim, path]):
                    self.assertEqual(self.plain(*command, preload=order).all(), plain.all(), order)


class Debuggers(OwnerTest):
    def test_the_c_librarys(self):
        self.check_steps_aside("libc_malloc_debug.so.0")
        # With its checks on it has sizes of its own.
        self.check_steps_aside("libc_malloc_debug.so.0", environment={"GLIBC_TUNABLES": "glibc.malloc.check=3"})

    def test_the_c_librarys_finds_what_it_is_for(self):
        path = self.require("libc_malloc_debug.so.0")
        settings = {"GLIBC_TUNABLES": "glibc.malloc.check=3"}
        program = [self.program("inspected"), "frees_twice"]
        alone = self.plain(*program, preload=[path], environment=settings)
        self.assertEqual((alone.err.strip(), alone.status), ("free(): invalid pointer", -6))
        for order in ([path, ARGUMENTS.shim], [ARGUMENTS.shim, path]):
            self.assertEqual(self.plain(*program, preload=order, environment=settings).all(), alone.all(), order)

    def test_memusage(self):
        blocks = lambda text: re.findall(r"heap peak: (\d+)", text)
        self.check_both_ways("libmemusage.so", "minimal", err=blocks)

    def test_electric_fence(self):
        self.check_both_ways("libefence.so.0", "minimal", err=lambda text: "Electric Fence" in text)

    def test_dmalloc(self):
        self.check_steps_aside("libdmalloc.so.5", "minimal")

    def test_heaptrack(self):
        path = self.require("libheaptrack_preload.so")
        for order in ([path], [path, ARGUMENTS.shim], [ARGUMENTS.shim, path]):
            out = self.folder / "heaptrack"
            self.holds(self.plain(self.program("family"), preload=order, environment={
                "DUMP_HEAPTRACK_OUTPUT": str(out)}))
            self.assertGreater(sum(line.startswith("+") for line in out.read_text().splitlines()), 30, order)

    def test_valgrind(self):
        if not shutil.which("valgrind"):
            self.skipTest("valgrind is not installed")
        for tool in ("memcheck", "helgrind", "massif"):
            files = [f"--massif-out-file={self.folder / 'massif'}"] if tool == "massif" else []
            command = ["valgrind", "-q", f"--tool={tool}", *files, f"--log-file={self.folder / tool}"]
            done = self.shimmed(*command, self.program("family"), environment={"CISTERN_REPORT": "stderr"})
            self.assertIn("cistern: host memory is served by the program itself or its debugger: neither", done.err)
            self.holds(done)
        command = ["valgrind", "-q", "--leak-check=full", "--error-exitcode=9", self.program("inspected"), "leaks"]
        done = self.shimmed(*command)
        self.assertEqual((done.out, done.status), ("leaks\n", 9), done.err)
        self.assertIn("77 bytes in 1 blocks are definitely lost", done.err)

    def test_valgrind_that_leaves_malloc_alone(self):
        if not shutil.which("valgrind"):
            self.skipTest("valgrind is not installed")
        done = self.shimmed("valgrind", "-q", "--soname-synonyms=somalloc=nouserintercepts",
                            f"--log-file={self.folder / 'log'}", self.program("family"),
                            environment={"CISTERN_REPORT": "stderr"})
        self.holds(done)
        self.assertRegex(done.err, r"\n  host ")


class Sanitizers(OwnerTest):
    # What each finds in programs/inspected.c.
    FINDS = {"thread": ("races", "races_and_ends", "reads_freed"), "leak": ("leaks",),
             "address": ("reads_freed", "leaks")}
    # AddressSanitizer's shared runtime ends every process that has a preload before it, unless it is told not to.
    SETTINGS = {"ASAN_OPTIONS": "verify_asan_link_order=0"}

    def build(self, compiler, sanitizer, *flags):
        """The program, or None where the compiler is missing or has no such runtime."""
        program = self.folder / "-".join([pathlib.Path(compiler).name, sanitizer, *flags]).replace("/", "_")
        command = [compiler, "-g", "-O1", "-w", f"-fsanitize={sanitizer}", *flags, SOURCES / "inspected.c",
                   "-o", program, "-pthread"]
        if not shutil.which(compiler):
            return None
        done = subprocess.run([str(word) for word in command], capture_output=True)
        return program if done.returncode == 0 else None

    def findings(self, text):
        return re.findall(r"(?:ERROR|WARNING|SUMMARY): (\w+Sanitizer: [a-z -]+|\w+Sanitizer: \d+ byte)", text)

    def check(self, program, sanitizer):
        for what in ("works", *self.FINDS[sanitizer]):
            plain = self.plain(program, what, environment=self.SETTINGS)
            shimmed = self.shimmed(program, what, environment=self.SETTINGS)
            about = f"{program} {what}\n{shimmed.err}"
            self.assertEqual((shimmed.out, shimmed.status), (plain.out, plain.status), about)
            self.assertEqual(self.findings(shimmed.err), self.findings(plain.err), about)
            if what == "works":
                self.assertEqual((plain.status, plain.err, shimmed.err), (0, "", ""))
            else:
                self.assertNotEqual(plain.status, 0)
                self.assertGreater(len(self.findings(plain.err)), 0, plain.err)
        if sanitizer != "thread":
            self.check_what_the_loader_allocates(program)

    def check_what_the_loader_allocates(self, program):
        """It is pardoned by who called malloc: nobody of ours may stand between."""
        for options in ({}, {"CISTERN": "off"}):
            done = self.same(program, "cancels", environment={**self.SETTINGS, **options})
            self.assertEqual(done.all(), ("cancels\n", "", 0), (program, options))

    def check_all(self, compiler, sanitizer, *ways):
        programs = [program for flags in ways if (program := self.build(compiler, sanitizer, *flags))]
        if not programs:
            self.skipTest(f"{compiler} is not installed, or has no {sanitizer} sanitizer")
        # Seen with kernels that randomise addresses widely: the runtime finds its own place taken.
        if self.plain(programs[0], "works", environment=self.SETTINGS).status != 0:
            self.skipTest(f"the {sanitizer} sanitizer does not run here")
        for program in programs:
            self.check(program, sanitizer)

    def test_gcc_thread(self):
        self.check_all("gcc", "thread", [], ["-static-libtsan"])

    def test_gcc_leak(self):
        self.check_all("gcc", "leak", [])

    def test_gcc_address(self):
        self.check_all("gcc", "address", [], ["-static-libasan"])

    def test_clang_thread(self):
        self.check_all("clang", "thread", [])

    def test_clang_leak(self):
        self.check_all("clang", "leak", [])

    def test_clang_address(self):
        runtime = []
        if shutil.which("clang"):
            path = subprocess.run(["clang", "-print-file-name=libclang_rt.asan-x86_64.so"], capture_output=True,
                                  text=True).stdout.strip()
            runtime = [["-shared-libasan", f"-Wl,-rpath,{os.path.dirname(path)}"]]
        self.check_all("clang", "address", [], *runtime)

    def test_it_is_said_who_serves(self):
        program = self.build("gcc", "thread")
        if not program:
            self.skipTest("gcc has no thread sanitizer")
        done = self.shimmed(program, environment={"CISTERN_REPORT": "stderr"})
        self.assertEqual((done.out, done.status), ("works\n", 0))
        self.assertRegex(done.err, ASIDE.format("libtsan"))


if __name__ == "__main__":
    host_tests.main()
