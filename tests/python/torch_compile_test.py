"""Promises about compiled functions and modules of PyTorch themselves, on the CPU."""

import copy
import gc
import inspect
import logging
import pickle
import sys
import threading
import unittest
import warnings
import weakref

sys.path.insert(0, "tests/python")

try:
    import torch
except ImportError as error:
    raise unittest.SkipTest("PyTorch is absent") from error

from support import SEED, cgtree, on_threads, setUpModule  # noqa: E402,F401

import cgtree.torch  # noqa: E402
from cgtree._torch_compile import _graphs_of  # noqa: E402

torch._logging.set_logs(all=logging.ERROR)

def eager(function, **options):
    return cgtree.torch.compile(function, kernels="eager", **options)


class Net(torch.nn.Module):
    """At module level, as pickle requires."""

    def __init__(self):
        super().__init__()
        self.first, self.count = torch.nn.Linear(4, 4), 0
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x, *, scale=1.0):
        self.seen = self.seen + x.sum(0)
        return self.first(x) * scale

    def twice(self, x):
        return self(self(x))

    def stats(self):
        return "mine"

    def reset(self):
        self.seen.zero_()


class ModulePythonTest(unittest.TestCase):
    """A compiled module is a module of the same class with the same state."""

    def setUp(self):
        torch._dynamo.reset()
        torch.manual_seed(SEED)
        self.plain = Net()
        self.compiled = eager(self.plain)
        grad = torch.no_grad()
        grad.__enter__()
        self.addCleanup(grad.__exit__, None, None, None)

    def expect_equal(self, compiled, plain, calls=8):
        before = cgtree.torch.stats(self.compiled)["replays"]
        for _ in range(calls):
            x = torch.randn(2, 4)
            self.assertTrue(torch.equal(compiled(x, scale=2.0), plain(x, scale=2.0)))
        return cgtree.torch.stats(self.compiled)["replays"] - before

    def test_it_is_a_module_of_the_class(self):
        self.assertIsInstance(self.compiled, Net)
        self.assertEqual(type(self.compiled).__name__, "Net")
        self.assertEqual(list(self.compiled.state_dict()), list(self.plain.state_dict()))
        self.assertEqual([name for name, _ in self.compiled.named_parameters()],
                         ["first.weight", "first.bias"])
        self.assertEqual(repr(self.compiled), repr(self.plain))
        self.assertEqual(inspect.signature(self.compiled.forward),
                         inspect.signature(self.plain.forward))

    def test_nothing_hides_a_name_of_the_module(self):
        self.assertEqual(self.compiled.stats(), "mine")
        self.compiled(torch.ones(2, 4))
        self.compiled.reset()
        self.assertEqual(self.plain.seen.tolist(), [0.0] * 4)

    def test_calls_replay(self):
        twin = copy.deepcopy(self.plain)
        self.assertGreaterEqual(self.expect_equal(self.compiled, twin), 4)
        self.assertTrue(torch.equal(self.plain.seen, twin.seen))

    def test_methods_call_the_compiled_module(self):
        x = torch.randn(2, 4)
        for _ in range(5):
            self.compiled.twice(x)
        self.assertGreater(cgtree.torch.stats(self.compiled)["replays"], 2)

    def test_changes_of_one_module_are_changes_of_both(self):
        self.assertIs(self.compiled.eval(), self.compiled)
        self.assertFalse(self.plain.training)
        self.plain.train()
        self.assertTrue(self.compiled.training)
        self.assertIs(self.compiled.to(torch.float64), self.compiled)
        self.assertEqual(self.plain.first.weight.dtype, torch.float64)
        self.compiled.float()
        self.compiled.extra = 3
        self.assertEqual(self.plain.extra, 3)
        self.plain.first = torch.nn.Linear(4, 4)
        self.assertIs(self.compiled.first, self.plain.first)
        self.compiled.load_state_dict(Net().state_dict())
        self.expect_equal(self.compiled, copy.deepcopy(self.plain))

    def test_it_is_a_submodule_of_others(self):
        other = torch.nn.Sequential(self.compiled, torch.nn.ReLU())
        twin = torch.nn.Sequential(copy.deepcopy(self.plain), torch.nn.ReLU())
        self.assertEqual(list(other.state_dict()), list(twin.state_dict()))
        for _ in range(6):
            x = torch.randn(2, 4)
            self.assertTrue(torch.equal(other(x), twin(x)))
        self.assertGreater(cgtree.torch.stats(self.compiled)["replays"], 1)
        whole = eager(other)
        for _ in range(6):
            x = torch.randn(2, 4)
            self.assertTrue(torch.equal(whole(x), twin(x)))
        self.assertGreater(cgtree.torch.stats(whole)["replays"], 1)

    def test_copies_are_compiled_and_have_state_of_their_own(self):
        for again in (copy.deepcopy(self.compiled), pickle.loads(pickle.dumps(self.compiled))):
            self.assertIsInstance(again, Net)
            self.assertIsNot(again.first.weight, self.compiled.first.weight)
            twin = copy.deepcopy(self.plain)
            self.assertGreater(self.expect_equal(again, twin), 1)
            again.first.weight.fill_(1)
            self.assertFalse(torch.equal(self.plain.first.weight, again.first.weight))

    def test_modules_of_one_class_share_what_pytorch_compiles(self):
        plain = [torch.nn.Linear(4, 4) for _ in range(12)]
        layers = [eager(layer) for layer in plain]
        for _ in range(9):  # more layers than recordings that may fail to pay: the others wait once
            x = y = torch.randn(2, 4)
            for layer, twin in zip(layers, plain):
                x, y = layer(x), twin(y)
            self.assertTrue(torch.equal(x, y))
        self.assertEqual(cgtree.torch.stats(layers[0])["graphs"], 1)
        self.assertGreater(cgtree.torch.stats(layers[0])["replays"], 12)

    def test_a_buffer_that_is_passed_as_an_argument_is_refused(self):
        class Keep(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("kept", torch.zeros(4))

            def forward(self, x):
                self.kept.add_(1)
                return x * self.kept

        keep = Keep()
        compiled = eager(keep)
        for _ in range(5):
            compiled(torch.ones(4))
        compiled(keep.kept)  # PyTorch compiles again for this call, but not for the next one
        compiled(torch.ones(4))
        with self.assertRaisesRegex(cgtree.WrongValue, "skip_no_tensor_aliasing_guards"):
            compiled(keep.kept)

    def test_it_ends_with_its_last_reference(self):
        self.compiled(torch.ones(2, 4))
        gone = [weakref.ref(self.compiled), weakref.ref(self.plain)]
        self.compiled = self.plain = None
        torch._dynamo.reset()
        gc.collect()
        self.assertEqual([reference() for reference in gone], [None, None])


class FunctionPythonTest(unittest.TestCase):
    """Functions made by compile(), and its refusals."""

    def setUp(self):
        torch._dynamo.reset()

    def test_functions_keep_their_names_and_signatures(self):
        def step(x: torch.Tensor, /, y=1, *, z="a"):
            """Adds."""
            return x + y

        compiled = eager(step)
        self.assertEqual(inspect.signature(compiled), inspect.signature(step))
        self.assertEqual((compiled.__name__, compiled.__doc__), ("step", "Adds."))

    def test_a_decorator_with_and_without_arguments(self):
        @cgtree.torch.compile(kernels="eager", dynamic=False)
        def first(x):
            return x + 1

        second = cgtree.torch.compile(kernels="eager")(lambda x: x + 1)
        for function in (first, second):
            for _ in range(6):
                self.assertEqual(function(torch.ones(1)).item(), 2)
            self.assertGreater(cgtree.torch.stats(function)["replays"], 1)

    def test_unknown_and_removed_options_are_refused_at_once_with_what_to_write(self):
        for options, words in (({"mode": "reduce-overhead"}, "leave it out"),
                               ({"mode": "max-autotune"}, "max_autotune"),
                               ({"mode": "fast"}, "expected one of default"),
                               ({"static": ("w",)}, "PyTorch knows"),
                               ({"mutated": "x"}, "custom_op"),
                               ({"backend": "inductor"}, "expected kernels"),
                               ({"kernels": "triton"}, "inductor, eager"),
                               ({"kernels": "eager", "options": {"max_autotune": True}},
                                "recording=")):
            with self.assertRaisesRegex(cgtree.InvalidArgument, words):
                cgtree.torch.compile(lambda x: x, **options)
        for wrong in (3, Net):
            with self.assertRaises(cgtree.InvalidArgument):
                cgtree.torch.compile(wrong)
        with self.assertRaises(cgtree.InvalidArgument):
            cgtree.torch.stats(lambda x: x)

    def test_threads_may_compile_functions_at_once(self):
        torch_kernels = sys.modules["cgtree._torch_kernels"]
        names = {f"cgtree-threads-{number}" for number in range(4)}

        def work(_):
            barrier.wait()
            for name in sorted(names):
                torch_kernels._known_name(name.removeprefix("cgtree-"))
            eager(torch.nn.Linear(2, 2))

        barrier = threading.Barrier(8)
        on_threads(8, work)
        self.assertLessEqual(names, torch_kernels._known)

    def test_fullgraph_refuses_a_break(self):
        def step(x):
            torch._dynamo.graph_break()
            return x + 1

        with self.assertRaises(torch._dynamo.exc.Unsupported):
            eager(step, fullgraph=True)(torch.ones(2))
        self.assertEqual(eager(step)(torch.ones(2)).tolist(), [2, 2])

    # Acceptance: trees 64.
    def test_all_threads_share_a_context_of_each_device(self):
        mine, others = cgtree.torch.context("cpu"), []
        thread = threading.Thread(target=lambda: others.append(cgtree.torch.context("cpu")))
        thread.start()
        thread.join()
        self.assertIs(others[0], mine)
        self.assertEqual(mine.device, "host:0")

    # Acceptance: trees 67.
    def test_an_error_names_the_line_of_the_function(self):
        def broken(x):
            return x @ x

        compiled = eager(broken)
        for _ in range(3):
            with self.assertRaisesRegex(RuntimeError, "in broken"):
                compiled(torch.randn(2, 3))
        x = torch.randn(3, 3)
        self.assertTrue(torch.equal(compiled(x), x @ x))

    # Acceptance: trees 134.
    def test_functions_of_the_cpu_touch_no_gpu(self):
        before, compiled = torch.cuda.is_initialized(), eager(lambda x: x + 1)
        for _ in range(4):
            compiled(torch.rand(3))
        self.assertEqual(torch.cuda.is_initialized(), before)
        self.assertEqual(cgtree.torch.stats(compiled)["replays"], 1)

    def test_disable_returns_the_function(self):
        def step(x):
            return x

        self.assertIs(eager(step, disable=True), step)

    # Acceptance: torch 72.
    def test_explain_has_each_graph_and_why_it_runs_eagerly(self):
        compiled = eager(lambda x: x + 1, name="plus")
        self.assertIn("call the function first", cgtree.torch.explain(compiled))
        compiled(torch.ones(3))
        self.assertIn("a kind of 1 call has no recording yet", cgtree.torch.explain(compiled))
        for _ in range(5):
            compiled(torch.ones(3))
        self.assertIn("plus inference on cpu: 6 calls, 3 replayed", cgtree.torch.explain(compiled))
        self.assertIn("a kind of 6 calls is recorded", cgtree.torch.explain(compiled))

        def parts(x):
            return x.to_sparse()

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = eager(parts)
            compiled(torch.ones(3))
        self.assertRegex(cgtree.torch.explain(compiled), "sparse|call the function first|has compiled no graph of it")

    def test_explain_counts_calls_of_a_recorded_kind_that_run_eagerly_and_says_why(self):
        module, whole = torch.nn.Module(), torch.zeros(4, 6)
        module.register_buffer("cache", whole[:, ::2])

        def step(x):
            module.cache.add_(x)
            return x + 1

        compiled = eager(step)
        for number in range(9):
            compiled(whole[:, 1::2] if number in (5, 7, 8) else torch.ones(4, 6)[:, 1::2])
        self.assertIn("a kind of 9 calls is recorded, and 3 calls of it run eagerly, because input",
                      cgtree.torch.explain(compiled))
        reason, = cgtree.torch.stats(compiled)["eager"]
        self.assertRegex(reason, "input . is written and lies between the elements of input .")

    def test_explain_knows_calls_with_inputs_that_are_no_plain_memory(self):
        compiled = eager(lambda x: x + 1)
        for number in range(7):
            x = torch.ones(3, dtype=torch.complex64)
            compiled(x.conj() if number == 5 else x)
        found = [kind for graph in _graphs_of(compiled) for kind in graph.kinds()]
        for kind in found:
            self.assertEqual(kind["eager_calls"] > 1, kind["exception"] is not None, found)

    def test_reset_drops_recordings_and_keeps_counts(self):
        compiled = eager(lambda x: x * 5)
        for _ in range(6):
            compiled(torch.ones(3))
        before = cgtree.torch.stats(compiled)
        kinds = [weakref.ref(kind) for graph in _graphs_of(compiled) for kind in graph._kinds.values()]
        cgtree.torch.reset(compiled)
        self.assertEqual(cgtree.torch.stats(compiled), before)
        gc.collect()
        self.assertEqual([kind() for kind in kinds], [None])
        for _ in range(6):
            self.assertEqual(compiled(torch.ones(1)).item(), 5)
        self.assertGreater(cgtree.torch.stats(compiled)["replays"], before["replays"])

    def test_counts_outlive_graphs_that_pytorch_drops(self):
        compiled, of_all = eager(lambda x: x * 7), cgtree.torch.stats()
        for _ in range(6):
            compiled(torch.ones(3))
        before = cgtree.torch.stats(compiled)
        torch._dynamo.reset()
        gc.collect()
        after = cgtree.torch.stats(compiled)
        self.assertEqual(after, {**before, "graphs": 0})
        self.assertGreaterEqual(cgtree.torch.stats()["replays"], of_all["replays"] + before["replays"])

    def test_options_of_recordings_are_taken(self):
        compiled = eager(lambda x: x - 1, recording={"enabled": False})
        for _ in range(6):
            compiled(torch.ones(3))
        self.assertEqual(cgtree.torch.stats(compiled)["replays"], 0)

    def test_the_back_end_takes_the_same_kernels(self):
        cgtree.torch.register_backend()
        for backend in ("cgtree", cgtree.torch.backend):
            torch._dynamo.reset()
            compiled = torch.compile(lambda x: x + 3, backend=backend,
                                     options={"kernels": "eager"})
            before = cgtree.torch.stats()["replays"]
            for _ in range(6):
                self.assertEqual(compiled(torch.ones(1)).item(), 4)
            self.assertGreater(cgtree.torch.stats()["replays"], before)

    def test_kernels_of_inductor_are_recorded(self):
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
        twin = copy.deepcopy(model)
        compiled = cgtree.torch.compile(model)
        for number in range(8):
            grads = []
            for module in (compiled, twin):
                torch.manual_seed(number)
                try:
                    module(torch.randn(3, 8)).square().sum().backward()
                except torch._dynamo.exc.BackendCompilerFailed as error:
                    self.skipTest(f"Inductor cannot compile here: {str(error).splitlines()[0]}")
                grads.append([parameter.grad.clone() for parameter in module.parameters()])
                module.zero_grad()
            torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-4)
        self.assertEqual(cgtree.torch.stats(compiled)["graphs"], 2)
        self.assertGreater(cgtree.torch.stats(compiled)["replays"], 6)


if __name__ == "__main__":
    unittest.main()
