"""The packages, installed as a new user would in bare roots of other systems, and their first examples. They are taken
from build/packages, where long.packaging.builds leaves them."""
import pathlib
import re
import shutil
import unittest

import roots

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = roots.ROOT / "build" / "packages" / "x86_64"
PRELOAD = "/usr/lib/cistern/libcistern.so"
EXAMPLES = (["ls", "/"], ["perl", "-e", "print 6 * 7"], ["python3", "-c", "print(6 * 7)"],
            ["python3", "-c", "import threading as t; x = t.Thread(target=print, args=(42,)); x.start(); x.join()"],
            ["python3", "-c", "import sqlite3, ssl, ctypes; print(sqlite3.connect(':memory:').execute('select 42')"
                              ".fetchall())"],
            ["sh", "-c", "echo forked | cat"])


def version():
    return re.search(r"^project\(cistern VERSION (\S+)", (roots.ROOT / "CMakeLists.txt").read_text(), re.M)[1]


class System:
    """Of each system; classes below."""
    name = None

    @classmethod
    def setUpClass(cls):
        if not list(PACKAGES.glob("*.deb")):
            raise unittest.SkipTest("there are no packages in build/packages: long.packaging.builds makes them")
        try:
            cls.root = roots.make(cls.name, ["python3", "perl-base", "gcc", "libc6-dev", "pkg-config"])
        except roots.Unavailable as reason:
            raise unittest.SkipTest(str(reason)) from None

    def run_in(self, *command, **environment):
        return roots.run(self.root, *command, shown=[(PACKAGES, "/packages"), (HERE / "programs", "/programs")],
                         **environment)

    def done(self, *command, **environment):
        it = self.run_in(*command, **environment)
        self.assertEqual(it.returncode, 0, f"{command}\n{it.stdout[-2000:]}\n{it.stderr[-2000:]}")
        return it

    def package(self, pattern):
        (found,) = PACKAGES.glob(pattern)
        return "/packages/" + found.name

    def check_examples(self, library):
        for example in EXAMPLES:
            with self.subTest(example=example):
                plain = self.run_in(*example)
                shimmed = self.run_in(*example, LD_PRELOAD=library, CISTERN_REPORT="stderr")
                self.assertEqual((shimmed.stdout, shimmed.returncode), (plain.stdout, plain.returncode), shimmed.stderr)
                self.assertIn("VERDICT", shimmed.stderr)
        it = self.done("python3", "-c", "keep = [bytearray(100000) for _ in range(100)]; print(len(keep))",
                       LD_PRELOAD=library, CISTERN_REPORT="stderr", CISTERN_SITES="all")
        self.assertIn("LIVE HOST MEMORY BY SITE", it.stderr)
        self.assertIn(f"cistern {version()}", self.done(library).stdout)

    def test_debian_packages(self):
        self.done("dpkg", "-i", self.package("cistern_*.deb"), self.package("libcistern-dev_*.deb"))
        try:
            self.check_examples(PRELOAD)
            for package in ("cistern", "cistern-static"):
                flags = self.done("pkg-config", "--cflags", "--libs", package).stdout.split()
                self.done("gcc", "-o", "/tmp/consumer", "/programs/consumer.c", *flags)
                self.assertEqual(self.done("/tmp/consumer").stdout, f"consumed {version()}\n")
            # Another version may come while a program runs, which keeps what it has mapped.
            self.done("sh", "-c", f"env LD_PRELOAD={PRELOAD} CISTERN_REPORT=/tmp/running python3 -c "
                                  "'import time; open(\"/tmp/started\", \"w\"); time.sleep(5)' & program=$!\n"
                                  "until [ -e /tmp/started ]; do sleep .1; done; rm /tmp/started\n"
                                  f"dpkg -i {self.package('cistern_*.deb')} && wait $program")
            running = self.root / "tmp/running"
            self.assertIn("VERDICT", running.read_text())
            running.unlink()
        finally:
            self.done("dpkg", "-P", "cistern", "libcistern-dev")
        left = self.done("find", "/usr", "/etc", "/var/lib/dpkg", "-name", "*cistern*").stdout
        self.assertEqual(left, "")

    def test_the_tarball(self):
        shutil.rmtree(self.root / "opt/unpacked", ignore_errors=True)
        (self.root / "opt/unpacked").mkdir(parents=True)
        self.done("tar", "-xzf", self.package("*.tar.gz"), "-C", "/opt/unpacked", "--strip-components=1")
        self.check_examples("/opt/unpacked/lib/cistern/libcistern.so")

    def test_the_wheel_unpacked(self):
        shutil.rmtree(self.root / "opt/wheel", ignore_errors=True)
        self.done("python3", "-m", "zipfile", "-e", self.package("*.whl"), "/opt/wheel")
        it = self.done("python3", "-c", "import sys; print(sys.version_info >= (3, 8))")
        library = "/opt/wheel/libcistern/libcistern.so"
        if it.stdout == "True\n":
            found = self.done("python3", "-c", "import libcistern; print(libcistern.library_path())",
                              PYTHONPATH="/opt/wheel").stdout.strip()
            self.assertEqual(found, library)
        (self.root / library.lstrip("/")).chmod(0o755)  # zipfile drops modes, which pip keeps
        self.check_examples(library)


class Bullseye(System, unittest.TestCase):
    name = "bullseye"


class Bookworm(System, unittest.TestCase):
    name = "bookworm"


class Trixie(System, unittest.TestCase):
    name = "trixie"


class Focal(System, unittest.TestCase):
    name = "focal"


class Jammy(System, unittest.TestCase):
    name = "jammy"


class Noble(System, unittest.TestCase):
    name = "noble"


class Bionic(System, unittest.TestCase):
    """Older than promised: the package says so in a line, and the object itself works."""
    name = "bionic"

    def test_debian_packages(self):
        it = self.run_in("dpkg", "-i", self.package("cistern_*.deb"))
        try:
            self.assertNotEqual(it.returncode, 0)
            self.assertIn("cistern depends on libc6 (>= 2.28)", it.stderr)
        finally:
            self.run_in("dpkg", "-r", "cistern")


if __name__ == "__main__":
    unittest.main(verbosity=2)
