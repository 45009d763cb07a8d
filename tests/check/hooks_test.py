"""Python's part of cgtree-check: the sitecustomize that it hides, and what it makes of a snapshot."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HOOKS = os.path.realpath("check/cgtree_check/hooks")
# A torch with the functions that the hooks use.
TORCH = """\
class memory:
    calls = []

    def _record_memory_history(**options):
        memory.calls.append(options)

    def _snapshot():
        return {
            "device_traces": [[
                {"action": "alloc", "addr": 0x7f00, "size": 256, "time_us": 10, "frames": [
                    {"filename": "/x/torch/nn.py", "line": 1, "name": "f"},
                    {"filename": "train.py", "line": 3, "name": "main"}]},
                {"action": "free_requested", "addr": 0x7f00, "size": 256, "time_us": 19},
                {"action": "free_completed", "addr": 0x7f00, "size": 256, "time_us": 20}]],
            "segments": [{"address": 0x8000, "total_size": 4096, "segment_pool_id": (0, 1)},
                         {"address": 0x9000, "total_size": 4096, "segment_pool_id": (0, 0)}]}


class CUDAGraph:
    def capture_begin(self, pool=None):
        return f"begun {pool}"

    def capture_end(self):
        return "ended"


class cuda:
    memory = memory
    CUDAGraph = CUDAGraph

    def _lazy_call(start):
        start()

    def is_initialized():
        return True

    def memory_snapshot():
        return [{"address": 0xa000, "total_size": 64, "segment_pool_id": (0, 2)}]


class backends:
    class cuda:
        def is_built():
            return True
"""
# The library, which notes its calls.
PROGRAM = """\
import ctypes
calls = []

class Library:
    def __init__(self, path):
        pass
    def __getattr__(self, name):
        class Function:
            def __call__(self, *arguments):
                calls.append((name, arguments))
        function = Function()
        setattr(self, name, function)
        return function

ctypes.CDLL = Library
import torch
graph = torch.cuda.CUDAGraph()

def outer():
    assert graph.capture_begin(pool=7) == "begun 7"
    assert graph.capture_end() == "ended"

outer()
frames = [arguments[0].decode() for name, arguments in calls if name == "cgtree_check_python_frames"]
assert len(frames) == 4 and frames[1] == "", frames
assert "outer at <string>:" in frames[0].splitlines()[0], frames[0]
assert torch.memory.calls[0]["stacks"] == "python", torch.memory.calls
import atexit
atexit._run_exitfuncs()
blocks = [arguments[0].decode() for name, arguments in calls if name == "cgtree_check_blocks"]
print(blocks)
"""


class HooksTest(unittest.TestCase):
    def run_python(self, program, frames="0", **modules):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in modules.items():
                pathlib.Path(folder, f"{name}.py").write_text(text, encoding="utf-8")
            return subprocess.run(
                [sys.executable, "-c", program], text=True, capture_output=True, check=False, timeout=60,
                env={**os.environ, "PYTHONPATH": f"{HOOKS}:{folder}", "CGTREE_CHECK_DIR": folder,
                     "CGTREE_CHECK_TORCH_FRAMES": frames})

    def test_the_sitecustomize_that_is_hidden_runs(self):
        said = self.run_python("import sitecustomize; print(sitecustomize.mine)",
                               sitecustomize="mine = 'chained'\n")
        self.assertEqual("chained\n", said.stdout, said.stderr)

    def test_a_program_without_torch_notices_nothing(self):
        said = self.run_python("print('ran')")
        self.assertEqual(("ran\n", "", 0), (said.stdout, said.stderr, said.returncode))

    def test_a_torch_without_cuda_is_left_alone(self):
        said = self.run_python("import torch; print(torch.x)", torch="x = 1\nclass backends:\n  class cuda:\n    is_built = lambda: False\n")
        self.assertEqual("1\n", said.stdout)
        self.assertNotIn("Traceback", said.stderr)

    def test_captures_get_frames_and_the_allocator_is_read(self):
        said = self.run_python(PROGRAM, frames="1", torch=TORCH)
        self.assertEqual(0, said.returncode, said.stderr)
        self.assertIn("10,allocate,7f00,256,train.py:3\\n20,free,7f00,256,\\n0,kept,8000,4096,\\n0,kept,a000,64,", said.stdout)
        self.assertNotIn("9000", said.stdout)

    def test_events_have_frames_only_where_they_are_asked_for(self):
        """Frames keep the code of functions alive, and all that torch.compile() holds for it."""
        program = PROGRAM + "print('context', torch.memory.calls[0]['context'])\n"
        said = self.run_python(program, torch=TORCH).stdout
        self.assertIn("context None", said)
        self.assertIn("10,allocate,7f00,256,\\n20,free,7f00,256,a line that CGTREE_CHECK_TORCH_FRAMES=1 names", said)
        self.assertIn("context all", self.run_python(program, frames="1", torch=TORCH).stdout)

    def test_a_program_may_look_for_torch_before_it_imports_it(self):
        looks = "import importlib.util\nassert importlib.util.find_spec('torch') is not None\n"
        said = self.run_python(looks + PROGRAM, torch=TORCH)
        self.assertEqual(0, said.returncode, said.stderr)
        self.assertIn("10,allocate,7f00,256", said.stdout)

    def test_torch_may_be_there_before_the_hooks(self):
        program = ("import ctypes, runpy, sys, unittest.mock\n"
                   "sys.meta_path.pop(0)\n"
                   "import torch\n"
                   "plain = torch.CUDAGraph.capture_begin\n"
                   "ctypes.CDLL = unittest.mock.MagicMock()\n"
                   f"runpy.run_path({HOOKS + '/sitecustomize.py'!r})\n"
                   "assert torch.CUDAGraph.capture_begin is not plain\n")
        said = self.run_python(program, torch=TORCH)
        self.assertEqual(0, said.returncode, said.stderr)

    def test_names_of_files_may_be_of_any_bytes(self):
        program = PROGRAM.replace("\nouter()\n", "\nexec(compile('outer()', 'a\\udcff.py', 'exec'))\n")
        said = self.run_python(program, frames="1", torch=TORCH.replace("train.py", "train\\udcff.py"))
        self.assertEqual(0, said.returncode, said.stderr)
        self.assertIn("10,allocate,7f00,256,train?.py:3", said.stdout)

    def test_the_function_that_the_library_calls_is_kept(self):
        program = PROGRAM.replace("calls.append((name, arguments))", (
            "calls.append((name, [weakref.ref(a) if 'source' in name else a for a in arguments]))"))
        program = "import gc, weakref\n" + program.replace("import atexit\n", (
            "import atexit\ngc.collect()\n"
            "[source] = [arguments[0] for name, arguments in calls if name == 'cgtree_check_set_source']\n"
            "assert source() is not None\n"))
        said = self.run_python(program, torch=TORCH)
        self.assertEqual(0, said.returncode, said.stderr)

    def test_another_version_of_torch_is_said_in_a_line(self):
        program = PROGRAM.partition("graph = ")[0] + "print('ran')"
        for there, elsewhere in [("def _lazy_call", "def _renamed"), ("(**options)", "(is_wanted)")]:
            with self.subTest(there=there):
                said = self.run_python(program, torch=TORCH.replace(there, elsewhere))
                self.assertIn("cgtree-check: ", said.stderr)
                self.assertNotIn("Traceback", said.stderr)
                self.assertEqual(("ran\n", 0), (said.stdout, said.returncode))


if __name__ == "__main__":
    unittest.main()
