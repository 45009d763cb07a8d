"""MODULE.bazel and WORKSPACE have the same repositories, so that BUILD files work with every version of Bazel."""

import re
import sys
import unittest

sys.path.insert(0, "tools")
import source_tree  # noqa: E402

# Replacements of repositories that later versions of Bazel include or do not need.
OF_OLD_BAZEL = {"remote_coverage_tools", "rules_java"}
OF_MODULES = {"platforms"}  # embedded in Bazel 4
NAME = re.compile(r'name = "(\w+)"')


class BazelModuleTest(unittest.TestCase):
    def setUp(self):
        root = source_tree.real_root()
        self.module, self.workspace, self.offline = (
            (root / name).read_text(encoding="utf-8")
            for name in ("MODULE.bazel", "WORKSPACE", "bazel/offline/offline.bzl"))

    def test_both_have_the_same_dependencies(self):
        dependencies = {NAME.search(line).group(1) for line in re.findall(r"^bazel_dep\(.*\)$", self.module, re.MULTILINE)}
        offline = set(re.findall(r'^ {8}name = "(\w+)"', self.offline, re.MULTILINE))
        self.assertIn("fmt", offline)
        self.assertEqual(dependencies - OF_MODULES, offline - OF_OLD_BAZEL)

    def test_both_look_for_the_same_on_the_system(self):
        of_module, of_workspace = (set(re.findall(r'^(local_\w+)\(name = "\1"\)$', text, re.MULTILINE))
                                   for text in (self.module, self.workspace))
        self.assertIn("local_cuda", of_module)
        self.assertEqual(of_module, of_workspace)


if __name__ == "__main__":
    unittest.main()
