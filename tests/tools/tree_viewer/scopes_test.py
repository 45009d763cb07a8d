"""The table of scopes of a recording; without a browser."""

import sys
import unittest

sys.path[:0] = ["tools/tree_viewer", "tools/files", "tests/tools/tree_viewer"]

import recording  # noqa: E402


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


if __name__ == "__main__":
    unittest.main()
