"""The packages that scripts/packaging/build makes of a build that is there: which C library they need, what they hold,
and that the wheel works where it is installed. --build FOLDER --arch ARCHITECTURE; the rest is unittest's."""
import argparse
import base64
import csv
import hashlib
import io
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
C_LIBRARY_MAX = (2, 28)
MAY_BE_NEEDED = re.compile(r"libc\.so\.6|libm\.so\.6|ld-linux[-\w]*\.so\.\d")
DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
ARGUMENTS = argparse.Namespace()


def done(*command, **environment):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CISTERN_", "LD_"))}
    it = subprocess.run(list(map(str, command)), env=clean | environment, capture_output=True, text=True, timeout=250)
    assert it.returncode == 0, f"{command}: {it.returncode}\n{it.stdout[-2000:]}\n{it.stderr[-2000:]}"
    return it


def version():
    return re.search(r"^project\(cistern VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(), re.M)[1]


def version_tuple(text):
    return tuple(int(part) for part in text.split("."))


class Packages(unittest.TestCase):
    """Made anew for each class."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.made = cls.folder / "made"
        cls.build(cls.made)

    @classmethod
    def build(cls, out):
        done(sys.executable, ROOT / "scripts/packaging/build", "--arch", ARGUMENTS.arch, "--from", ARGUMENTS.build, out)

    def one(self, pattern):
        found = list(self.made.glob(pattern))
        self.assertEqual(len(found), 1, found)
        return found[0]


class Symbols(unittest.TestCase):
    """As auditwheel looks at them."""

    def needed_versions(self, library):
        return {version_tuple(found) for found in re.findall(
            r"Name: GLIBC_([\d.]+)", done("readelf", "-VW", ARGUMENTS.build / library).stdout)}

    def libraries(self):
        return ["libcistern.so", "libcistern-shared.so"]

    def test_the_command_runs_on_the_oldest_system(self):
        self.assertLessEqual(max(self.needed_versions("cistern")), C_LIBRARY_MAX)
        needed = re.findall(r"\(NEEDED\).*\[(.+)\]", done("readelf", "-dW", ARGUMENTS.build / "cistern").stdout)
        # Before glibc 2.34 the functions for threads have a library of their own.
        self.assertEqual([name for name in {*needed} - {"libpthread.so.0"} if not MAY_BE_NEEDED.fullmatch(name)], [])

    def test_no_symbol_is_newer_than_the_oldest_system(self):
        for library in self.libraries():
            versions = self.needed_versions(library)
            self.assertTrue(versions)
            self.assertLessEqual(max(versions), C_LIBRARY_MAX, library)

    def test_nothing_private_to_the_c_library(self):
        for library in self.libraries():
            self.assertNotIn("GLIBC_PRIVATE", done("readelf", "-VW", ARGUMENTS.build / library).stdout)

    def test_what_has_no_version_may_be_missing(self):
        # Undefined symbols without a version, all of which a process can be without.
        for library in self.libraries():
            lines = done("nm", "-D", "--undefined-only", ARGUMENTS.build / library).stdout.splitlines()
            without = {line.split()[-1]: line.split()[-2] for line in lines if "@" not in line}
            self.assertIn("_dl_find_object", without)
            self.assertEqual({name: kind for name, kind in without.items() if kind not in "wv"}, {}, library)

    def test_nothing_but_the_c_library_is_needed(self):
        for library in self.libraries():
            needed = re.findall(r"\(NEEDED\).*\[(.+)\]", done("readelf", "-dW", ARGUMENTS.build / library).stdout)
            self.assertIn("libc.so.6", needed)
            self.assertEqual([name for name in needed if not MAY_BE_NEEDED.fullmatch(name)], [], library)

    def test_the_machine_s_own_functions_serve_where_it_has_them(self):
        # A weak reference by a name that is not the function's would never be filled in.
        for library in self.libraries():
            for line in done("nm", "-D", "--undefined-only", ARGUMENTS.build / library).stdout.splitlines():
                self.assertNotRegex(line, "__real_|__wrap_")


class Contents(Packages):
    def test_the_wheel_says_what_it_holds(self):
        path = self.one("*.whl")
        self.assertEqual(path.name, f"libcistern-{version()}-py3-none-manylinux_2_28_{ARGUMENTS.arch}.whl")
        with zipfile.ZipFile(path) as wheel:
            info = f"libcistern-{version()}.dist-info/"
            rows = list(csv.reader(io.StringIO(wheel.read(info + "RECORD").decode())))
            self.assertEqual(sorted(row[0] for row in rows), sorted(wheel.namelist()))
            for name, digest, size in rows:
                if name == info + "RECORD":
                    continue
                content = wheel.read(name)
                self.assertEqual(int(size), len(content), name)
                self.assertEqual(digest, "sha256=" + base64.urlsafe_b64encode(
                    hashlib.sha256(content).digest()).rstrip(b"=").decode(), name)
            self.assertIn("libcistern/libcistern.so", wheel.namelist())
            self.assertIn("libcistern/__init__.py", wheel.namelist())
            self.assertIn(f"\nVersion: {version()}\n", wheel.read(info + "METADATA").decode())

    def test_debian_packages(self):
        expected = {"cistern": ["usr/bin/cistern", "usr/lib/cistern/libcistern.so", "usr/share/doc/cistern/README.md"],
                    "libcistern-dev": ["usr/include/cistern/cistern.h", "usr/lib/libcistern-static.a",
                                       "usr/lib/libcistern-shared.so", "usr/lib/cmake/cistern/cisternConfig.cmake",
                                       "usr/lib/pkgconfig/cistern.pc"]}
        files = {}
        for name, wanted in expected.items():
            path = self.one(f"{name}_*.deb")
            self.assertEqual(path.name, f"{name}_{version()}_{DEBIAN[ARGUMENTS.arch]}.deb")
            listed = done("dpkg-deb", "-c", path).stdout.splitlines()
            self.assertEqual({line.split()[1] for line in listed}, {"root/root"})
            files[name] = {line.split()[5][2:] for line in listed if not line.startswith("d")}
            self.assertEqual([file for file in wanted if file not in files[name]], [])
            self.assertRegex(done("dpkg-deb", "-f", path, "Depends").stdout, r"libc6 \(>= 2\.28\)")
        self.assertEqual(files["cistern"] & files["libcistern-dev"], set())

    def test_all_hold_the_terms_of_what_is_linked_in(self):
        notices = (ROOT / "THIRD-PARTY").read_text()
        for part in ("rust-demangle.c", "cp-demangle.c", "libbacktrace", "fmt", "spdlog", "libstdc++", "CLI11",
                     "nlohmann-json"):
            self.assertRegex(notices, rf"(?m)^-+\n{re.escape(part)}[ :]")
        with zipfile.ZipFile(self.one("*.whl")) as wheel:
            info = f"libcistern-{version()}.dist-info/"
            self.assertEqual(wheel.read(info + "THIRD-PARTY").decode(), notices)
            self.assertIn("\nLicense-File: THIRD-PARTY\n", wheel.read(info + "METADATA").decode())
        with tarfile.open(self.one("*.tar.gz")) as archive:
            name = f"cistern-{version()}-linux-{ARGUMENTS.arch}/share/doc/cistern/THIRD-PARTY"
            self.assertEqual(archive.extractfile(name).read().decode(), notices)
        for name in ("cistern", "libcistern-dev"):
            root = self.folder / f"terms-{name}"
            done("dpkg-deb", "-x", self.one(f"{name}_*.deb"), root)
            text = (root / "usr/share/doc" / name / "copyright").read_text()
            self.assertTrue(text.startswith("MIT License") and text.endswith(notices), name)

    def test_programs_link_with_it_also_wholly_statically(self):
        done("dpkg-deb", "-x", self.one("libcistern-dev_*.deb"), self.folder / "root")
        libraries = self.folder / "root/usr/lib"
        for way in ([libraries / "libcistern-shared.so", f"-Wl,-rpath,{libraries}"],
                    [libraries / "libcistern-static.a", "-lm"], [libraries / "libcistern-static.a", "-lm", "-static"]):
            program = self.folder / "consumer"
            done("cc", "-I", self.folder / "root/usr/include", HERE / "programs/consumer.c", *way, "-o", program)
            self.assertEqual(done(program).stdout, f"consumed {version()}\n")

    def test_the_tarball_has_one_folder(self):
        with tarfile.open(self.one("*.tar.gz")) as archive:
            members = archive.getmembers()
        self.assertEqual({member.name.split("/")[0] for member in members},
                         {f"cistern-{version()}-linux-{ARGUMENTS.arch}"})
        self.assertEqual({(member.uid, member.gid, member.uname) for member in members}, {(0, 0, "root")})
        names = {member.name.partition("/")[2] for member in members}
        self.assertLessEqual({"bin/cistern", "lib/cistern/libcistern.so", "include/cistern/cistern.h"}, names)

    def test_no_folder_of_this_machine_is_in_it(self):
        with zipfile.ZipFile(self.one("*.whl")) as wheel:
            self.assertNotIn(str(ROOT).encode() + b"/build", wheel.read("libcistern/libcistern.so"))

    def test_the_digests_are_theirs(self):
        lines = [line.split("  ") for line in (self.made / "SHA256SUMS").read_text().splitlines()]
        self.assertEqual(sorted(name for _, name in lines),
                         sorted(path.name for path in self.made.iterdir() if path.name != "SHA256SUMS"))
        for digest, name in lines:
            self.assertEqual(digest, hashlib.sha256((self.made / name).read_bytes()).hexdigest(), name)

    def test_made_again_they_have_the_same_bytes(self):
        again = self.folder / "again"
        self.build(again)
        self.assertEqual((again / "SHA256SUMS").read_text(), (self.made / "SHA256SUMS").read_text())


class Wheel(Packages):
    def test_installed_it_serves_python(self):
        environment = self.folder / "environment"
        done(sys.executable, "-m", "venv", environment)
        python = environment / "bin/python"
        done(python, "-m", "pip", "install", "--no-index", "--disable-pip-version-check", self.one("*.whl"))
        path = done(python, "-c", "import libcistern; print(libcistern.library_path())").stdout.strip()
        self.assertTrue(pathlib.Path(path).is_relative_to(environment.resolve()), path)
        for command in ([environment / "bin/cistern"], [python, "-m", "libcistern"]):
            self.assertEqual(done(*command, "path").stdout, path + "\n")
        ran = done(environment / "bin/cistern", "run", "-o", self.folder / "run", "--", python, "-c", "print(6 * 7)")
        self.assertEqual(ran.stdout, "42\n")
        self.assertEqual(ran.stderr.splitlines()[0], "cistern: no GPU memory was used")
        self.assertEqual(len([*(self.folder / "run").glob("*.json")]), 1)
        self.assertEqual(done(python, "-c", "import importlib.metadata as m; print([p.value for p in m.entry_points("
                              "group='pytest11') if p.name == 'cistern'])").stdout, "['libcistern.pytest_plugin']\n")
        it = done(python, "-c", "print(6 * 7)", LD_PRELOAD=path, CISTERN_REPORT="stderr")
        self.assertEqual(it.stdout, "42\n")
        self.assertRegex(it.stderr, rf"^cistern {re.escape(version())} ")
        self.assertIn("VERDICT", it.stderr)
        self.assertIn(f"cistern {version()}", done(path).stdout)
        done(python, "-m", "pip", "uninstall", "--yes", "--disable-pip-version-check", "libcistern")
        self.assertEqual([*environment.rglob("*cistern*")], [])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--arch", required=True)
    ARGUMENTS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
