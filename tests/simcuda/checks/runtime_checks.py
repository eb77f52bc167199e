"""The substitute runtime from outside: what it exports, and the look-ups that it makes when it starts."""
import os
import pathlib
import re
import subprocess
import sys
import unittest

SOURCES = pathlib.Path(__file__).resolve().parent.parent
HEADER, FOLDER = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])  # of CUDA; of the built libraries
DECLARED = re.compile(r"CUDARTAPI\s+(cuda\w+)\s*\(")
TWINS = re.compile(r"^#\s*define\s+(cuda\w+)\s+__CUDART_API_(PTDS|PTSZ)\(\1\)", re.MULTILINE)


def exported(library):
    """The names that a library defines, with their version nodes."""
    listing = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return {line.split()[2] for line in listing.splitlines() if line.split()[1] != "A"}


def declared(header):
    """Functions of the public header and their twins of the per-thread default stream."""
    names = set(DECLARED.findall(re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)))
    return names | {name + "_" + suffix.lower() for name, suffix in TWINS.findall(header)}


class Exports(unittest.TestCase):
    def test_every_declared_function_is_exported_under_the_version_node(self):
        names = declared((HEADER / "cuda_runtime_api.h").read_text())
        self.assertGreater(len(names), 300)
        for major in (12, 13):
            found = exported(FOLDER / str(major) / f"libcudart.so.{major}")
            self.assertEqual(names - {name.split("@")[0] for name in found}, set(), f"missing from runtime {major}")
            self.assertEqual([name for name in found if not name.endswith(f"@@libcudart.so.{major}")], [])
            self.assertEqual([name for name in found if not name.startswith(("cuda", "__cuda"))], [])

    def test_the_archive_exports_nothing_from_a_program(self):
        self.assertEqual([name for name in exported(FOLDER / "checks/runtime_end") if "cuda" in name], [])

    def test_the_versions_are_those_of_the_sonames(self):
        for major in (12, 13):
            library = FOLDER / str(major) / f"libcudart.so.{major}"
            code = ("import ctypes, sys; v = ctypes.c_int(); "
                    "ctypes.CDLL(sys.argv[1]).cudaRuntimeGetVersion(ctypes.byref(v)); print(v.value)")
            shown = subprocess.run([sys.executable, "-c", code, library], capture_output=True, text=True, check=True)
            self.assertEqual(shown.stdout.strip(), {12: "12090", 13: "13000"}[major])


class LookUps(unittest.TestCase):
    def setUp(self):
        environment = dict(os.environ, LD_LIBRARY_PATH=f"{FOLDER / 'recording'}:{FOLDER / '13'}")
        self.made = subprocess.run([FOLDER / "checks/runtime_lookups"], env=environment, capture_output=True, text=True)

    def test_rows_and_their_order_are_those_of_nvidias_runtime(self):
        self.assertEqual(self.made.returncode, 0, "a missing driver function must be answered with an error of its own")
        wanted = (SOURCES / "driver-lookups.txt").read_text().splitlines()
        # The recorder writes the empty first name as nothing before the blank.
        shown = [re.sub(r"^ ", "", line) for line in self.made.stdout.splitlines()]
        self.assertEqual(len(shown), 440)
        self.assertEqual(shown, [line.strip() for line in wanted])

    def test_the_query_given_out_serves_the_rest(self):
        ways = [line.rsplit(": ", 1)[1] for line in self.made.stderr.splitlines()]
        self.assertEqual(ways, ["exported"] * 4 + ["through itself"] * 436)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
