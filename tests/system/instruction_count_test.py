"""Instructions per replay, recording, or pair of calls of a pool, without the launch.

Counted by callgrind.
"""

import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

PROGRAM = "tests/system/replay_program"
# Two percent above the counts with GCC 12.2 on x86-64.
MOST = {
    "fastbuild": {"static": 7825, "copied": 9868, "copied_back": 10376,
                  "padded": 80877, "outputs": 145925, "recordings": 477000},
    "opt": {"static": 673, "copied": 1145, "copied_back": 4217, "padded": 9011,
            "outputs": 8965, "recordings": 74500, "one_size": 262, "random_sizes": 547},
}
# The guard that is asked first, and each further guard.
MOST_OF_GUARDS = {"fastbuild": {"first": 1260, "other": 463}}
# Functions of the host device that launch the graph and patch its root node.
DEVICE = ["cgtree::host::HostGraphs::launch(*", "cgtree::host::HostGraphs::set_kernel_node(*"]


def count(inputs):
    """Returns the build's mode and the instructions per replay."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "callgrind.out")
        toggles = ["cgtree::testing::counted_replays(*", "cgtree::testing::counted_recordings(*",
                   "cgtree::testing::counted_pairs(*", *DEVICE]
        result = subprocess.run(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}",
             *(f"--toggle-collect={name}" for name in toggles), PROGRAM, inputs],
            text=True, capture_output=True, check=False)
        if result.returncode != 0:
            raise AssertionError(result.stdout + result.stderr)
        total = int(re.search(r"^totals: (\d+)", out.read_text(encoding="utf-8"), re.M).group(1))
    mode, replays = result.stdout.split()
    return mode, total / int(replays)


class InstructionCountTest(unittest.TestCase):
    def check(self, inputs):
        if shutil.which("valgrind") is None:
            self.skipTest("valgrind is not installed: see tools/setup")
        mode = subprocess.run([PROGRAM, inputs], text=True, capture_output=True,
                              check=True).stdout.split()[0]
        if inputs not in MOST.get(mode, {}):
            self.skipTest(f"no number is known for a build in mode '{mode}', {inputs}")
        _, instructions = count(inputs)
        print(f"{mode}, {inputs}: {instructions:.1f} instructions")
        self.assertGreater(instructions, MOST[mode][inputs] / 3, "is anything counted?")
        self.assertLess(instructions, MOST[mode][inputs])

    def test_a_replay_with_one_static_input(self):
        self.check("static")

    def test_a_group_costs_a_replay_nothing(self):
        if shutil.which("valgrind") is None:
            self.skipTest("valgrind is not installed: see tools/setup")
        (_, alone), (_, in_group) = count("static"), count("in_group")
        self.assertAlmostEqual(alone, in_group, delta=1)

    def test_the_guards_of_a_replay_are_asked_where_it_is_predicted(self):
        if shutil.which("valgrind") is None:
            self.skipTest("valgrind is not installed: see tools/setup")
        counts = {inputs: count(inputs) for inputs in ("static", "guard", "guards")}
        mode = counts["static"][0]
        first = counts["guard"][1] - counts["static"][1]
        others = (counts["guards"][1] - counts["guard"][1]) / 3
        print(f"{mode}: {first:.1f} instructions for a guard, {others:.1f} for each other")
        if mode not in MOST_OF_GUARDS:
            self.skipTest(f"no number is known for a build in mode '{mode}'")
        self.assertGreater(others, 3, "is it asked?")
        self.assertLess(first, MOST_OF_GUARDS[mode]["first"])
        self.assertLess(others, MOST_OF_GUARDS[mode]["other"])

    def test_a_replay_with_sixteen_copied_inputs_that_have_not_moved(self):
        self.check("copied")

    def test_a_replay_with_sixteen_inputs_that_are_copied_back_and_have_not_moved(self):
        self.check("copied_back")

    def test_a_replay_with_sixteen_inputs_that_are_padded_to_a_bucket(self):
        self.check("padded")

    def test_a_replay_with_sixty_four_outputs(self):
        self.check("outputs")

    def test_a_recording_beside_others_of_the_function(self):
        self.check("recordings")

    def test_a_pair_of_calls_of_a_pool_with_one_size(self):
        self.check("one_size")

    def test_a_pair_of_calls_of_a_pool_with_random_sizes(self):
        self.check("random_sizes")


if __name__ == "__main__":
    unittest.main()
