"""The table of scopes of a recording; without a browser."""

import sys
import unittest

sys.path[:0] = ["tools/tree_viewer", "tools/files", "tests/tools/tree_viewer"]

import profiles  # noqa: E402
import recording  # noqa: E402
import times_part  # noqa: E402


class ScopesTest(unittest.TestCase):

    SCOPES = {"paths": ["", "layer <0>"], "kernels": ["", "gemm", "add", "mul", "exp"],
              "node_types": ["kernel", "kernel", "kernel", "kernel", "kernel", "copy", "memset"],
              "node_kernels": [1, 1, 2, 3, 4, 0, 0], "node_paths": [1, 1, 1, 1, 1, 1, 0]}

    def test_a_recording_without_scopes_has_no_table(self):
        self.assertEqual(recording.scopes({}), "")

    def test_a_row_has_the_nodes_and_the_kernels_of_a_scope(self):
        table = recording.scopes({"scopes": self.SCOPES})
        self.assertIn("layer &lt;0&gt;", table)
        self.assertIn("5 kernel, 1 copy", table)
        self.assertIn("gemm ×2, add, mul", table)
        self.assertIn("and 1 more", table)
        self.assertIn("in no scope", table)
        self.assertIn("1 memset", table)

    def test_numbers_of_no_path_and_no_kernel_are_left_out(self):
        table = recording.scopes({"scopes": dict(self.SCOPES, node_kernels=[9] * 7, node_paths=[9] * 7)})
        self.assertNotIn("gemm", table)


class TimesOfScopesTest(unittest.TestCase):

    SCOPES = dict(ScopesTest.SCOPES, node_ids=[1, 2, 3, 4, 5, 6, 7], exec_node_ids=[0] * 7)

    def part(self, *launches, scopes=None):
        profile = profiles.Profile([profiles.Launch(ns, node, 0) for ns, node in launches], {})
        return times_part.render({"nodes": [{"scopes": scopes or self.SCOPES}, {}]}, profile)

    def test_without_a_profile_there_is_no_part(self):
        self.assertEqual(times_part.render({"nodes": []}, None), "")

    def test_a_scope_has_a_row_and_a_box(self):
        part = self.part((3_000_000, 1), (5_000_000, 2), (2_000_000, 7))
        self.assertIn('id="times-of-scopes"', part)
        self.assertEqual(part.count("<rect"), 2)
        self.assertIn("layer &lt;0&gt;: 8.000 ms, 80.0%, 2 launches", part)
        self.assertIn("8.000</td>", part)
        self.assertIn("in no scope", part)
        self.assertNotIn("<0>", part)

    def test_it_says_why_nothing_is_in_a_scope(self):
        self.assertIn("no number of the profile is in the snapshot", self.part((3, 99)))
        for scopes in (dict(self.SCOPES, node_paths=[9] * 7), dict(self.SCOPES, node_paths=[-1] * 7),
                       ScopesTest.SCOPES):  # the last is of an earlier version of the library
            self.assertIn("No launch of the profile is in a scope", self.part((3, 1), scopes=scopes))


if __name__ == "__main__":
    unittest.main()
