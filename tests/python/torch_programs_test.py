"""Programs, and cases of threads, forks and unusual tensors, with PyTorch's own kernels on the CPU: compiled programs
equal eager ones.
"""

import logging
import sys
import unittest
import warnings

sys.path.insert(0, "tests/python")

try:
    import torch
except ImportError as error:
    raise unittest.SkipTest("PyTorch is absent") from error

from support import SEED, cgtree, setUpModule  # noqa: E402,F401

import torch_programs  # noqa: E402
from torch_cases import CASES, Trial  # noqa: E402

import cgtree.torch  # noqa: E402

torch._logging.set_logs(all=logging.ERROR)

# Programs for which PyTorch's compiler itself differs from eager PyTorch, with any back end.
OF_THE_COMPILER = {
    "a_deque_of_frames": "maxlen of a deque of the closure is overlooked",
    "an_argument_that_is_a_buffer": "parameters and buffers are assumed to be no arguments",
    "a_parameter_of_another_class": "AOTAutograd raises",
}


def eager(function):
    return cgtree.torch.compile(function, kernels="eager")


class ProgramsPythonTest(unittest.TestCase):
    """A compiled program equals its eager run, bit for bit."""


class CasesPythonTest(unittest.TestCase):
    """The cases without a GPU; torch_cases.py runs all of them on a GPU."""


def _add_program(name):
    def run(self):
        if name in OF_THE_COMPILER:
            self.skipTest(f"PyTorch's own: {OF_THE_COMPILER[name]}")
        torch._dynamo.reset()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = torch_programs.run(name, "cpu", eager, SEED)
        if getattr(torch_programs.PROGRAMS[name], "is_piece", False):
            self.assertGreater(cgtree.torch.stats(compiled)["replays"], 0)

    setattr(ProgramsPythonTest, f"test_{name}", run)


def _add_case(name, function):
    def run(self):
        torch._dynamo.reset()
        torch.manual_seed(SEED)
        function(Trial("cpu"))

    setattr(CasesPythonTest, f"test_{name}", run)


for _name in torch_programs.PROGRAMS:
    _add_program(_name)
for _name, (_function, _needs_gpu) in CASES.items():
    if not _needs_gpu:
        _add_case(_name, _function)


if __name__ == "__main__":
    unittest.main()
