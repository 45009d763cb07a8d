"""Modules' names as scopes, on the CPU: the open scopes while each operator runs."""

import sys
import threading
import unittest
import unittest.mock

sys.path.insert(0, "tests/python")

try:
    import torch
except ImportError as error:
    raise unittest.SkipTest("PyTorch is absent") from error

from support import SEED, cgtree, setUpModule  # noqa: E402,F401

import cgtree.torch  # noqa: E402
from cgtree import _torch_scopes  # noqa: E402


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.mlp = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        return x + self.mlp(torch.relu(self.attention(x)))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.head = torch.nn.ModuleList([Layer(), Layer()]), torch.nn.Linear(4, 2)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Scopes:
    """Records the scopes of the thread."""

    def __init__(self):
        self.open, self.seen, self.count = {}, [], 0

    def _open_scope(self, name):
        self.count += 1
        self.open[self.count] = name
        self.seen.append("/".join(self.open.values()))
        return self.count

    def _close_scope(self, number):
        self.open.pop(number, None)


class TorchScopesTest(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        torch.manual_seed(SEED)
        self.model, self.x = Model(), torch.randn(3, 4)
        self.scopes = Scopes()
        patch = unittest.mock.patch.object(_torch_scopes, "_cgtree", self.scopes)
        patch.start()
        self.addCleanup(patch.stop)

    def test_operators_of_compiled_graphs_have_the_paths_of_their_modules(self):
        compiled = cgtree.torch.compile(self.model, kernels="eager")
        with torch.no_grad():
            self.assertTrue(torch.equal(compiled(self.x), self.model(self.x)))
        layers = [[f"layers/{i}/attention", f"layers/{i}", f"layers/{i}/mlp", f"layers/{i}"] for i in range(2)]
        self.assertEqual(self.scopes.seen, [*layers[0], *layers[1], "head"])
        self.assertEqual(self.scopes.open, {})

    def test_operators_of_backward_passes_have_those_of_the_forward_pass(self):
        compiled = cgtree.torch.compile(self.model, kernels="eager")
        compiled(self.x).sum().backward()
        found = self.model.head.weight.grad.clone()
        self.model.zero_grad()
        self.model(self.x).sum().backward()
        self.assertTrue(torch.equal(found, self.model.head.weight.grad))
        backward = self.scopes.seen[self.scopes.seen.index("head") + 1:]
        self.assertEqual(backward[0], "head")
        for i in (1, 0):
            self.assertIn(f"layers/{i}/mlp", backward)
        self.assertEqual(self.scopes.open, {})

    def test_a_function_without_modules_has_none(self):
        compiled = cgtree.torch.compile(lambda x: x * 2 + 1, kernels="eager")
        self.assertTrue(torch.equal(compiled(self.x), self.x * 2 + 1))
        self.assertEqual(self.scopes.seen, [])

    def test_modules_that_run_eagerly_open_scopes_in_the_block(self):
        with cgtree.torch.name_modules(self.model, "model"), torch.no_grad():
            self.model(self.x)
        layers = [[f"model/layers/{i}", f"model/layers/{i}/attention", f"model/layers/{i}/mlp"] for i in range(2)]
        self.assertEqual(self.scopes.seen, ["model", *layers[0], *layers[1], "model/head"])
        self.assertEqual(self.scopes.open, {})
        self.model(self.x)
        self.assertEqual(len(self.scopes.seen), 8)

    def test_a_module_that_raises_leaves_no_scope_open(self):
        with cgtree.torch.name_modules(self.model), self.assertRaises(RuntimeError):
            self.model(torch.randn(3, 5))
        self.assertEqual(self.scopes.seen, ["layers/0", "layers/0/attention"])
        self.assertEqual(self.scopes.open, {})

    def test_a_module_that_threads_use_at_once_closes_the_scope_of_its_thread(self):
        closed_by, is_in, is_out = {}, [threading.Event(), threading.Event()], threading.Event()

        class Waits(torch.nn.Module):
            def forward(self, number):
                is_in[number].set()
                (is_out if number else is_in[1]).wait(60)
                return number

        self.scopes._open_scope = lambda name: threading.get_ident()
        self.scopes._close_scope = lambda scope: closed_by.setdefault(threading.get_ident(), []).append(scope)

        def run(model, number):  # the first thread to enter leaves first
            if number:
                is_in[0].wait(60)
            model(number)
            is_out.set()

        with cgtree.torch.name_modules(Waits(), "model") as model:
            threads = [threading.Thread(target=run, args=(model, number)) for number in (0, 1)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(closed_by, {thread.ident: [thread.ident] for thread in threads})

    def test_a_module_that_is_used_twice_or_within_itself_closes_what_it_has_opened(self):
        twice = torch.nn.Sequential(self.model.layers[0], self.model.layers[0])
        with cgtree.torch.name_modules(twice), torch.no_grad():
            twice(self.x)
        self.assertEqual(self.scopes.seen.count("0"), 2)
        self.assertEqual(self.scopes.open, {})

    def test_names_do_not_change_what_is_compiled(self):
        with cgtree.torch.name_modules(self.model), torch.no_grad():
            compiled = cgtree.torch.compile(self.model, kernels="eager", fullgraph=True)
            self.assertTrue(torch.equal(compiled(self.x), self.model(self.x)))


if __name__ == "__main__":
    unittest.main()
