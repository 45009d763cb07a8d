"""The package as a whole: the programs for GPU hosts with NumPy, stubs, torch's hook. //tests/install has the wheel."""

import ast
import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy

sys.path.insert(0, "tests/python")

from support import cgtree, floats, setUpModule, tensor, values_of  # noqa: E402,F401

from cgtree import _cgtree  # noqa: E402


def run(*command, **options):
    return subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False, timeout=300, **options)


class ProgramsPythonTest(unittest.TestCase):
    def test_the_matrix_has_no_wrong_cell_with_the_frameworks_that_are_here(self):
        result = run(sys.executable, "tests/python/interop_matrix.py", "--frameworks=numpy,jax")
        self.assertEqual(result.returncode, 0, result.stdout[-4000:])
        self.assertIn("'equal': ", result.stdout)

    def test_step_functions_of_numpy_equal_eager_over_a_thousand_calls(self):
        result = run(sys.executable, "tests/python/framework_steps.py", "--frameworks=numpy")
        self.assertEqual(result.returncode, 0, result.stdout[-4000:])
        self.assertEqual(result.stdout.count("998 replays of 1000 calls"), 2)

    def test_absent_frameworks_are_named(self):
        result = run(sys.executable, "tests/python/races.py", "--frameworks=numpy,cupy")
        self.assertEqual(result.returncode, 0, result.stdout[-4000:])
        self.assertEqual(result.stdout.count("ordered  (races without edges: 0 of 20)"), 3)
        self.assertRegex(result.stdout, "cupy: absent|cupy +forward +ordered")


