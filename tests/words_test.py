"""No source or page uses a replaced word: one word per idea, the field's own."""

import pathlib
import re
import sys
import unittest

sys.path.insert(0, "tools")

import source_tree  # noqa: E402

# (the pattern to find, the words to write instead). Identifiers are split: kPlaceLimit is "k place
# limit".
REPLACED = [(re.compile(pattern), instead) for pattern, instead in [
    (r"\blanes?\b", "context; of a warp: thread"),
    (r"\b(retained|transient) region|\bk (retained|transient)\b", "output region, scratch region"),
    (r"\bplace limit\b|\brecordings per place\b", "a limit of the function or of the context"),
    (r"\bpeer=(?!=)", "framework="),
    (r"\bverbs?\b", "function"),
    (r"\bhand-?shakes?\b|\breturn edges?\b(?!;)", "stream synchronization"),
    (r"\btrash\b|\bhold frees\b", "deferred frees"),
    (r"\b(rides?|riding) by value\b", "is passed as a kernel argument"),
    (r"\bgraph wish\b", "override"),
    (r"\bstrays?\b", "unrecorded work"),
    (r"\btakes? no memory\b", "does not allocate"),
    (r"\bnames? nothing\b", "is null"),
    (r"\bsome(body|one)\b|\bnobody\b|\bwho(so)?ever\b", "who does it: the caller, a thread"),
]]
ANY = re.compile("|".join(pattern.pattern for pattern, _ in REPLACED))
TEXT = source_tree.CXX | {".py", ".pyi", ".sh", ".bzl", ".bazel", ".md", ".css", ".js", ".map"}
SKIPPED = {"LICENSE", "tests/words_test.py"}
# DLPack uses "lanes" for the parts of a vector element.
LANES_OF_DLPACK = re.compile(r"dlpack|hostile|tests/python/support|tensor_boundary")


def split_identifiers(text):
    """Returns `text` in lower case, with the words of kCamelCase and snake_case separated."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", text).lower()


def replaced_words(text):
    """Yields (line number, word, the words to write instead)."""
    for number, words in enumerate(split_identifiers(text).splitlines(), start=1):
        if ANY.search(words):
            for pattern, instead in REPLACED:
                for match in pattern.finditer(words):
                    yield number, match.group(), instead


class WordsTest(unittest.TestCase):
    def test_no_file_uses_a_replaced_word(self):
        root = source_tree.real_root()
        found = []
        for path in source_tree.files(root):
            if path.as_posix() in SKIPPED or (path.suffix not in TEXT and path.suffix != ""):
                continue
            text = pathlib.Path(root, path).read_text(encoding="utf-8", errors="replace")
            found += [f"{path}:{number}: '{word}': write '{instead}'"
                      for number, word, instead in replaced_words(text)
                      if not (word.startswith("lane") and LANES_OF_DLPACK.search(path.as_posix()))]
        if found:
            self.fail("\n" + "\n".join(found))

    def test_replaced_words_are_found_in_prose_and_in_identifiers(self):
        for line in ["// Each lane has one.", "LaneMemory memory;", "hold_frees();", "kTransient",
                     "cgtree.compile(step, peer='cupy')", "// If nobody waits.", "a hand-shake",
                     "InputHandshake", "max_recordings_per_place", "GraphWish::kNone"]:
            with self.subTest(line=line):
                self.assertEqual(len(list(replaced_words(line))), 1)

    def test_words_that_only_look_alike_pass(self):
        for line in ["a plane", "explained", "adverb", "astray", "peer == 1", "retained memory"]:
            with self.subTest(line=line):
                self.assertEqual(list(replaced_words(line)), [])


if __name__ == "__main__":
    unittest.main()
