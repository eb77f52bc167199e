"""The side of libcistern.so that its process sees: its exports, its needs, its C library, its TLS."""
import argparse
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LAYER_FUNCTIONS = {"clGetLayerInfo", "clInitLayer"}
# By which copies that are linked into programs reach the shared object, and by which the Python package asks it.
INTERFACE = {"cistern_interface", "cistern_sees_program"}
# Not libm, which a small process would not load else: its look-ups at load time touch 300 KiB.
MAY_BE_NEEDED = re.compile(r"libc\.so\.6|ld-linux[-\w]*\.so\.\d")
# As an OpenCL layer the object is opened by dlopen, where glibc 2.36 has 1,712 bytes for all that come late: six copies
# fit, as the pages on preloading and on the library say.
TLS_BYTES_MAX = 272
ARGUMENTS = argparse.Namespace()

# Every exported row of the table, one name a line, whatever else the table holds.
ROWS = """
#define OPENCL_CALL(action, slot, result, name, parameters, arguments) ROW name
#define CUDA_DRIVER(action, base, version, stream, name, parameters, arguments) ROW name
#define CUDA_RUNTIME(action, name, parameters, arguments) ROW name
#define HOST_CALL(action, result, name, parameters, arguments) ROW name
#define PROCESS_CALL(name) ROW name
#include "shim/symbols/all.def"
"""


def output_of(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def rows_of_the_table():
    text = output_of(ARGUMENTS.compiler, "-E", "-P", "-x", "c++", "-I", str(ROOT), "-", input=ROWS)
    return set(re.findall(r"ROW (\w+)", text))


def functions_of_the_public_headers():
    text = "\n".join(header.read_text() for header in sorted((ROOT / "shim/include/cistern").glob("*.h")))
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    return set(re.findall(r"\b(cistern_\w+)\s*\(", text))


def readelf(what):
    return output_of(ARGUMENTS.tools + "readelf", what, str(ARGUMENTS.shim))


def dynamic_symbols(which):
    lines = output_of(ARGUMENTS.tools + "nm", "-D", which, str(ARGUMENTS.shim)).splitlines()
    return {line.split()[-1] for line in lines if line.strip()}


def version_node():
    """The C interface has that of the project, without the last part."""
    return "CISTERN_" + re.search(r"project\(cistern VERSION (\d+\.\d+)\.", (ROOT / "CMakeLists.txt").read_text())[1]


def version_tuple(text):
    return tuple(int(part) for part in text.split("."))


class Exports(unittest.TestCase):
    def test_exactly_the_table_the_layer_and_the_c_api(self):
        table = rows_of_the_table()
        self.assertIn("malloc", table)
        self.assertIn("clCreateBuffer", table)
        self.assertIn("cuMemAlloc_v2", table)
        self.assertIn("cudaMalloc", table)
        self.assertNotIn("cuMemRangeGetAttribute", table)
        expected = table | LAYER_FUNCTIONS | functions_of_the_public_headers() | INTERFACE
        exported = {name.split("@")[0] for name in dynamic_symbols("--defined-only")} - {version_node()}
        self.assertEqual(sorted(exported - expected), [], "exported without a row or a declaration")
        self.assertEqual(sorted(expected - exported), [], "listed or declared, but not exported")

    def test_no_symbol_of_a_header_only_library(self):
        # Two copies of these in one process have interposed each other.
        foreign = re.compile(r"spdlog|fmt|_ZNSt|_ZSt|_Unwind")
        self.assertEqual([name for name in dynamic_symbols("--defined-only") if foreign.search(name)], [])

    def test_the_c_interface_has_the_projects_version_and_nothing_else_has_one(self):
        # An unversioned definition satisfies every version that a program asks for.
        node = version_node()
        versioned = {name for name in dynamic_symbols("--defined-only") if "@" in name and not name.startswith(node)}
        interface = functions_of_the_public_headers() | INTERFACE
        self.assertEqual(sorted(versioned), sorted(f"{name}@@{node}" for name in interface))


class OwnCalls(unittest.TestCase):
    # Libraries that are linked in allocate by the program's malloc and free, whoever brings them.
    ALLOCATOR = re.compile(r"malloc|realloc|calloc|free|_Zn[wa]m|_Zd[la]Pvm?")

    def test_none_goes_through_an_export_of_ours(self):
        # A library that interposes it, ours first, takes our call for one of the program's.
        relocations = re.findall(r"^[0-9a-f]+ .* R_\w+ +[0-9a-f]+ +(\S+)", readelf("-rW"), re.M)
        called = {name.split("@")[0] for name in relocations}
        self.assertIn("dlvsym", called)
        own = {name for name in called & rows_of_the_table() if not self.ALLOCATOR.fullmatch(name)}
        self.assertEqual(sorted(own), [])


class Archive(unittest.TestCase):
    def test_exactly_the_public_header_and_none_of_it_is_exported_again(self):
        lines = output_of(ARGUMENTS.tools + "readelf", "-sW", str(ARGUMENTS.archive)).splitlines()
        rows = [line.split() for line in lines if re.search(r" (GLOBAL|WEAK|UNIQUE) ", line)]
        defined = {row[7]: row[5] for row in rows if row[6] != "UND"}
        self.assertEqual(sorted(defined), sorted(functions_of_the_public_headers()))
        self.assertEqual(set(defined.values()), {"HIDDEN"})


class Needs(unittest.TestCase):
    def test_only_libc_and_the_loader(self):
        dynamic = readelf("-dW")
        needed = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
        self.assertIn("libc.so.6", needed)
        self.assertEqual([name for name in needed if not MAY_BE_NEEDED.fullmatch(name)], [])
        self.assertNotRegex(dynamic, r"\((RPATH|RUNPATH)\)")

    def test_bound_at_load(self):
        self.assertRegex(readelf("-dW"), r"\bBIND_NOW\b|FLAGS_1\).*\bNOW\b")

    def test_c_library_not_newer_than_this_machine(self):
        versions = set(re.findall(r"@GLIBC_([\d.]+)", " ".join(dynamic_symbols("--undefined-only"))))
        self.assertTrue(versions)
        floor = max(versions, key=version_tuple)
        here = output_of("getconf", "GNU_LIBC_VERSION").split()[-1]
        print(f"glibc floor {floor}; built on {here}", file=sys.stderr)
        self.assertLessEqual(version_tuple(floor), version_tuple(here))


class ThreadLocalStorage(unittest.TestCase):
    def test_fits_the_reserve_of_a_process_that_opens_us_late(self):
        sizes = [int(line.split()[5], 16) for line in readelf("-lW").splitlines()
                 if line.split()[:1] == ["TLS"]]
        print(f"thread-local storage: {sum(sizes)} bytes", file=sys.stderr)
        self.assertLessEqual(len(sizes), 1)
        self.assertLessEqual(sum(sizes), TLS_BYTES_MAX)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--shim", type=pathlib.Path, required=True)
    parser.add_argument("--archive", type=pathlib.Path)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--tools", default="", help="prefix of nm and readelf, for an object of another machine")
    ARGUMENTS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
