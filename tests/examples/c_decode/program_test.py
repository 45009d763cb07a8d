"""examples/c_decode: the tokens follow its rule, and all steps but two are replayed."""

import json
import subprocess
import unittest

VOCABULARY, TOKENS = 8, 16


def next_token(token):
    scores = [(token * VOCABULARY + i) * 37 % 101 for i in range(VOCABULARY)]
    return scores.index(max(scores))


class ProgramTest(unittest.TestCase):
    def test_it_decodes_as_its_rule_says_and_replays(self):
        out = subprocess.run(["examples/c_decode/c_decode"], check=True, text=True,
                             capture_output=True).stdout.splitlines()
        tokens = [0, 1, 2, 3]
        for line in out[:TOKENS]:
            tokens = [next_token(token) for token in tokens]
            self.assertEqual([int(word) for word in line.split()], tokens)
        head, stats = out[TOKENS].split(": ", 1)
        self.assertEqual(head, "the C function ran 2 times")
        self.assertEqual(json.loads(stats)["replays"], TOKENS - 2)


if __name__ == "__main__":
    unittest.main()
