"""Programs for aarch64 under qemu-user, plain and with the cross-compiled libcistern.so: the same output."""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ARGUMENTS = argparse.Namespace()


def emulated(program, *arguments, preload=(), **more):
    environment = {"LD_PRELOAD": ":".join(map(str, preload)), **more}
    settings = [part for name, value in environment.items() if value for part in ("-E", f"{name}={value}")]
    command = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", *settings, str(ARGUMENTS.build / program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done.stdout, done.stderr, done.returncode


class Emulated(unittest.TestCase):
    def setUp(self):
        self.shim = ARGUMENTS.build / "libcistern.so"
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def host_counts(self, blocks):
        path = self.folder / f"report-{blocks}.json"
        printed = emulated("counting", str(blocks), preload=[self.shim], CISTERN_REPORT=str(path),
                           CISTERN_REPORT_FORMAT="json")
        self.assertEqual(printed, (f"{blocks} blocks, {blocks // 20} kept\n", "", 0))
        return json.loads(path.read_text())["kinds"]["host"]

    def test_allocations_are_counted_one_by_one(self):
        few, many = self.host_counts(100), self.host_counts(1100)
        self.assertEqual(many["allocations"] - few["allocations"], 1000)
        self.assertEqual(many["frees"] - few["frees"], 950)
        self.assertEqual(many["live_blocks"] - few["live_blocks"], 50)

    def test_a_process_without_gpu_memory_is_silent(self):
        self.assertEqual(emulated("counting", "200", preload=[self.shim]), ("200 blocks, 10 kept\n", "", 0))

    def test_a_failing_new_reaches_the_program(self):
        plain = emulated("failing_new")
        self.assertEqual(plain, ("caught after 2 calls of the handler\n", "", 0))
        self.assertEqual(emulated("failing_new", preload=[self.shim]), plain)

    def test_dlsym_keeps_its_caller(self):
        links = [ARGUMENTS.build / "libfirst.so", ARGUMENTS.build / "libsecond.so"]
        plain = emulated("chain", preload=links)
        printed = "second: first: hello\nroot of 81 is 9\nmissing: not found\nreason given: yes\n"
        self.assertEqual(plain, (printed, "", 0))
        for place in range(3):
            preload = links[:place] + [self.shim] + links[place:]
            self.assertEqual(emulated("chain", preload=preload), plain, preload)

    def test_dlopen_keeps_its_caller_and_the_order_of_symbols(self):
        for what, line in (("search_path", ""), ("deep", "the plugin finds the plugin's\n"), ("errors", None),
                           ("c_library", ""), ("threads", "")):
            plain = emulated("opener", what, str(ARGUMENTS.build / "libplugin.so"))
            self.assertEqual(plain[1:], ("", 3), plain)
            if line is not None:
                self.assertEqual(plain[0], f"{line}opener: {what} holds\n")
            shimmed = emulated("opener", what, str(ARGUMENTS.build / "libplugin.so"), preload=[self.shim])
            self.assertEqual(shimmed, plain, what)


class OnPagesOf64KiB(Emulated):
    """The emulator tells the program so, its C library too; its mappings begin at such pages."""
    # With such pages the emulator maps only some libraries of a program, plain too.
    test_dlsym_keeps_its_caller = test_dlopen_keeps_its_caller_and_the_order_of_symbols = None

    def setUp(self):
        super().setUp()
        # The emulator's vector loads (SVE) end plain programs with SIGSEGV there: they miss the end of ld.so's data.
        for name, value in (("QEMU_PAGESIZE", "65536"), ("QEMU_CPU", "max,sve=off")):
            os.environ[name] = value
            self.addCleanup(os.environ.pop, name)
        if not re.search(r"^AT_PAGESZ:\s+65536$", emulated("counting", "20", LD_SHOW_AUXV="1")[0], re.MULTILINE):
            self.skipTest("this emulator has pages of one size only")


def build(source, folder):
    """The shared object through the project's own build, the programs by hand."""
    here = pathlib.Path(__file__).resolve().parent
    folder.mkdir(parents=True, exist_ok=True)
    jobs = str(os.cpu_count())
    commands = [
        ["cmake", "-S", source, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DCISTERN_TESTS=OFF",
         f"-DCMAKE_TOOLCHAIN_FILE={source}/scripts/cmake/aarch64-linux-gnu.cmake"],
        ["cmake", "--build", folder, "--target", "cistern_shim", "-j", jobs],
        ["aarch64-linux-gnu-gcc", "-O1", here / "counting.c", "-o", folder / "counting"],
        ["aarch64-linux-gnu-gcc", "-O1", here / "chain.c", "-o", folder / "chain"],
        ["aarch64-linux-gnu-g++", "-O1", here / "failing_new.cpp", "-o", folder / "failing_new"],
    ]
    for name in ("first", "second"):
        commands.append(["aarch64-linux-gnu-gcc", "-O1", "-shared", "-fPIC", f'-DNAME="{name}"',
                         here / "chain_library.c", "-o", folder / f"lib{name}.so"])
    plugins = here.parent / "host/programs/plugins"
    (folder / "private").mkdir(exist_ok=True)
    for name, output in (("plugin", "libplugin.so"), ("plugin", "private/libprivate.so"), ("caller", "libcaller.so")):
        commands.append(["aarch64-linux-gnu-gcc", "-O1", "-shared", "-fPIC", "-Wl,--enable-new-dtags",
                         "-Wl,-rpath,$ORIGIN/private", plugins / f"{name}.c", "-o", folder / output])
    commands.append(["aarch64-linux-gnu-gcc", "-O1", "-rdynamic", "-Wl,-rpath,$ORIGIN", plugins / "opener.c",
                     folder / "libcaller.so", "-o", folder / "opener", "-pthread"])
    for command in commands:
        subprocess.run([str(part) for part in command], check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--from-source", type=pathlib.Path, help="build what the tests need, run none")
    ARGUMENTS, rest = parser.parse_known_args()
    if ARGUMENTS.from_source:
        build(ARGUMENTS.from_source, ARGUMENTS.build)
    else:
        unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
