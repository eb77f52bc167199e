"""What the doctor says of each thing that keeps memory from being caught: the exact lines, and the exit code."""
import argparse
import ctypes
import os
import pathlib
import platform
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

ARGUMENTS = argparse.Namespace()
MACHINE = {"x86_64": "x86-64", "aarch64": "aarch64"}[platform.machine()]
NOBODY = 65534
# What depends on the machine that the tests run on, and has tests of its own.
OF_THE_MACHINE = re.compile(r"^\w+ +(CUDA: |OpenCL: |vm\.overcommit_memory|a filter of system calls is inherited)")


def shim():
    return str(ARGUMENTS.shim)


def program(name):
    return str(ARGUMENTS.programs / f"doctor_{name}")


def doctor(*command, flags=(), environment=None, of_machine=False, loader=(), **options):
    """Its lines, with the numbers of processes as PID, and its exit code."""
    clean = {name: value for name, value in os.environ.items()
             if not name.startswith(("CISTERN", "LD_", "OPENCL_", "OCL_", "ASAN_"))}
    words = [*loader, shim(), "--doctor", *flags, "--", *map(str, command)]
    done = subprocess.run(words, env=clean | (environment or {}), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=100, **options)
    assert done.stderr == "", done.stderr
    lines = re.sub(r"process \d+", "process PID", done.stdout).splitlines()
    assert all(re.match(r"(ok {7}|note {5}|problem {2})\S", line) for line in lines), lines
    return [line for line in lines if of_machine or not OF_THE_MACHINE.match(line)], done.returncode


def loader_of(path):
    said = subprocess.run(["readelf", "-lW", path], capture_output=True, text=True, check=True).stdout
    return re.search(r"interpreter: (\S+)\]", said)[1]


