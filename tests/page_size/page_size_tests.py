"""Programs as on a system with pages of 16 or 64 KiB (larger_pages.cpp): they do the same, leaks are judged as well,
and no call of the library's names a part of a page."""
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "host"), str(HERE.parent / "leaks")]
import host_tests  # noqa: E402
import leaks_tests  # noqa: E402
from host_tests import ARGUMENTS, HostTest, Run  # noqa: E402

KIB = 1024
PAGES = (16 * KIB, 64 * KIB)
NO_PTRACE = 77


def of_folder(name):
    return ARGUMENTS.programs.parent.parent / name


class OnLargerPages:
    """Mixed into a class of tests: what they run preloaded runs on pages of `page` bytes."""
    page = PAGES[-1]

    def run_on_larger_pages(self, library, findings, *command, environment=None, **more):
        runner = ARGUMENTS.programs / "larger_pages"
        return Run([runner, library, self.page, findings, *command], environment or {}, (), **more)

    def on_larger_pages(self, library, *command, **more):
        """The run, and which calls of that library were seen how often."""
        findings = self.folder / f"findings-{len(list(self.folder.iterdir()))}"
        done = self.run_on_larger_pages(library, findings, *command, **more)
        if done.status == NO_PTRACE:
            self.skipTest(done.err.strip())
        lines = findings.read_text().splitlines()
        self.assertEqual([line for line in lines if not line.startswith("seen: ")], [], command)
        return done, {call: int(times) for call, times in (line[6:].rsplit(" ", 1) for line in lines)}

    def shimmed(self, *command, preload=(), **more):
        preloaded = ":".join(map(str, [ARGUMENTS.shim, *preload]))
        done, seen = self.on_larger_pages(ARGUMENTS.shim, "env", f"LD_PRELOAD={preloaded}", *command, **more)
        self.assertGreater(seen.get("mmap", 0), 0, "the calls were not seen")
        return done


class Judging(OnLargerPages, leaks_tests.GroundTruth):
    def program(self, name):
        return of_folder("leaks") / "programs" / name

    # Threads that are traced wait in other places, so that some dead frames count; with pages of 4 KiB too.
    test_what_other_threads_have = None


class Programs(OnLargerPages, HostTest):
    def holds(self, name, *arguments, **more):
        for self.page in PAGES:
            with self.subTest(name=name, arguments=arguments, page=self.page):
                done = self.same(of_folder("malloc") / "programs" / name, *arguments, **more)
                self.assertEqual((done.err, done.status), ("", 0), done.out)

    def test_small_and_large_blocks_in_threads(self):
        self.holds("model", 1, 20000, 1)
        self.holds("model", 8, 20000, 2)
        self.holds("model", 2, 20000, 3, environment={"CISTERN_SITES": "all"})

    def test_alignment(self):
        self.holds("alignment", 1)

    def test_usable_sizes(self):
        self.holds("queries")

    def test_memory_is_unmapped_where_it_is_scarce(self):
        self.holds("limits", "data", 60, "run_in_thread")
        self.holds("limits", "as", 60, "run")

    def test_children(self):
        self.same("sh", "-c", "/bin/true; (exit 3); ls / | wc -l", environment={"CISTERN_SITES": "all"})


class Library(OnLargerPages, HostTest):
    """Programs that the library is linked into, with the simulated driver where there is one."""

    def holds(self, name, tests="*"):
        for self.page in PAGES:
            with self.subTest(page=self.page):
                program = of_folder("library") / f"library_{name}_test"
                done, seen = self.on_larger_pages(program, program, f"--gtest_filter={tests}",
                                                  environment={"LD_LIBRARY_PATH": os.environ.get("SIMULATOR", "")})
                self.assertEqual(done.status, 0, done.out + done.err)
                self.assertGreater(seen.get("mmap", 0), 0, "the calls were not seen")

    def test_shared_memory(self):
        self.holds("shared")

    def test_copies_of_pageable_memory(self):
        self.holds("transfers")

    def test_mapped_files(self):
        self.holds("mapped", "*IsMadeAndExtended/Device:*ReadOnlyIsReadOnly/Device:*TruncatedMeanwhile/Device")

    def test_memory_of_both_sides(self):
        self.holds("unified", "*PartsMoveAlone/Device:*WrapsTheProgramsMemory/Device:*MemoryGoesWithItsSide/Device")


class Runner(OnLargerPages, HostTest):
    """Without these the tests above might hold because the runner sees nothing."""

    def test_parts_of_pages_are_refused(self):
        program = ARGUMENTS.programs / "careless"
        findings = self.folder / "findings"
        done = self.run_on_larger_pages(program, findings, program)
        if done.status == NO_PTRACE:
            self.skipTest(done.err.strip())
        calls = ["madvise", "mprotect", "mincore", "mremap", "munmap"]
        self.assertEqual(done.out, "pages of 65536, first 0 bytes behind one\nresident: 1 1 7\n")
        self.assertEqual(done.err.splitlines(), [f"{call}: Invalid argument" for call in calls])
        self.assertEqual(done.status, 0)
        lines = findings.read_text().splitlines()
        for line, call in zip(lines, calls):
            self.assertRegex(line, rf"^{call}: 0x\w+8000 is no multiple of 65536$")
        self.assertEqual(lines[5:], [f"seen: {call} {times}" for call, times in
                                     (("madvise", 2), ("mincore", 2), ("mmap", 1), ("mprotect", 2), ("mremap", 2),
                                      ("mremap, to", 2), ("munmap", 2))])

    def test_the_status_is_the_programs(self):
        for number, (command, status) in enumerate((("exit 5", 5), ("kill -9 $$", 137))):
            done = self.run_on_larger_pages("none", self.folder / str(number), "sh", "-c", command)
            self.assertIn(done.status, (status, NO_PTRACE))


if __name__ == "__main__":
    host_tests.main()
