"""cgtree.torch.compile() on the CPU, where the function is a node of a graph of the host device."""

import gc
import sys
import unittest
import weakref

sys.path.insert(0, "tests/python")

try:
    import torch
except ImportError as error:
    raise unittest.SkipTest("PyTorch is absent") from error

import torch_modules  # noqa: E402
import torch_newcomer  # noqa: E402
from support import SEED, cgtree, setUpModule  # noqa: E402,F401
from torch_cases import CASES, Trial  # noqa: E402

from cgtree import _torch_tree  # noqa: E402
from cgtree._torch_watch import Watch  # noqa: E402


class CasesPythonTest(unittest.TestCase):
    """The cases that need no GPU; torch_newcomer.py runs all of them on one."""


class ModulesPythonTest(unittest.TestCase):
    """Modules of torch.nn and models, with fewer inputs than torch_newcomer.py gives them."""


def _add(test, name, function, needs):
    def run(self):
        missing = torch_newcomer.absent(needs, "cpu")
        if missing:
            self.skipTest(f"{missing} is absent")
        torch.manual_seed(SEED)
        function(Trial("cpu", inputs=10))

    setattr(test, f"test_{name}", run)


for _test, _cases in ((CasesPythonTest, CASES), (ModulesPythonTest, torch_modules.CASES)):
    for _name, (_function, _needs) in _cases.items():
        if "cuda" not in _needs:
            _add(_test, _name, _function, _needs)


class ShapePythonTest(unittest.TestCase):
    def shape(self, value):
        leaves = []
        return _torch_tree.flatten(value, leaves), leaves

    def test_values_that_are_not_the_same_have_other_shapes(self):
        values = [1, True, 1.0, "1", None, 0.0, -0.0, float("nan"), (), [], {}, (1,), [1],
                  {"a": 1}, {"b": 1}, {"a": 1.0}, torch.float32, torch.device("cpu"), print, b"1"]
        shapes = [self.shape(value)[0] for value in values]
        self.assertEqual(len(set(shapes)), len(values))
        self.assertEqual(shapes, [self.shape(value)[0] for value in values])

    def test_the_inverse_makes_equal_values(self):
        x, y = torch.rand(2), torch.rand(3)
        value = {"a": [x, (y, None, 2.5)], "b": {"c": y}, 3: float("nan")}
        shape, leaves = self.shape(value)
        made = _torch_tree.unflatten(shape, iter(leaves))
        self.assertEqual(len(leaves), 3)
        self.assertIs(made["a"][0], x)
        self.assertEqual(made["a"][1][1:], (None, 2.5))
        self.assertEqual(list(made), ["a", "b", 3])
        self.assertNotEqual(made[3], made[3])


class WatchPythonTest(unittest.TestCase):
    def test_a_change_and_its_reversal_have_their_states(self):
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout())
        watch = Watch([model])
        first = watch.state
        self.assertTrue(watch.holds())
        changes = [lambda: model.train(False),
                   lambda: setattr(model[0], "weight", torch.nn.Parameter(torch.rand(2, 2))),
                   lambda: setattr(model[0].bias, "data", torch.rand(2)),
                   lambda: setattr(model, "1", torch.nn.ReLU()),
                   lambda: model.append(torch.nn.ReLU())]
        for number, change in enumerate(changes[:4]):
            change()
            self.assertFalse(watch.holds(), number)
            watch.refresh()
            self.assertTrue(watch.holds(), number)
            self.assertNotEqual(watch.state, first, number)
        model = torch.nn.Linear(2, 2)
        watch = Watch([model])
        first = watch.state
        for training, state in ((False, first + 1), (True, first), (False, first + 1)):
            model.train(training)
            watch.refresh()
            self.assertEqual(watch.state, state)

    def test_attributes_that_have_the_names_of_globals_are_not_taken_for_them(self):
        namespace = {}
        exec("size = 1\ndef f(x): return x.size", namespace)  # pylint: disable=exec-used
        watch = Watch([namespace["f"]])
        namespace["size"] = 2
        self.assertTrue(watch.holds())