class Doctor(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.folder.chmod(0o755)
        self.loader = loader_of(program("plain"))
        self.preloaded = f"ok       the loader preloads {shim()}"

    def linked(self, path):
        return f"ok       {path} is dynamically linked, for {MACHINE}, with {self.loader}"

    def check(self, lines, *command, code, preload=True, **options):
        options["environment"] = ({"LD_PRELOAD": shim()} if preload else {}) | options.get("environment", {})
        self.assertEqual(doctor(*command, **options), (lines, code))

    def changed(self, name, *changes, of=None):
        """A copy of the program in which bytes are others: (offset, bytes), or (old text, new text)."""
        contents = bytearray(pathlib.Path(of or program("plain")).read_bytes())
        for where, what in changes:
            at = where if isinstance(where, int) else contents.index(where)
            contents[at:at + len(what)] = what
        path = self.folder / name
        path.write_bytes(contents)
        path.chmod(0o755)
        return path

    def as_nobody(self):
        if os.geteuid() != 0:
            self.skipTest("only root can start the doctor as another user")
        return {"user": NOBODY, "group": NOBODY, "extra_groups": ()}


class Flags(unittest.TestCase):
    def run_it(self, *arguments, **environment):
        done = subprocess.run([shim(), *arguments], capture_output=True, text=True, timeout=60,
                              env=os.environ | environment)
        return done.returncode, done.stdout, done.stderr

    def test_version(self):
        code, out, err = self.run_it("--version")
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(out, r"^cistern \d+\.\d+\.\d+\n$")

    def test_help_is_what_it_says_without_flags(self):
        self.assertEqual(self.run_it("--help"), self.run_it())
        code, out, err = self.run_it("--help")
        self.assertEqual((code, err), (0, ""))
        for flag in ("--doctor [--run] -- PROGRAM", "--version | --help", "CISTERN_REPORT ()"):
            self.assertIn(flag, out)

    def test_what_it_does_not_know_is_one_line_and_2(self):
        for arguments, line in ((("--doktor",), "no such option: --doktor"), (("x",), "no such option: x"),
                                (("--version", "x"), "--version takes no arguments"),
                                (("--doctor",), "--doctor needs a program"),
                                (("--doctor", "--"), "--doctor needs a program"),
                                (("--doctor", "--walk", "--", "true"), "--doctor has no option --walk")):
            with self.subTest(arguments=arguments):
                self.assertEqual(self.run_it(*arguments), (2, "", f"libcistern.so: {line}; try --help\n"))

    def test_preloaded_into_itself(self):
        self.assertEqual(self.run_it("--version", LD_PRELOAD=shim()), self.run_it("--version"))


class Program(Doctor):
    def test_one_that_is_caught(self):
        self.check([self.linked(program("plain")), self.preloaded], program("plain"), code=0)

    def test_without_a_preload_it_is_looked_at_with_one(self):
        self.check([f"note     LD_PRELOAD is not set: examined with LD_PRELOAD={shim()}",
                    self.linked(program("plain")), self.preloaded], program("plain"), code=0, preload=False)

    def test_it_is_found_in_path(self):
        self.check([self.linked(program("plain")), self.preloaded], "doctor_plain", code=0,
                   environment={"PATH": f"/nowhere:{ARGUMENTS.programs}"})

    def test_an_empty_part_of_path_is_the_current_directory(self):
        for path in ("", ":/nowhere", "/nowhere:", "/nowhere::/nowhere"):
            self.check([self.linked("./doctor_plain"), self.preloaded], "doctor_plain", code=0, cwd=ARGUMENTS.programs,
                       environment={"PATH": path})

    def test_run_by_the_loader_it_knows_its_own_path(self):
        lines, _ = doctor(program("plain"), loader=[self.loader])
        self.assertEqual(lines, [f"note     LD_PRELOAD is not set: examined with LD_PRELOAD={shim()}",
                                 self.linked(program("plain")), self.preloaded])

    def test_a_loader_that_lists_nothing(self):
        path, loader = self.changed("program", (self.loader.encode(), b"./ld\0")), self.folder / "ld"
        for script, end in (("", "lists no libraries for it"), ("kill -SEGV $$", "was ended by signal 11")):
            loader.write_text(f"#!/bin/sh\n{script}\n")
            loader.chmod(0o755)
            self.check([f"ok       {path} is dynamically linked, for {MACHINE}, with ./ld",
                        f"problem  {path} cannot be run: its loader {end}"], path, code=1, cwd=self.folder)

    def test_none(self):
        self.check(["problem  no-such-program cannot be run: No such file or directory"], "no-such-program", code=1)
        self.check([f"problem  {self.folder} cannot be run: Is a directory"], self.folder, code=1)
        (self.folder / "data").write_text("nothing")
        self.check([f"problem  {self.folder}/data cannot be run: Permission denied"], self.folder / "data", code=1)
        (self.folder / "data").chmod(0o755)
        self.check([f"problem  {self.folder}/data is neither a program nor a script with a first line #!"],
                   self.folder / "data", code=1)

    def test_static(self):
        self.check([f"problem  {program('static')} is statically linked: nothing can be preloaded; link it "
                    "dynamically, or link the library (cistern/cistern.h) into it"], program("static"), code=1)

    def test_for_other_machines(self):
        there = f": this libcistern.so is for {MACHINE}, 64 bits, and works only there"
        other = self.changed("other", (18, struct.pack("<H", 243)))
        self.check([f"problem  {other} is for riscv, 64 bits{there}"], other, code=1)
        small = self.changed("small", (4, b"\x01"), (18, struct.pack("<H", 3)))
        self.check([f"problem  {small} is for i386, 32 bits{there}"], small, code=1)

    def test_other_c_libraries(self):
        may_not_start = ("libcistern.so needs glibc, and with LD_PRELOAD set the program may fail to start "
                         "(exit code 127)")
        musl = self.changed("musl", (self.loader.encode() + b"\0", b"/lib/ld-musl-x.so.1\0"))
        self.check([f"problem  {musl} runs with the C library musl (/lib/ld-musl-x.so.1): {may_not_start}"],
                   musl, code=1)
        # Any program without glibc's versions of symbols: the plugin defines none.
        shutil.copy(program("plugin") + ".so", self.folder / "ld")
        other = self.changed("other", (self.loader.encode() + b"\0", b"./ld\0"))
        self.check([f"problem  {other} runs with another C library than glibc (./ld): {may_not_start}"], other, code=1,
                   cwd=self.folder)
        gone = self.changed("gone", (self.loader.encode() + b"\0", b"/lib/ld-none.so.1\0"))
        self.check([f"problem  {gone} cannot be run: its loader /lib/ld-none.so.1 does not exist here"], gone, code=1)

    def test_damaged_files(self):
        """Whatever lies in a file, the doctor says something and ends."""
        contents = pathlib.Path(program("plain")).read_bytes()
        path = self.folder / "damaged"
        for length in (1, 4, 16, 63, 64, 100, 400, 1000, len(contents) // 2, len(contents) - 1):
            path.write_bytes(contents[:length])
            path.chmod(0o755)
            self.assertIn(doctor(path, environment={"LD_PRELOAD": shim()})[1], (0, 1), length)
        for at in range(16, 1200, 7):
            path.write_bytes(contents[:at] + b"\xff\xff\xff\xff" + contents[at + 4:])
            done = subprocess.run([shim(), "--doctor", "--", path], capture_output=True, timeout=60)
            self.assertIn(done.returncode, (0, 1), at)

    def test_scripts_are_followed(self):
        script, other = self.folder / "script", self.folder / "other"
        script.write_text(f"#! {program('plain')}  -x\n")
        other.write_text(f"#!{script}\n")
        for path in (script, other):
            path.chmod(0o755)
        self.check([f"note     {other} is a script, which {script} runs",
                    f"note     {script} is a script, which {program('plain')} runs",
                    self.linked(program("plain")), self.preloaded], other, code=0)
        script.write_text("#!/usr/bin/env -S A=1 doctor_plain -x\n")
        self.check([f"note     {script} is a script, which /usr/bin/env runs",
                    self.linked(program("plain")), self.preloaded], script, code=0,
                   environment={"PATH": f"{ARGUMENTS.programs}:/usr/bin"})
        script.write_text(f"#!{script}\n")
        lines, code = doctor(script, environment={"LD_PRELOAD": shim()})
        self.assertEqual((lines[-1], code), (f"problem  {script} cannot be run: too many scripts run each other", 1))

    def test_a_script_without_an_interpreter(self):
        script = self.folder / "script"
        for line in ("#!", "#! \t", "#!\r\n"):
            script.write_text(line)
            script.chmod(0o755)
            self.check([f"problem  {script} cannot be run: its first line names no interpreter"], script, code=1)

    def check_env(self, options, lines):
        script = self.folder / "script"
        script.write_text(f"#!/usr/bin/env {options}\n")
        script.chmod(0o755)
        with self.subTest(options=options):
            self.check([f"note     {script} is a script, which /usr/bin/env runs", *lines, self.preloaded],
                       script, code=0, environment={"PATH": f"{ARGUMENTS.programs}:/usr/bin", "PLAIN": "pla"})

    def test_envs_options_are_followed(self):
        for options in ("-vS doctor_plain -u", "-S A='x  y' B=\"it's\" doctor_plain", "-S --chdir /tmp doctor_plain",
                        "-S -C/ -u A --unset B --debug doctor_plain -i", "-S -- doctor_plain",
                        "-S A=${HOME}'$#' doctor_${PLAIN}in # ${", "-S ${NOTHING} doctor_plain",
                        f"-iS LD_PRELOAD={shim()} PATH={ARGUMENTS.programs} doctor_plain"):
            self.check_env(options, [self.linked(program("plain"))])

    def test_where_envs_options_are_not_followed_that_is_said(self):
        for options in ("-S A=${HOME doctor_plain", "-S A=$HOME doctor_plain", r"-S A=a\_b doctor_plain",
                        "-S A='x doctor_plain", "-S --new-option x doctor_plain", "-S -C /tmp ./doctor_plain"):
            self.check_env(options, ["note     the program that /usr/bin/env starts is not examined: some of these "
                                     "options are unknown here", self.linked("/usr/bin/env")])

    def test_env_that_takes_the_preload_away(self):
        away = f"problem  env removes LD_PRELOAD: set it after env's options, as in env -i LD_PRELOAD={shim()}"
        for options in (("-i",), ("-",), ("-u", "LD_PRELOAD"), ("--unset=LD_PRELOAD", "A=1")):
            self.check([self.linked(program("plain")), away], "env", *options, program("plain"), code=1)
        self.check([self.linked(program("plain")), self.preloaded], "env", "-i", f"LD_PRELOAD={shim()}",
                   program("plain"), code=0)

    def test_set_user_id(self):
        nobody = self.as_nobody()
        ignored = ": the loader ignores LD_PRELOAD for it; run a copy without these rights, or run it as that user"
        shutil.copy(program("plain"), self.folder / "copy")
        copy = self.folder / "copy"
        for mode, lines, code in (
                (0o4755, [f"problem  {copy} is set-user-ID or set-group-ID (user 0, group 0){ignored}"], 1),
                (0o2755, [f"problem  {copy} is set-user-ID or set-group-ID (user 0, group 0){ignored}"], 1),
                (0o755, [self.linked(copy)], 0)):
            copy.chmod(mode)
            with self.subTest(mode=oct(mode)):
                found = doctor(copy, environment={"LD_PRELOAD": shim()}, **nobody)
                self.assertEqual((found[0][:1], found[1]), (lines, code))
        copy.chmod(0o4755)
        self.check([self.linked(copy), self.preloaded], copy, code=0)  # root's own
        copy.chmod(0o711)
        found = doctor(copy, environment={"LD_PRELOAD": shim()}, **nobody)
        self.assertEqual(found, ([f"note     {copy} can be run but not read: its libraries are not examined"], 0))

    def test_file_capabilities(self):
        nobody = self.as_nobody()
        shutil.copy(program("plain"), self.folder / "copy")
        try:
            # Version 2, effective; CAP_NET_RAW permitted.
            os.setxattr(self.folder / "copy", "security.capability", struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0))
        except OSError as error:
            self.skipTest(f"no file capabilities can be set here: {error}")
        found = doctor(self.folder / "copy", environment={"LD_PRELOAD": shim()}, **nobody)
        self.assertEqual(found, ([f"problem  {self.folder}/copy has file capabilities: the loader ignores LD_PRELOAD "
                                  "for it; run a copy without these rights, or run it as that user"], 1))


class Preload(Doctor):
    def with_preload(self, preload, *lines, code, **options):
        """As `env` sets it: one that the loader refuses would keep the doctor itself from starting."""
        self.check([self.linked(program("plain")), *lines], "env", f"LD_PRELOAD={preload}", program("plain"), code=code,
                   **options)

    def test_a_relative_path(self):
        relative = os.path.relpath(shim(), self.folder)
        self.with_preload(relative, f"note     LD_PRELOAD: {relative} is a relative path: child processes in "
                          f"another directory do not find it; use {self.folder}/{relative}",
                          f"ok       the loader preloads {relative}", code=0, cwd=self.folder)

    def test_what_is_not_there(self):
        self.with_preload("/no/libcistern.so", "problem  LD_PRELOAD: /no/libcistern.so cannot be read: No such file or "
                          "directory", code=1)

    def test_what_may_not_be_read(self):
        nobody = self.as_nobody()
        copy = shutil.copy(shim(), self.folder / "libcistern.so")
        copy.chmod(0o700)
        self.with_preload(copy, f"problem  LD_PRELOAD: {copy} cannot be read: Permission denied", code=1, **nobody)

    def test_the_wrong_file(self):
        self.with_preload(ARGUMENTS.linked, f"problem  LD_PRELOAD: {ARGUMENTS.linked} is the library for linking, "
                          "which intercepts nothing: the object to preload is libcistern.so", code=1)
        (self.folder / "libcistern.so").write_text("an empty download")
        self.with_preload(self.folder / "libcistern.so",
                          f"problem  LD_PRELOAD: {self.folder}/libcistern.so is not a library", code=1)
        other = self.changed("libcistern.so", (18, struct.pack("<H", 243)), of=shim())
        self.with_preload(other, f"problem  LD_PRELOAD: {other} is for riscv", code=1)
        self.with_preload("libm.so.6", "problem  LD_PRELOAD names no libcistern.so: libm.so.6", code=1)

    def test_beside_something_that_is_not_there(self):
        said = ("the loader says: ERROR: ld.so: object '/no/other.so' from LD_PRELOAD cannot be preloaded (cannot open "
                "shared object file): ignored.")
        self.with_preload(f"/no/other.so:{shim()}",
                          "note     LD_PRELOAD: /no/other.so cannot be read: No such file or directory",
                          f"note     {said}", self.preloaded, code=0)

    def test_by_its_name(self):
        self.with_preload("libcistern.so", self.preloaded, code=0,
                          environment={"LD_LIBRARY_PATH": str(ARGUMENTS.shim.parent)})

    def test_a_c_library_that_is_too_old(self):
        needed = subprocess.run(["readelf", "-VW", shim()], capture_output=True, text=True, check=True).stdout
        newest = max(re.findall(r"Name: GLIBC_2\.(\d+) ", needed), key=int).encode()
        newer = self.changed("libcistern.so", (b"\0GLIBC_2." + newest + b"\0", b"\0GLIBC_2.99\0"), of=shim())
        found, code = doctor("env", f"LD_PRELOAD={newer}", program("plain"), environment={"LD_PRELOAD": shim()})
        self.assertEqual((found[:1], len(found), code), ([self.linked(program("plain"))], 2, 1))
        self.assertRegex(found[1], rf"^problem  {newer} needs glibc 2\.99, but the program gets /\S+/libc\.so\.6 of "
                         r"glibc 2\.\d+: use a libcistern\.so that was built for it$")

    def test_a_mount_without_execution(self):
        inside = (f"mount -t tmpfs -o noexec,mode=755 none {self.folder} && cp {shim()} {self.folder}/libcistern.so && "
                  f"exec env LD_PRELOAD= {shim()} --doctor -- env LD_PRELOAD={self.folder}/libcistern.so "
                  f"{program('plain')}")
        done = subprocess.run(["unshare", "--mount", "--map-root-user", "sh", "-c", inside], capture_output=True,
                              text=True, timeout=60)
        if done.returncode not in (0, 1) or not done.stdout:
            self.skipTest(f"nothing can be mounted here: {done.stderr.strip()}")
        self.assertIn(f"\nproblem  LD_PRELOAD: {self.folder}/libcistern.so is on a file system that is mounted "
                      "noexec: copy it elsewhere\n", done.stdout)
        self.assertEqual(done.returncode, 1)


class Allocators(Doctor):
    def test_of_the_program(self):
        self.check([self.linked(program("own_malloc")), self.preloaded,
                    f"note     host memory: neither pooled nor counted, because the malloc of {program('own_malloc')} "
                    "comes before Cistern's; GPU memory is seen"], program("own_malloc"), code=0)

    def test_preloaded_too(self):
        for preload, what in (("libjemalloc.so.2:" + shim(), "neither pooled nor counted, because the malloc of {} "
                               "comes before Cistern's"),
                              (shim() + ":libjemalloc.so.2",
                               "counted, not pooled, because {} has a malloc of its own")):
            lines, code = doctor("env", f"LD_PRELOAD={preload}", program("plain"))
            path = re.search(r"/\S*libjemalloc\.so\.2", lines[-1])
            self.assertTrue(path, lines)
            expected = f"note     host memory: {what.format(path[0])}; GPU memory is seen"
            self.assertEqual((lines[-1], code), (expected, 0))

    def test_address_sanitizer(self):
        lines, code = doctor(program("watched"), environment={"LD_PRELOAD": ""})
        path = re.search(r"/\S*libasan\.so\.\d+", lines[-1])
        self.assertTrue(path, lines)
        self.assertEqual((lines[-1], code), (f"problem  {path[0]} (AddressSanitizer) aborts a process if another "
                                             "library is preloaded before it: set "
                                             "ASAN_OPTIONS=verify_asan_link_order=0", 1))
        lines, code = doctor(program("watched"), environment={"ASAN_OPTIONS": "verify_asan_link_order=0"})
        self.assertEqual((lines[-1], code), (f"note     host memory: neither pooled nor counted, because {path[0]} "
                                             "inspects it; GPU memory is seen", 0))

    def test_a_library_that_binds_to_itself(self):
        symbolic = ARGUMENTS.programs / "doctor_symbolic.so"
        self.check([self.linked(program("plain")), self.preloaded,
                    f"note     {symbolic} is linked with -Bsymbolic and defines clCreateBuffer: its own calls of it "
                    "are not seen"], "env", f"LD_PRELOAD={shim()}:{symbolic}", program("plain"), code=0)


class OpenCl(Doctor):
    HAS_DRIVER = r"^ok       CUDA: /\S+/libcuda\.so\.1$"  # this machine, one of its own

    def opencl(self, *command, code=0, **environment):
        lines, found = doctor(*(command or (program("plain"),)), of_machine=True, environment=environment)
        self.assertEqual(found, code)
        return [line for line in lines if "OpenCL" in line or "OPENCL" in line or "CUDA" in line]

    def test_drivers(self):
        (self.folder / "one.icd").write_text("libm.so.6\n")
        (self.folder / "two.icd").write_text("/no/such/driver.so")
        (self.folder / "readme.txt").write_text("nothing")
        lines = self.opencl(LD_PRELOAD=shim(), OCL_ICD_VENDORS=str(self.folder))
        self.assertEqual(lines[1], "note     OpenCL: a registered driver cannot be loaded: "
                         "/no/such/driver.so: cannot open shared object file")
        self.assertRegex(lines[2], r"^ok       OpenCL: /\S+/libOpenCL\.so\.1, drivers: libm\.so\.6$")
        lines = self.opencl(LD_PRELOAD=shim(), OCL_ICD_VENDORS=str(self.folder / "empty"))
        self.assertRegex(lines[1], r"^note     OpenCL: /\S+/libOpenCL\.so\.1, but no driver for it \(")

    def test_what_cannot_be_loaded_is_not_said_to_be_missing(self):
        self.changed("libcuda.so.1", (4, b"\x01"))  # 32 bits
        self.assertRegex(self.opencl(LD_PRELOAD=shim(), LD_LIBRARY_PATH=str(self.folder))[0],
                         r"^note     CUDA: no driver: libcuda\.so\.1: wrong ELF class: ELFCLASS32$|" + self.HAS_DRIVER)

    def test_cuda(self):
        self.assertRegex(self.opencl(LD_PRELOAD=shim())[0], r"^note     CUDA: no driver: libcuda\.so\.1: cannot open "
                         r"shared object file$|" + self.HAS_DRIVER)
        self.assertIn(f"ok       CUDA: {ARGUMENTS.cuda}/libcuda.so.1",
                      self.opencl(LD_PRELOAD=shim(), LD_LIBRARY_PATH=str(ARGUMENTS.cuda)))

    def test_the_layer(self):
        lines = self.opencl(OPENCL_LAYERS=shim())
        self.assertRegex(lines[0], rf"^ok       OPENCL_LAYERS: /\S+/libOpenCL\.so\.1 loads {shim()}$")
        self.assertEqual(lines[1], "note     with the layer alone, only OpenCL memory is seen")

    def test_a_layer_that_is_ignored(self):
        self.assertEqual(self.opencl(OPENCL_LAYERS="/no/libcistern.so", code=1)[0],
                         "problem  OPENCL_LAYERS is ignored: /no/libcistern.so does not exist")
        old = self.folder / "libOpenCL.so.1"  # any library that does not read the variable
        shutil.copy(ARGUMENTS.programs / "doctor_symbolic.so", old)
        ignored = (f"OPENCL_LAYERS is ignored: {old} does not support layers (ocl-icd does since 2.3): use LD_PRELOAD "
                   "instead")
        search = {"LD_LIBRARY_PATH": str(self.folder), "OPENCL_LAYERS": shim()}
        self.assertEqual(self.opencl(**search, code=1)[0], f"problem  {ignored}")
        self.assertEqual(self.opencl(**search, LD_PRELOAD=shim())[0], f"note     {ignored}")
        self.assertRegex(self.opencl(OPENCL_LAYERS=str(ARGUMENTS.linked), code=1)[0],
                         r"^problem  OPENCL_LAYERS is ignored: \S+ is not libcistern\.so$")


class Surroundings(Doctor):
    def test_options(self):
        self.check([self.linked(program("plain")), self.preloaded,
                    "problem  CISTERN=off switches Cistern off: unset it"], program("plain"), code=1,
                   environment={"CISTERN": "off"})
        self.check([self.linked(program("plain")), self.preloaded,
                    "note     CISTERN_OPENCL_POOL_MAX: 'plenty' is not a size such as 512MiB or 1.5GB; using 1TiB",
                    "note     CISTERN_REPROT: no such option (did you mean CISTERN_REPORT?)",
                    "note     CISTERN: 'of' is not on or off; using on",
                    "note     CISTERN_HOST_POOL=off: host memory is counted, not pooled",
                    "note     CISTERN_REPORT=none: no report and no warning is written"], program("plain"), code=0,
                   environment={"CISTERN_OPENCL_POOL_MAX": "plenty", "CISTERN_REPROT": "x", "CISTERN_HOST_POOL": "off",
                                "CISTERN_REPORT": "none", "CISTERN": "of"})

    def test_a_gate_that_is_shut(self):
        for value in ("anny", ""):
            self.check([self.linked(program("plain")), self.preloaded,
                        f"note     CISTERN_FAIL_ON: '{value}' is not off or a comma-separated list of any, "
                        "lost, possible, growing, each with an optional :SIZE; processes that used GPU "
                        "memory will fail",
                        "problem  the rule of CISTERN_FAIL_ON cannot be read: see above"], program("plain"),
                       code=1, environment={"CISTERN_FAIL_ON": value})

    def test_a_small_address_space(self):
        said = ["note     ulimit -v 409600: memory that pools retain counts towards it; CISTERN_OPENCL_POOL_MAX "
                "limits the largest part"]
        self.check([self.linked(program("plain")), self.preloaded, *said], program("plain"), code=0,
                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20)))

    def test_a_filter_of_system_calls(self):
        def allow_all():
            libc = ctypes.CDLL(None)
            instruction = ctypes.create_string_buffer(struct.pack("<HBBI", 6, 0, 0, 0x7fff0000))
            filter_ = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", 1, ctypes.addressof(instruction)))
            assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, filter_) == 0
        said = ("note     a filter of system calls (seccomp) is inherited: if SIGSYS ends the program, set "
                "CISTERN_SYSTEM_CALLS=few")
        for value, expected in (("all", [said]), ("few", [])):
            lines, code = doctor(program("plain"), of_machine=True, preexec_fn=allow_all,
                                 environment={"LD_PRELOAD": shim(), "CISTERN_SYSTEM_CALLS": value})
            self.assertEqual(([line for line in lines if "filter" in line], code), (expected, 0))


