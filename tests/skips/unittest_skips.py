"""One unittest program with every kind of skip, for skips_tests.py."""
import sys
import unittest


class Some(unittest.TestCase):
    def test_passes(self):
        """Says "... skipped 'me'" of itself."""

    def test_without_a_tool(self):
        self.skipTest("tool isn't installed")

    def test_with_a_comment(self):
        """A comment stands where the name did."""
        self.skipTest("commented")

    @unittest.skip("decorated")
    def test_decorated(self):
        self.fail()

    def test_parts(self):
        for part in (1, 2):
            with self.subTest(part=part):
                if part == 2:
                    self.skipTest("part")

    def test_output_between(self):
        print("a line of its own", file=sys.stderr)
        self.skipTest("after a line")


@unittest.skip("a whole class")
class Whole(unittest.TestCase):
    def test_one(self):
        self.fail()


unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=int(sys.argv[1]))