class ImportPythonTest(unittest.TestCase):
    def test_the_import_loads_no_module_that_takes_longer_than_the_package(self):
        slow = ("dataclasses", "inspect", "contextlib", "re", "typing", "numpy", "torch")
        program = f"import sys, cgtree; print([name for name in {slow} if name in sys.modules])"
        result = run(sys.executable, "-S", "-c", program,
                     env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertEqual(result.stdout.strip(), "[]")

    def test_an_extension_that_another_c_library_cannot_load_says_what_wheels_are_for(self):
        with tempfile.TemporaryDirectory() as folder:
            package = pathlib.Path(folder, "cgtree")
            package.mkdir()
            shutil.copy("python/cgtree/__init__.py", package)
            (package / "_cgtree.abi3.so").write_text("no library")
            for program, is_said in ("import cgtree", False), ("import os; os.confstr = int; import cgtree", True):
                with self.subTest(program=program):
                    result = run(sys.executable, "-c", program, cwd=folder)
                    self.assertNotEqual(result.returncode, 0)
                    self.assertIn("ImportError", result.stdout)
                    self.assertEqual("wheels of cgtree are for glibc" in result.stdout, is_said, result.stdout)


class StubsPythonTest(unittest.TestCase):
    def test_every_name_has_a_type_and_a_docstring(self):
        with open("python/cgtree/__init__.py", encoding="utf-8") as file:
            modules = {name.name: node.module.partition(".")[2] for node in ast.parse(file.read()).body
                       if isinstance(node, ast.ImportFrom) for name in node.names}
        self.assertEqual(set(modules), set(cgtree.__all__))
        for name, module in modules.items():
            stub = f"python/cgtree/{module}.pyi"
            with open(stub if os.path.exists(stub) else stub[:-1], encoding="utf-8") as file:
                typed = {node.name for node in ast.parse(file.read()).body if hasattr(node, "name")}
            with self.subTest(name=name):
                self.assertIn(name, typed)
                self.assertTrue(getattr(cgtree, name).__doc__)

    def test_the_package_has_no_other_public_names_than_its_modules(self):
        result = run(sys.executable, "-c", "import cgtree; print(sorted(n for n in vars(cgtree) if n[0] != '_'))",
                     env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
        self.assertEqual(result.stdout.strip(), str(sorted(set(cgtree.__all__))))

    def test_types_have_the_members_of_the_stubs(self):
        with open("python/cgtree/_cgtree.pyi", encoding="utf-8") as file:
            tree = ast.parse(file.read())
        for node in tree.body:
            if not isinstance(node, ast.ClassDef) or not hasattr(_cgtree, node.name):
                continue
            said = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
            there = {name for name in vars(getattr(_cgtree, node.name)) if name[:2] != "__"}
            with self.subTest(type=node.name):
                self.assertEqual({name for name in said if name[:2] != "__"}, there)

    def test_arguments_are_those_of_the_stubs(self):
        context, x = cgtree.Context("host"), tensor(floats(3))
        context.keep(output=context.compile(lambda x: x)(x))
        step = context.compile(lambda x: x)
        for error, what, call in (
                (cgtree.InvalidArgument, "declare.*: 'address' is missing", lambda: context.declare("a", nbytes=3)),
                (TypeError, "declare.* got 'name' twice", lambda: context.declare("a", 1, 2, name="b")),
                (TypeError, "trim.* takes 1 positional arguments, and 2 were given", lambda: context.trim(1, 2)),
                (TypeError, "trim.* got an unexpected keyword argument 'x'", lambda: context.trim(x=1)),
                (TypeError, "name is of type int: expected a str", lambda: context.undeclare(3)),
                (TypeError, "output: expected a cgtree.Tensor, not <class 'int'>", lambda: context.keep(3)),
                (TypeError, "time_limit is of type str: expected a number", lambda: cgtree.thread_groups(1, "s")),
                (TypeError, "keywords must be strings", lambda: cgtree.Stream(**{1: 2})),
                (TypeError, "keywords must be strings", lambda: step(**{1: x}))):
            with self.subTest(what), self.assertRaisesRegex(error, what):
                call()

    def test_every_option_of_the_stubs_is_taken_and_no_other(self):
        with open("python/cgtree/_options.pyi", encoding="utf-8") as file:
            structs = {node.name: [item.target.id for item in node.body]
                       for node in ast.parse(file.read()).body if isinstance(node, ast.ClassDef)}
        self.assertIn("max_bytes", structs["ContextOptions"])
        self.assertIn("at_limit", structs["CompileOptions"])
        for make, options in ((lambda **given: cgtree.Context("host", **given).close(),
                               structs["ContextOptions"]),
                              (lambda **given: cgtree.compile(lambda x: x, **given),
                               structs["CompileOptions"])):
            make(**dict.fromkeys(options))
            with self.assertRaisesRegex(cgtree.InvalidArgument, "no option 'no_such'"):
                make(no_such=None)


class TorchAllocatorPythonTest(unittest.TestCase):
    """The hook that PyTorch calls, called as PyTorch does, for the host device."""

    @classmethod
    def setUpClass(cls):
        library = ctypes.CDLL(_cgtree.__file__)
        cls.allocate, cls.free = library.cgtree_torch_alloc, library.cgtree_torch_free
        cls.allocate.restype = ctypes.c_void_p
        cls.allocate.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        cls.free.restype = None
        cls.free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        cls.record_stream = library.cgtree_torch_record_stream
        cls.record_stream.restype = None
        cls.record_stream.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        _cgtree.torch_options(device="host")

    def test_a_recorded_stream_delays_the_next_use(self):
        stream, busy, go_on = cgtree.Stream("host"), threading.Event(), threading.Event()

        def work():
            with stream:
                cgtree.launch(lambda: (busy.set(), go_on.wait(30)))

        thread = threading.Thread(target=work)
        thread.start()
        self.assertTrue(busy.wait(30))
        data = self.allocate(1000, 0, None)
        self.record_stream(data, stream.ptr)
        self.record_stream(12345, stream.ptr)  # not a block of cgtree
        self.free(data, 1000, 0, None)
        others = [self.allocate(1000, 0, None) for _ in range(3)]
        go_on.set()
        thread.join()
        for other in others:
            self.free(other, 1000, 0, None)
        self.assertNotIn(data, others)

    def test_outside_of_steps_memory_is_reused(self):
        first = self.allocate(1000, 0, None)
        self.assertEqual(_cgtree.torch_statistics()["blocks"], 1)
        self.assertIsNone(_cgtree.lent(first))
        self.free(first, 1000, 0, None)
        self.assertEqual(self.allocate(1000, 0, None), first)
        self.free(first, 1000, 0, None)
        self.assertEqual(_cgtree.torch_statistics()["blocks"], 0)
        self.assertIsNone(self.allocate(0, 0, None))
        self.free(None, 0, 0, None)

    def test_inside_of_a_step_it_is_the_pools(self):
        def step(x):
            scratch = self.allocate(4096, 0, None)
            address = self.allocate(x.nbytes, 0, None)
            block = _cgtree.lent(address + 4)
            y = cgtree.view(block, address, x.shape, x.strides, x.dtype)
            del block
            y.copy_from(x)
            self.free(scratch, 4096, 0, None)
            self.free(address, x.nbytes, 0, None)
            return y

        before = _cgtree.torch_statistics()["from_steps"]
        with cgtree.Context("host") as context:
            compiled = context.compile(step)
            for _ in range(4):
                context.mark_step()
                values = floats(4, 3)
                self.assertEqual(compiled(tensor(values)).tobytes(), values.tobytes())
            self.assertEqual(compiled.stats()["replays"], 2)
        self.assertEqual(_cgtree.torch_statistics()["from_steps"] - before, 4)
        self.assertEqual(_cgtree.torch_statistics()["blocks"], 0)

    def test_outputs_in_one_segment_are_held_together_and_are_never_overwritten(self):
        """As a memory pool of PyTorch that cuts blocks out of a segment, which ends with the step."""
        size, segment_bytes = 256, 4096

        def step(x):
            segment = self.allocate(segment_bytes, 0, None)
            made = []
            for begin, factor in ((size, 2.0), (5 * size, 3.0)):
                block = _cgtree.lent(segment + begin)
                y = cgtree.view(block, segment + begin, x.shape, x.strides, x.dtype)
                cgtree.numpy.launch(lambda a, out, f=factor: numpy.multiply(a, f, out=out), x, y)
                made.append(y)
            block = None
            self.free(segment, segment_bytes, 0, None)
            return made

        held = []
        with cgtree.Context("host") as context:
            compiled = context.compile(step)
            for call in range(12):
                values = floats(8)
                two, three = compiled(tensor(values))
                held.append((values * 2, two) if call % 2 else (values * 3, three))
                if call % 5 == 4:
                    del held[0]
            del two, three
            for want, got in held:
                numpy.testing.assert_array_equal(values_of(got), want.astype("float32"))
            self.assertGreaterEqual(compiled.stats()["replays"], 1)
            held.clear()
            for _ in range(6):
                values = floats(8)
                numpy.testing.assert_array_equal(values_of(compiled(tensor(values))[0]), values * 2)
        self.assertEqual(_cgtree.torch_statistics()["blocks"], 0)

    def test_a_thread_that_may_keep_what_it_allocates_leaves_the_pools_of_others_alone(self):
        _cgtree.torch_options(use_steps=False)
        self.addCleanup(_cgtree.torch_options, use_steps=True)
        found = []

        def step(x):
            data = self.allocate(64, 0, None)
            found.append(_cgtree.lent(data) is not None)
            self.free(data, 64, 0, None)
            return x

        def run():
            with cgtree.Context("host") as context:
                context.compile(step)(tensor(floats(2)))

        run()
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        self.assertEqual(found, [False, True])


if __name__ == "__main__":
    unittest.main()
