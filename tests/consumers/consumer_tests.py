"""The library as its users have it: installed, found by CMake and by pkg-config or built along, linked into programs
and plugins, in processes with and without the preloaded object."""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
COMPILERS = [(c, cxx) for c, cxx in (("gcc", "g++"), ("gcc-13", "g++-13"), ("clang-14", "clang++-14"),
                                     ("clang-19", "clang++-19")) if shutil.which(cxx)]
PROGRAMS = [f"program_{library}{standard}" for library in ("cistern", "shared") for standard in ("", "_17", "_20")]
MAY_BE_NEEDED = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6", "ld-linux-x86-64.so.2",
                 "ld-linux-aarch64.so.1", "libcistern-shared.so.0"}
ARGUMENTS = argparse.Namespace()


def run(*command, **environment):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CISTERN_", "LD_"))}
    return subprocess.run(list(map(str, command)), env=clean | {k: str(v) for k, v in environment.items()},
                          capture_output=True, text=True, timeout=800)


def done(*command, **environment):
    it = run(*command, **environment)
    assert it.returncode == 0, f"{command}: {it.returncode}\n{it.stdout[-3000:]}\n{it.stderr[-3000:]}"
    return it.stdout


class Consumers(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.prefix = cls.folder / "prefix"
        done(ARGUMENTS.cmake, "--install", ARGUMENTS.build, "--prefix", cls.prefix)
        cls.library_folder = next(cls.prefix.rglob("libcistern-static.a")).parent
        cls.shim = cls.library_folder / "cistern" / "libcistern.so"

    def built(self, name, compilers=COMPILERS[0], **options):
        """The folder with the consumers' programs."""
        build = self.folder / name
        options.setdefault("CMAKE_PREFIX_PATH", self.prefix)
        done(ARGUMENTS.cmake, "-G", "Ninja", "-S", HERE / "project", "-B", build, f"-DCMAKE_C_COMPILER={compilers[0]}",
             f"-DCMAKE_CXX_COMPILER={compilers[1]}", *(f"-D{key}={value}" for key, value in options.items()))
        done(ARGUMENTS.cmake, "--build", build, "-j2")
        return build

    def both_ways(self, *command):
        """What it printed without the preloaded object, and with it; and the reports of each."""
        printed, reports = [], []
        for way in ({}, {"LD_PRELOAD": self.shim}):
            with tempfile.TemporaryDirectory() as folder:
                printed.append(done(*command, CISTERN_SITES="all", CISTERN_REPORT=f"{folder}/report.json",
                                    CISTERN_REPORT_FORMAT="json", **way))
                reports.append([json.loads(path.read_text()) for path in pathlib.Path(folder).iterdir()])
        return printed, reports

    def check_programs(self, build):
        for name in PROGRAMS:
            with self.subTest(program=name):
                (alone, under), (reports, reports_under) = self.both_ways(build / name)
                self.assertEqual(alone, under)
                self.assertRegex(alone, r"^3 allocations, 1 frees, 2 live, twice told, inside told\n$"
                                 if not name.endswith(("17", "20")) else r"^2 allocations, 1 frees\n$")
                self.assertEqual((len(reports), len(reports_under)), (1, 1))
                if name.endswith(("17", "20")):
                    continue
                for report in (*reports, *reports_under):
                    rows = [row for row in report["leaks"] if row["frames"][0].get("function") == "leave_behind"]
                    self.assertEqual([(row["blocks"], row["frames"][1]["function"]) for row in rows], [(1, "main")])

    def check_plugins(self, build):
        plugins = (build / "libplugin_one.so", build / "libplugin_other.so")
        (alone, under), (reports, reports_under) = self.both_ways(build / "loader", *plugins)
        self.assertEqual(alone, "two instances, told, kept mapped, counted\n")
        self.assertEqual(under, "one instance, told, unmapped, counted\n")
        self.assertEqual((len(reports), len(reports_under)), (2, 1))


class Installed(Consumers):
    def test_with_each_compiler(self):
        for compilers in COMPILERS:
            with self.subTest(compilers=compilers):
                build = self.built(compilers[1], compilers)
                self.check_programs(build)
                self.check_plugins(build)

    def test_in_the_debug_configuration(self):
        build = self.built("debug", CMAKE_BUILD_TYPE="Debug")
        self.check_programs(build)
        self.check_plugins(build)

    def test_sites_begin_in_the_program_without_symbols_too(self):
        build = self.built("stripped")
        names = ("program_cistern", "program_shared", "libplugin_one.so")
        done("strip", *(build / name for name in names), build / "libplugin_other.so")
        for command, module in (((names[0],), names[0]), ((names[1],), names[1]),
                                (("loader", build / names[2], build / "libplugin_other.so"), names[2])):
            with self.subTest(command=command[0]):
                _, reports = self.both_ways(build / command[0], *command[1:])
                for way in reports:
                    rows = [row for report in way for row in report["leaks"]
                            if "program" in row["owner"] or "plugin" in row["owner"]]
                    # What the C library allocates for them is theirs too.
                    rows = [row for row in rows if not row["frames"][0]["module"].endswith("/libc.so.6")]
                    self.assertTrue(rows)
                    for row in rows:
                        modules = [pathlib.Path(frame["module"]).name for frame in row["frames"]]
                        self.assertEqual(modules[0][:len(module) - 6], module[:-6])  # or the other plugin
                        if module.startswith("program"):
                            self.assertIn(modules.count(module), (1, 2, 3))  # leave_behind, main, _start
                        else:
                            self.assertEqual(modules[1], "loader")

    def test_what_programs_need_and_show(self):
        build = self.built("needs")
        for name in (*PROGRAMS, "libplugin_one.so"):
            with self.subTest(program=name):
                dynamic = done("readelf", "-dW", build / name)
                needed = {line.split("[")[1].rstrip("]") for line in dynamic.splitlines() if "(NEEDED)" in line}
                self.assertEqual(needed - MAY_BE_NEEDED, set())
                self.assertEqual("libcistern-shared.so.0" in needed, "shared" in name)
                shown = done("nm", "-D", "--defined-only", build / name)
                self.assertNotIn("cistern", shown)
                self.assertNotRegex(shown, r" u |malloc|_Zn[wa]m|_Zd[la]Pv")


IN_A_THREAD = """
#include <pthread.h>
#ifdef __cplusplus
extern "C"
#endif
int cudaFree(void*);
int page_main(void);
static int code;
static void* run(void* unused) {
  code = page_main();
  return unused;
}
int main(void) {
  pthread_t thread;
  cudaFree(0);
  pthread_create(&thread, 0, run, 0);
  pthread_join(thread, 0);
  return code;
}
"""


class Page(Consumers):
    """Each program of the pages says what stands below it, alone and with the preloaded object. Those that use CUDA
    are linked with nothing of it: the library's call is the process's first one. And they run in a thread without a
    context, in a process whose runtime has started."""

    def programs(self, page, language):
        text = (ROOT / "shim/doc" / page).read_text()
        programs = re.findall(rf"```{language}\n(.*?)```\n```text\n(.*?)```", text, re.DOTALL)
        self.assertEqual(len(programs), text.count(f"```{language}\n"))
        return programs

    def check(self, program, expected, *compile_it):
        libraries = ["-lOpenCL"] if "<CL/" in program else []
        self.check_as_it_is(program, expected, compile_it, libraries)
        if "cistern_device_count" in program:
            runtime = ARGUMENTS.build / "tests/simcuda/13"
            function = program.replace("int main(", "int page_main(").removesuffix("}\n") + "  return 0;\n}\n"
            self.check_as_it_is(function + IN_A_THREAD, expected, compile_it,
                                [f"-L{runtime}", f"-Wl,-rpath,{runtime}", "-lcudart", "-lpthread"])

    def check_as_it_is(self, program, expected, compile_it, libraries):
        simulator = ARGUMENTS.build / "tests/simcuda"
        if "cistern_device_count" in program and not (simulator / "libcuda.so").exists():
            return
        source = self.folder / "snippet"
        source.write_text(program)
        done(*compile_it, "-Wall", "-Wextra", "-Werror", "-DCL_TARGET_OPENCL_VERSION=120", "-I",
             self.prefix / "include", source, "-x", "none", self.library_folder / "libcistern-static.a", *libraries,
             "-lm", "-o", self.folder / "program")
        for way in ({}, {"LD_PRELOAD": self.shim}):
            said = done(self.folder / "program", LD_LIBRARY_PATH=simulator, CISTERN_REPORT="none", **way)
            self.assertEqual(said, expected)

    def test_in_c(self):
        programs = self.programs("library.md", "c")
        self.assertEqual(len(programs), 3)
        for program, expected in programs:
            self.check(program, expected, "gcc", "-std=c11", "-pedantic", "-x", "c")

    def test_in_cxx(self):
        programs = self.programs("cxx.md", "cpp")
        self.assertEqual(len(programs), 8)
        for program, expected in programs:
            self.assertLessEqual(program.count("\n"), 40, program)
            ways = [()] if "try {" in program else [(), ("-fno-exceptions", "-fno-rtti")]
            for compiler in dict.fromkeys(cxx for _, cxx in COMPILERS):
                for flags in ways:
                    with self.subTest(compiler=compiler, flags=flags, program=program):
                        self.check(program, expected, compiler, "-std=c++20", "-pedantic", *flags, "-x", "c++")


class Moved(Consumers):
    def test_pkg_config(self):
        moved = self.prefix.rename(self.prefix.with_name("moved"))
        self.addCleanup(lambda: moved.rename(self.prefix))
        folder = moved / self.library_folder.relative_to(self.prefix)
        for package in ("cistern", "cistern-static"):
            with self.subTest(package=package):
                flags = done("pkg-config", "--cflags", "--libs", package,
                             PKG_CONFIG_PATH=folder / "pkgconfig").split()
                self.assertNotIn(str(self.prefix) + "/", " ".join(flags))
                program = self.folder / package
                done("gcc", "-std=c11", HERE / "project" / "program.c", *flags, "-o", program)
                printed = done(program, LD_LIBRARY_PATH=folder)
                self.assertRegex(printed, "^3 allocations, 1 frees, 2 live")
        version = done("pkg-config", "--modversion", "cistern", PKG_CONFIG_PATH=folder / "pkgconfig").strip()
        self.assertIn(f"VERSION {version} ", (ROOT / "CMakeLists.txt").read_text())

    def test_cmake(self):
        moved = self.prefix.rename(self.prefix.with_name("moved-too"))
        self.addCleanup(lambda: moved.rename(self.prefix))
        build = self.built("from-moved", CMAKE_PREFIX_PATH=moved)
        self.assertRegex(done(build / "program_shared"), "^3 allocations")


class Versions(Consumers):
    def strange(self, number, size):
        library = self.folder / f"{number}-{size}" / "libcistern.so"
        library.parent.mkdir()
        done("gcc", "-shared", "-fPIC", "-Wl,-soname,libcistern.so", f"-DNUMBER={number}", f"-DBYTES={size}",
             HERE / "strange.c", "-o", library)
        return library

    def test_a_copy_that_is_not_understood_is_left_alone_and_that_is_said_once(self):
        build = self.built("versions")
        for number, size in ((1, 1 << 16), (3, 1 << 16), (2, 40)):
            with self.subTest(number=number, size=size):
                it = run(build / "program_cistern", LD_PRELOAD=self.strange(number, size))
                self.assertEqual((it.returncode, it.stdout),
                                 (0, "3 allocations, 1 frees, 2 live, twice told, inside told\n"))
                said = [line for line in it.stderr.splitlines() if "does not know" in line]
                self.assertRegex("\n".join(said),
                                 r"^cistern: the program's copy of Cistern \(\d\.\d\.\d\) does not know "
                                 r"the loaded libcistern\.so \(9\.9\.9\): each has its own pools$")

    def test_one_that_is_loaded_where_nobody_looks_serves_too(self):
        build = self.built("layers")
        self.assertEqual(done(build / "beside_layer", self.shim), "its own: 0, the layer's: 2\n")

    def test_one_that_was_linked_with_a_library_without_versions_is_served(self):
        shared, program = self.library_folder / "libcistern-shared.so", self.folder / "unversioned" / "program"
        program.parent.mkdir()
        names = [line.split()[-1].split("@")[0] for line in done("nm", "-D", "--defined-only", shared).splitlines()]
        (program.parent / "names.c").write_text("\n".join(f"void {n}(void) {{}}" for n in names if "." not in n))
        done("gcc", "-shared", "-fPIC", "-Wl,-soname,libcistern-shared.so.0", program.parent / "names.c", "-o",
             program.parent / "libcistern-shared.so")
        done("gcc", "-I", self.prefix / "include", HERE / "project" / "program.c", "-L", program.parent,
             "-lcistern-shared", "-o", program)
        self.assertNotIn("CISTERN_", done("readelf", "-VW", program))
        for way in ({}, {"LD_PRELOAD": self.shim}):
            it = run(program, LD_LIBRARY_PATH=self.library_folder, CISTERN_REPORT="none", **way)
            self.assertEqual((it.returncode, it.stdout),
                             (0, "3 allocations, 1 frees, 2 live, twice told, inside told\n"))
            self.assertNotIn("version", it.stderr)

    def test_the_preloaded_object_serves_what_is_linked_with_the_shared_one_by_version(self):
        shared, program = self.library_folder / "libcistern-shared.so", self.folder / "versioned"
        done("gcc", "-I", self.prefix / "include", HERE / "project" / "program.c", shared, "-o", program)
        needed = re.findall(r"(cistern_\w+)@(\w+\.\d+)", done("readelf", "--dyn-syms", "-W", program))
        self.assertIn("cistern_allocate", dict(needed))
        node, = set(dict(needed).values())
        for library in (shared, self.shim):
            shown = set(re.findall(r"(cistern_\w+)@@(\S+)", done("readelf", "--dyn-syms", "-W", library)))
            self.assertEqual({version for _, version in shown}, {node})
            self.assertLessEqual(dict(needed).keys(), dict(shown).keys())
        it = run(program, LD_PRELOAD=self.shim, LD_LIBRARY_PATH=self.library_folder, LD_DEBUG="bindings")
        self.assertRegex(it.stderr, rf"binding file \S+versioned \[0\] to {self.shim} .*`cistern_allocate' \[{node}\]")

    def test_an_old_client_is_served(self):
        program = self.folder / "old_client"
        done("gcc", HERE / "old_client.c", "-o", program)
        self.assertEqual(done(program, LD_PRELOAD=self.shim), "understood\n")


class Headers(Consumers):
    def compiles(self, header, compiler, language, standard, *flags):
        with self.subTest(header=header.name, compiler=compiler, standard=standard, flags=flags):
            done(compiler, "-x", language, f"-std={standard}", "-pedantic-errors", "-Wall", "-Wextra", "-Werror",
                 *flags, "-fsyntax-only", "-I", header.parent.parent, header)

    def test_each_of_c_compiles_alone(self):
        headers = sorted(self.prefix.rglob("*.h"))
        self.assertTrue(headers)
        for c, cxx in COMPILERS:
            for header in headers:
                for compiler, language, standard in ((c, "c", "c11"), (cxx, "c++", "c++17"), (cxx, "c++", "c++20")):
                    self.compiles(header, compiler, language, standard)

    def test_each_of_cxx_compiles_alone_with_and_without_exceptions_and_type_information(self):
        headers = sorted(self.prefix.rglob("*.hpp"))
        self.assertTrue(headers)
        for _, compiler in COMPILERS:
            for header in headers:
                for without in ((), ("-fno-exceptions",), ("-fno-rtti",), ("-fno-exceptions", "-fno-rtti")):
                    self.compiles(header, compiler, "c++", "c++20", "-Wconversion", "-Wsign-conversion", "-Wshadow",
                                  *without)


class Subdirectory(Consumers):
    def test_built_along(self):
        # Not optimised: what matters is that it builds, and that it is the same library.
        build = self.built("along", SOURCE=ROOT)
        self.check_programs(build)
        self.check_plugins(build)
        self.assertFalse(list(build.rglob("libcistern.so")))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, type=pathlib.Path)
    parser.add_argument("--cmake", default="cmake")
    ARGUMENTS, others = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *others], verbosity=2)