class WarmCallPythonTest(unittest.TestCase):
    def warm(self, function, *args):
        compiled = cgtree.torch.compile(function)
        for _ in range(4):
            compiled(*args)
        (call, _), = compiled._local.warm
        return compiled, call

    def test_a_call_that_differs_is_not_made(self):
        x, n = torch.rand(4), 2
        seen = []
        compiled, call = self.warm(lambda x, n, how: seen.append(n) or x * n, x, n, {"a": [1.5]})
        self.assertTrue(torch.equal(call(((x, 2, {"a": [1.5]}), {})), x * 2))
        del seen[:]
        for args, kwargs in (((x, 3, {"a": [1.5]}), {}), ((x, 2.0, {"a": [1.5]}), {}),
                             ((x, True, {"a": [1.5]}), {}), ((x, 2, {"b": [1.5]}), {}),
                             ((x, 2, {"a": [1.5, 2]}), {}), ((x, 2, {"a": (1.5,)}), {}),
                             ((x, 2), {"how": {"a": [1.5]}}), ((x, 2, {"a": [float("nan")]}), {}),
                             ((torch.rand(5), 2, {"a": [1.5]}), {}), ((x, 2), {}), ((), {}),
                             ((torch.nn.Parameter(x), 2, {"a": [1.5]}), {}),
                             ((x.to_sparse(), 2, {"a": [1.5]}), {})):
            self.assertIs(call((args, kwargs)), NotImplemented, (args, kwargs))
        for mode in (torch.no_grad(), torch.inference_mode(), torch.device("cpu"),
                     torch.autocast("cpu", dtype=torch.bfloat16)):
            with mode:
                self.assertIs(call(((x, 2, {"a": [1.5]}), {})), NotImplemented, mode)
        self.assertIs(call(((x.clone().requires_grad_(), 2, {"a": [1.5]}), {})), NotImplemented)
        self.assertEqual(seen, [])
        self.assertTrue(torch.equal(compiled(x, 2, {"a": [1.5]}), x * 2))

    def test_arguments_end_with_their_last_reference(self):
        x = torch.rand(1000)
        compiled, call = self.warm(lambda x: x + 1, x)
        for size in (1000, 1000, 1000):
            given = torch.rand(size)
            gone = weakref.ref(given)
            self.assertTrue(torch.equal(call(((given,), {})), given + 1))
            del given
            self.assertIsNone(gone())
        self.assertGreater(compiled.stats()["replays"], 3)

    def test_old_weights_end_when_they_are_replaced(self):
        model = torch.nn.Linear(3, 3)
        with torch.no_grad():
            compiled = self.warm(model, torch.rand(2, 3))[0]
            gone = weakref.ref(model.weight)
            model.weight = torch.nn.Parameter(torch.rand(3, 3))
            x = torch.rand(2, 3)
            self.assertTrue(torch.equal(compiled(x), model(x)))
        compiled.reset()
        gc.collect()
        self.assertIsNone(gone())

    def test_wrong_parts_are_refused(self):
        with self.assertRaises(TypeError):
            cgtree._cgtree.WarmCall()
        with self.assertRaises(TypeError):
            cgtree._cgtree.Watched([1], [], [], [], False)
        with self.assertRaises(TypeError):
            cgtree._cgtree.Watched([], [(1, 2, 3)], [], [], False)
        core = cgtree.compile(lambda x: x, context=cgtree.Context("host"))
        watched = cgtree._cgtree.Watched([], [], [], [], False)
        for wrong in ((None, watched), (core, None), (3, watched)):
            with self.assertRaises(TypeError):
                cgtree._cgtree.WarmCall(wrong[0], torch.Tensor, (tuple, None, ()), (), (), wrong[1],
                                        None, print, 0, False, None)
        for shape in ((1, 2), ("tensor", None, ()), ("registered", None, ())):
            with self.assertRaises(cgtree.InvalidArgument):
                cgtree._cgtree.WarmCall(core, torch.Tensor, shape, (), (), watched, None, print, 0,
                                        False, None)


class LimitsPythonTest(unittest.TestCase):
    def test_an_object_with_a_compiled_method_ends_with_its_last_reference(self):
        class Counter:
            def __init__(self):
                self.weight = torch.ones(3)

            @cgtree.torch.compile
            def step(self, x):
                return x * self.weight

        counter = Counter()
        for _ in range(4):
            self.assertEqual(counter.step(torch.ones(3)).tolist(), [1, 1, 1])
        gone = weakref.ref(counter)
        del counter
        gc.collect()
        self.assertIsNone(gone())

    def test_a_number_that_always_changes_runs_eagerly_and_says_what_to_do(self):
        compiled = cgtree.torch.compile(lambda x, n: x + n, max_kinds=4)
        with self.assertWarnsRegex(RuntimeWarning, "pass numbers that change as tensors"):
            for n in range(8):
                self.assertTrue(torch.equal(compiled(torch.ones(2), n), torch.ones(2) + n))

    def test_an_argument_that_is_not_there_is_refused(self):
        compiled = cgtree.torch.compile(lambda x: x, static=("weight",))
        with self.assertRaisesRegex(cgtree.InvalidArgument, "no argument 'weight'"):
            compiled(torch.ones(2))

    def test_a_function_that_returns_other_values_runs_eagerly(self):
        count = iter(range(100))
        compiled = cgtree.torch.compile(lambda x: (x + 1, next(count)))
        with self.assertWarnsRegex(RuntimeWarning, "returns something else"):
            self.assertEqual([compiled(torch.ones(2))[1] for _ in range(6)], list(range(6)))


if __name__ == "__main__":
    unittest.main()
