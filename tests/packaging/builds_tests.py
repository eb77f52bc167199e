"""Two whole builds of the packages from two folders, for each architecture that this machine can build: the same bytes.
What was built stays in build/packages, for the tests in roots of other systems."""
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PACKAGES = ROOT / "build" / "packages"
EPOCH = "1700000000"


def copy_of_tree(folder):
    """This working tree, as git would see it, whatever is committed of it."""
    subprocess.run(["git", "clone", "-q", "--no-checkout", ROOT, folder], check=True)
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "-co", "--exclude-standard"], check=True,
                            capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def build(tree, architecture, out):
    environment = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH}
    it = subprocess.run([sys.executable, tree / "scripts/packaging/build", "--arch", architecture, out],
                        env=environment, capture_output=True, text=True)
    assert it.returncode == 0, (it.stdout + it.stderr)[-3000:]
    return (out / "SHA256SUMS").read_text()


class Builds(unittest.TestCase):
    def check(self, architecture):
        with tempfile.TemporaryDirectory() as scratch:
            # Paths of other lengths: what depends on them shows.
            trees = [pathlib.Path(scratch) / name for name in ("one", "another-folder/of-the-second")]
            for tree in trees:
                copy_of_tree(tree)
            sums = []
            for tree in trees:
                sums.append(build(tree, architecture, tree / "out"))
                shutil.rmtree(PACKAGES / architecture, ignore_errors=True)
                shutil.copytree(tree / "out", PACKAGES / architecture)
                shutil.rmtree(tree)
        self.assertEqual(sums[0], sums[1])
        self.assertEqual(len(sums[0].splitlines()), 4)

    def test_of_this_machine(self):
        self.check(platform.machine())

    @unittest.skipIf(platform.machine() == "aarch64", "this machine is one")
    @unittest.skipUnless(shutil.which("aarch64-linux-gnu-g++"), "aarch64-linux-gnu-g++ is not installed")
    def test_of_aarch64(self):
        self.check("aarch64")


if __name__ == "__main__":
    unittest.main(verbosity=2)
