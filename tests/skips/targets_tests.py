"""scripts/test builds what its tests need and no more: scripts/test-targets on the build that this is a test of."""
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop(1))


def targets(*selection):
    done = subprocess.run([ROOT / "scripts/test-targets", BUILD, *selection], capture_output=True, text=True)
    return done.returncode, done.stdout.split()


class Targets(unittest.TestCase):
    def test_programs_of_a_folder_and_the_shim(self):
        status, names = targets("-R", "^malloc.Calls$")
        self.assertEqual(status, 0)
        self.assertIn("libcistern.so", names)
        self.assertIn("tests/malloc/programs/model", names)
        self.assertIn("tests/malloc/programs/misuse/double_free_small", names)
        self.assertEqual([name for name in names if name.startswith("tests/") and "/malloc/" not in name], [])

    def test_the_names_that_a_shared_library_has_besides(self):
        _, names = targets("-R", "^packaging.Symbols$")
        self.assertIn("libcistern-shared.so", names)

    def test_a_test_that_is_a_program(self):
        self.assertEqual(targets("-R", "^unit.pool$"), (0, ["tests/cistern_pool_tests"]))

    def test_what_stands_among_other_words_and_in_the_environment(self):
        self.assertEqual(targets("-R", "^library.example$"), (0, ["tests/library/library_example"]))
        self.assertEqual(targets("-R", "^opencl.soak.layer$"), (0, ["libcistern.so", "tests/opencl/soak"]))

    def test_without_the_slow_ones_no_other_runtime_is_built(self):
        _, names = targets("-LE", "^slow$", "-R", "^cuda\\..*shared$")
        self.assertEqual([name for name in names if "cudart_static" in name or "/static/" in name], [])

    def test_no_such_test(self):
        self.assertEqual(targets("-R", "no_such_test"), (1, []))


if __name__ == "__main__":
    unittest.main(verbosity=2)
