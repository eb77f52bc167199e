"""Libraries that nobody here wrote and that stand before functions which Cistern calls: libfaketime, fakechroot, and
libucm, which tells fabrics when memory is unmapped. With Cistern before and behind them programs do what they do with
them alone. UCX under Open MPI is one of the long tests."""
import os
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "host"))
import host_tests  # noqa: E402
from host_tests import ARGUMENTS, HostTest  # noqa: E402

PYTHON_THREADS = """
import subprocess, threading, time
def work():
    for size in (1, 1000, 100000, 1 << 20, 40 << 20):
        bytearray(size)
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(time.gmtime().tm_year, subprocess.run(["date", "-u", "+%Y"], capture_output=True, text=True).stdout)
"""
NEW_ROOT = """
import os, sys
os.chroot(sys.argv[1])
print(open("/greeting").read(), os.readlink("/link"), sorted(os.listdir("/")))
"""


def installed(*names):
    """The path of the first of these that is there, in the folders of this machine's libraries."""
    folders = [pathlib.Path("/usr/lib") / f"{os.uname().machine}-linux-gnu", pathlib.Path("/usr/lib")]
    return next((folder / name for name in names for folder in folders if (folder / name).exists()), None)


class InterposerTest(HostTest):
    def same_beside(self, library, *command, reports=True, **environment):
        """What a program prints with the library alone, which is what it prints with Cistern before and behind it."""
        alone = self.plain(*command, preload=[library], environment=environment)
        self.assertEqual((alone.err, alone.status), ("", 0))
        for order in ([ARGUMENTS.shim, library], [library, ARGUMENTS.shim]):
            for every_site in (False, True):
                with self.subTest(order=[path.name for path in order], command=command, every_site=every_site):
                    with tempfile.TemporaryDirectory() as folder:
                        options = {"CISTERN_SITES": "all"} if every_site else {}
                        if every_site and reports:
                            options["CISTERN_REPORT"] = f"{folder}/%p"
                        ours = self.plain(*command, preload=order, environment={**environment, **options})
                        self.assertEqual(ours.all(), alone.all())
                        self.assertEqual(bool(os.listdir(folder)), every_site and reports)
        return alone.out


class Faketime(InterposerTest):
    LIBRARIES = ("faketime/libfaketime.so.1", "faketime/libfaketimeMT.so.1")

    def setUp(self):
        super().setUp()
        self.libraries = [path for name in self.LIBRARIES if (path := installed(name))]
        if not self.libraries:
            self.skipTest("libfaketime is not installed: scripts/setup")

    def test_programs_live_in_another_year(self):
        for library in self.libraries:
            wished = {"FAKETIME": "2020-06-01 00:00:00", "FAKETIME_DONT_RESET": "1"}
            self.assertEqual(self.same_beside(library, "/bin/true", **wished), "")
            self.assertEqual(self.same_beside(library, "date", "-u", "+%Y", **wished), "2020\n")
            self.assertEqual(self.same_beside(library, "/usr/bin/python3", "-c", PYTHON_THREADS, **wished),
                             "2020 2020\n\n")
            self.assertIn("every block whole", self.same_beside(library, self.program("threads"), 200, 4, **wished))

    def test_its_own_launcher(self):
        if not shutil.which("faketime"):
            self.skipTest("faketime is not installed: scripts/setup")
        self.assertEqual(self.same("faketime", "2020-01-01", "/bin/true").status, 0)
        self.assertEqual(self.same("faketime", "2020-01-01", "date", "+%Y").out, "2020\n")


class Fakechroot(InterposerTest):
    def setUp(self):
        super().setUp()
        self.library = installed("fakechroot/libfakechroot.so")
        if not self.library:
            self.skipTest("fakechroot is not installed: scripts/setup")

    def test_programs_live_in_another_root(self):
        root = self.folder / "root"
        root.mkdir()
        (root / "greeting").write_text("hello")
        (root / "link").symlink_to("greeting")
        # No report: in that root its file would be elsewhere.
        printed = self.same_beside(self.library, "/usr/bin/python3", "-c", NEW_ROOT, root, reports=False,
                                   FAKECHROOT="true")
        self.assertEqual(printed, "hello greeting ['greeting', 'link']\n")

    def test_programs_without_one(self):
        self.assertEqual(self.same_beside(self.library, "/bin/true", FAKECHROOT="true"), "")
        self.assertIn("every block whole",
                      self.same_beside(self.library, self.program("threads"), 200, 4, FAKECHROOT="true"))


class MemoryHooks(HostTest):
    def setUp(self):
        super().setUp()
        if not self.program("unmap_events").exists():
            self.skipTest("libucm's headers are not installed: scripts/setup")

    def test_a_lock_that_the_unmap_handler_and_allocating_code_share(self):
        for options in ({}, {"CISTERN_SITES": "all"}):
            done = self.same(self.program("unmap_events"), 1000, environment=options)
            self.assertEqual(done.out, "all rounds, and unmappings were announced\n")


class Ends(HostTest):
    def test_a_report_on_a_stack_of_its_own(self):
        library = pathlib.Path(ARGUMENTS.programs) / "libguarded.so"
        for way, status in (("exit", 0), ("signal", -15)):
            for sites in ("all", "gpu"):
                with self.subTest(way=way, sites=sites), tempfile.TemporaryDirectory() as folder:
                    done = self.plain(self.program("ends"), way, preload=[library, ARGUMENTS.shim],
                                      environment={"CISTERN_SITES": sites, "CISTERN_REPORT": f"{folder}/%p"})
                    self.assertEqual((done.out, done.err, done.status), ("", "", status))
                    self.assertEqual(len(os.listdir(folder)), 1)


class Ucx(HostTest):
    def test_two_ranks_exchange_buffers(self):
        if not self.program("exchange").exists():
            self.skipTest("no MPI (libopenmpi-dev)")
        ucx = ["--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any"]
        as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        if self.plain("mpirun", "--oversubscribe", "-n", 2, *ucx, "true", environment=as_root).status or \
                not installed("libucp.so.0"):
            self.skipTest("Open MPI cannot start ranks with UCX here")
        for options in ({}, {"CISTERN_SITES": "all"}, {"CISTERN_REPORT": str(self.folder / "%r-%p")}):
            exports = [word for name in ("LD_PRELOAD", *options) for word in ("-x", name)]
            results = []
            for preloaded in (False, True):
                settings = {**as_root, **(options | {"LD_PRELOAD": str(ARGUMENTS.shim)} if preloaded else {})}
                done = self.plain("mpirun", "--oversubscribe", "-n", 2, *ucx, *(exports if preloaded else []),
                                  self.program("exchange"), 60, environment=settings)
                results.append((done.out, done.status))
            self.assertEqual(results, [("60 rounds, every buffer whole\n", 0)] * 2, options)


if __name__ == "__main__":
    host_tests.main()
