"""Every public name has a comment."""

import sys
import unittest

sys.path.insert(0, "tools")

import check_comments  # noqa: E402
import source_tree  # noqa: E402


class CommentsTest(unittest.TestCase):
    def test_every_public_name_has_a_comment(self):
        root = source_tree.real_root()
        headers = check_comments.public_headers(root)
        self.assertIn(root / "bindings/c/c_api.h", headers)
        found = [f"{path.relative_to(root)}:{one.line}: {one.kind} {one.name}" for path in headers
                 for one in check_comments.missing(path.read_text(encoding="utf-8"), False)]
        if found:
            self.fail("no comment; tools/check_comments.py says what counts as one:\n"
                      + "\n".join(found))


if __name__ == "__main__":
    unittest.main()
