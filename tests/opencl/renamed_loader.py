#!/usr/bin/python3
"""A plugin brings along an OpenCL loader under a name of its own, as repaired Python wheels do, and is loaded
privately: the calls that are Cistern's reach that loader, and are counted. The loader and the plugin are copies of this
machine's with another name written into them."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import report_checks  # noqa: E402

SHIM, CLIENT, PLUGIN = sys.argv[1:4]
USUAL, RENAMED = b"libOpenCL.so.1", b"libOwnCL_.so.1"


def loaded_from(soname):
    """Where the linker finds the library."""
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    return re.search(rf"^\t{re.escape(soname)} .* => (.*)$", listed, re.M)[1]


class RenamedLoader(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        path = pathlib.Path(self.folder.name)
        for name, source in ((RENAMED.decode(), loaded_from(USUAL.decode())), ("plugin.so", PLUGIN)):
            contents = pathlib.Path(source).read_bytes()
            self.assertIn(USUAL, contents)
            (path / name).write_bytes(contents.replace(USUAL, RENAMED))
        self.path = path

    def run_client(self, **environment):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CISTERN", "LD_", "OPENCL_"))}
        kept |= {"LD_LIBRARY_PATH": str(self.path)} | environment
        done = subprocess.run([CLIENT, str(self.path / "plugin.so")], env=kept, capture_output=True, text=True,
                              timeout=300)
        return done.returncode, done.stdout, done.stderr

    def test_it_is_found_and_counted(self):
        code, out, err = self.run_client()
        self.assertEqual((code, err), (0, ""), out)
        report = self.path / "report.json"
        self.assertEqual(self.run_client(LD_PRELOAD=SHIM, CISTERN_REPORT=str(report), CISTERN_REPORT_FORMAT="json"),
                         (code, out, err))
        made = int(re.search(r"^memory objects made: (\d+)$", out, re.M)[1])
        self.assertEqual(report_checks.read(report)["kinds"]["opencl"]["allocations"], made)
        self.assertEqual(self.run_client(LD_PRELOAD=SHIM, CISTERN="off"), (code, out, err))


unittest.main(argv=["renamed_loader.py"], verbosity=2)