class Run(Doctor):
    """With --run: what happened."""

    def run_it(self, *command, **options):
        lines, code = doctor(*command, flags=("--run",), environment={"LD_PRELOAD": shim()}, **options)
        return lines[lines.index(self.preloaded) + 1:], code

    def test_one_that_is_caught(self):
        lines, code = self.run_it(program("plain"))
        self.assertEqual((lines[0], code), ("note     it ran, and ended with exit code 0", 0))
        self.assertRegex(lines[1], rf"^ok       process PID \({program('plain')}\) had the preload to its end; "
                         r"allocations: host \d+$")
        self.assertEqual(len(lines), 2)

    def test_long_and_odd_names_are_shown_whole(self):
        folder = self.folder / ("a-folder-with-a-long-name" * 6) / 'quoted "name", \\ and \u00e4'
        folder.mkdir(parents=True)
        for name, shown in (("the-program", "the-program"), ("two\nlines", "two?lines"), ("\"command\": \"x", None)):
            copy = folder / name
            shutil.copy(program("plain"), copy)
            lines, code = self.run_it("sh", "-c", '"$0"; true', copy)
            self.assertIn(f" ({folder / (shown or name)}) had the preload too; ", lines[-1])
            self.assertEqual(code, 0)

    def test_a_name_that_is_cut_shows_that(self):
        folder = self.folder.joinpath(*["x" * 200] * 3)
        folder.mkdir(parents=True)
        shutil.copy(program("plain"), folder / "program")
        lines, _ = self.run_it(folder / "program")
        self.assertIn(str(folder)[:400] + "...) had the preload", "\n".join(lines))

    def test_a_report_that_is_not_whole(self):
        cut = """printf '{"cistern": {"command": "a"' >"${CISTERN_REPORT%/*}/1.json" """
        lines, code = self.run_it("sh", "-c", cut)
        self.assertEqual((lines[-1], code), ("note     process PID had the preload too; its report is incomplete", 0))
        lines, code = self.run_it("sh", "-c", """printf '{' >"${CISTERN_REPORT%/*}/$$.json"; kill -KILL $$""")
        self.assertEqual((lines[-1], code), ("note     process PID had the preload; its report is incomplete", 0))

    def test_nothing_is_left_behind(self):
        doctor(program("plain"), flags=("--run",), environment={"TMPDIR": str(self.folder)})
        self.assertEqual(os.listdir(self.folder), [])
        lines, code = doctor(program("plain"), flags=("--run",), environment={"TMPDIR": "/nowhere"})
        self.assertRegex(lines[-1], r"^problem  not run: /nowhere/cistern-doctor-\d+ cannot be created: No such file "
                         "or directory$")
        self.assertEqual(code, 1)

    def test_opened_with_deep_binding(self):
        plugin = ARGUMENTS.programs / "doctor_plugin.so"
        for not_deep in (plugin, ARGUMENTS.programs / "doctor_symbolic.so"):
            lines, code = self.run_it(program("opener"), not_deep)
            self.assertEqual((len(lines), code), (2, 0))
        lines, code = self.run_it(program("opener"), "deep", plugin, "libOpenCL.so.1")
        self.assertEqual(lines[1], f"note     {plugin} was opened with RTLD_DEEPBIND: if it looks up GPU functions "
                         "itself, set CISTERN_DEEPBIND=clear")
        self.assertRegex(lines[2], r"^problem  /\S+/libOpenCL\.so\.1 was opened with RTLD_DEEPBIND: its calls bypass "
                         "Cistern; set CISTERN_DEEPBIND=clear$")
        self.assertEqual(code, 1)

    def test_an_environment_that_is_cleared(self):
        """By programs that the doctor does not know: a shell's own commands."""
        lines, code = self.run_it("sh", "-c", "exec env -i " + program("plain"))
        self.assertEqual((lines, code), (
            ["note     it ran, and ended with exit code 0",
             "problem  process PID started with the preload and ended without it: it executed another program "
             "with an environment of its own, or filters system calls"], 1))
        lines, code = self.run_it("sh", "-c", "env -i sleep 1; true")
        self.assertEqual((lines[-1], code), (f"problem  process PID ({shutil.which('sleep')}) ran without the preload, "
                                             "because LD_PRELOAD was not in its environment", 1))
        lines, code = self.run_it("sh", "-c", f"{program('plain')}; true")
        self.assertRegex(lines[-1], rf"^ok       process PID \({program('plain')}\) had the preload too; allocations: ")
        self.assertEqual(code, 0)

    def test_ended_by_a_signal(self):
        lines, code = self.run_it("sh", "-c", "kill -KILL $$")
        self.assertEqual((lines, code), (["note     process PID was ended by signal 9, so there is no report"], 0))

    def test_a_launcher_leaves_no_report(self):
        launcher = self.folder / "mpirun.page"
        launcher.symlink_to(shutil.which("sh"))
        lines, code = self.run_it(launcher, "-c", f"{program('plain')}; true")
        self.assertEqual((lines[1], code), ("note     process PID had the preload; as a launcher of other processes it "
                                            "writes no report", 0))
        self.assertRegex(lines[2], rf"^ok       process PID \({program('plain')}\) had the preload too; ")

    def test_the_layer(self):
        def run_it(name):
            quiet = ("sh", "-c", f"exec {name} >/dev/null")
            lines, code = doctor(*quiet, flags=("--run",), environment={"OPENCL_LAYERS": shim()})
            self.assertEqual((lines[-2], code), ("note     it ran, and ended with exit code 0", 0))
            return lines[-1]
        self.assertRegex(run_it(ARGUMENTS.app), rf"^ok       process PID \({ARGUMENTS.app}\) had the layer to its end; "
                         r"allocations: .*opencl \d+$")
        self.assertEqual(run_it(program("plain")), "note     process PID left no report: it allocated no OpenCL "
                         "memory, or did not load the layer")

    def test_its_streams_are_the_programs(self):
        done = subprocess.run([shim(), "--doctor", "--run", "--", "cat"], input="hello\n", capture_output=True,
                              text=True, timeout=60)
        self.assertIn("\nhello\nnote     it ran", done.stdout)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("shim", "linked", "programs", "cuda", "app"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    ARGUMENTS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
