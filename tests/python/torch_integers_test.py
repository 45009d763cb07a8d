"""Integer inputs of PyTorch's graphs: if operators accept a tensor for it, one recording reads the integer at each
call; otherwise each value has a recording.
"""

import dataclasses
import importlib.util
import logging
import random
import sys
import unittest
import unittest.mock

sys.path.insert(0, "tests/python")

try:
    import torch
except ImportError as error:
    raise unittest.SkipTest("PyTorch is absent") from error

from support import SEED, cgtree, setUpModule  # noqa: E402,F401
from torch_graphs import GPU, captured_on_host, graph_on_gpu, partitions  # noqa: E402

import cgtree.torch  # noqa: E402
from cgtree import _torch_partition, _torch_seam  # noqa: E402
from cgtree._torch_seam import Graph  # noqa: E402

torch._logging.set_logs(all=logging.ERROR)
RANDOM = random.Random(SEED)
LARGE = (2**31, 2**53 + 1, 2**60 + 2**36 + 1, -2**62 + 3, 2**63 - 1, -2**63)


def any_integer():
    return RANDOM.choice((0, 1, -1, 7, RANDOM.randrange(-1000, 1000), RANDOM.choice(LARGE),
                          RANDOM.randrange(-2**62, 2**62)))


@dataclasses.dataclass
class State:
    x: torch.Tensor
    step: int


def write(x, n):
    x[:, n:n + 1] = x[:, :1] * 3
    return x[n:n + 2] * 2


def rows_of(shape):
    return lambda n: (torch.randn(*shape), n)


def fills(x, n):
    return (x.clone().fill_(n), torch.full((3,), n), torch.full((2, 3), n, dtype=torch.float32), torch.full(
        (2,), n, dtype=torch.bfloat16), torch.full((2,), n, dtype=torch.bool), torch.tensor(n), torch.where(x > 0, x, n))


def sums(x, n):
    whole, narrow, bits = x.long(), x.to(torch.int32), x.to(torch.int8)
    return x + n, n - x, x * (n // 2 + 1), x.double() * n, whole - n, n - whole, narrow + n, bits * n, x[0, 0] + n


def compares(x, n):
    return x == n, x.long() < n, x.to(torch.int32) >= n, x.double() != n, torch.arange(6) <= n


# A name, the function, its arguments, and its integers.
CASES = (
    ("sums", sums, rows_of((4, 3)), any_integer),
    ("comparisons", compares, rows_of((4, 3)), any_integer),
    ("fills", fills, rows_of((4, 3)), any_integer),
    ("an attribute", lambda state: state.x * 2 + state.step, lambda n: (State(torch.randn(5), n),), any_integer),
    ("a mask", lambda x, n: x.masked_fill(torch.arange(6) > n, float("-inf")), rows_of((2, 6)),
     lambda: RANDOM.randrange(-2, 9)),
    ("indices", lambda x, n: x[torch.arange(3) + n], rows_of((9, 2)), lambda: RANDOM.randrange(-9, 7)),
    ("a place in a cache", write, rows_of((9, 9)), lambda: RANDOM.randrange(7)),
    ("a result", lambda x, n: (x * n, n * 2 + 1, n), rows_of((3,)), lambda: RANDOM.randrange(-2**40, 2**40)),
)


def copied(item):
    return State(item.x.clone(), item.step) if isinstance(item, State) else (
        item.clone() if isinstance(item, torch.Tensor) else item)


class IntegersPythonTest(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        torch.manual_seed(SEED)
        grad = torch.no_grad()
        grad.__enter__()
        self.addCleanup(grad.__exit__, None, None, None)

    def expect_same(self, got, want):
        for a, b in zip(*[given if isinstance(given, tuple) else (given,) for given in (got, want)], strict=True):
            if not isinstance(b, torch.Tensor):
                self.assertEqual((type(a), a), (type(b), b))
                continue
            self.assertEqual((a.dtype, a.shape, a.stride()), (b.dtype, b.shape, b.stride()))
            self.assertEqual(a.contiguous().view(-1).view(torch.uint8).tolist(), b.contiguous().view(-1).view(torch.uint8).tolist())

    def expect_calls(self, compiled, function, arguments, integers):
        for n in integers:
            given = arguments(n)
            twin = tuple(map(copied, given))
            self.expect_same(compiled(*given), function(*twin))
            for a, b in zip(given, twin):
                if isinstance(a, torch.Tensor):
                    self.expect_same(a, b)

    def test_an_integer_that_changes_at_each_call_is_replayed(self):
        for what, function, arguments, integer in CASES:
            with self.subTest(what):
                torch._dynamo.reset()
                compiled = cgtree.torch.compile(function, kernels="eager")
                # The first two calls have other integers: Dynamo treats an integer that stays the
                # same as a constant.
                self.expect_calls(compiled, function, arguments, [3, 2, *[integer() for _ in range(398)]])
                self.assertGreaterEqual(cgtree.torch.stats(compiled)["replays"], 395, cgtree.torch.explain(compiled))

    def test_a_step_that_counts_from_0_is_replayed(self):
        compiled = cgtree.torch.compile(lambda x, n: (x + n).sin(), kernels="eager")
        self.expect_calls(compiled, lambda x, n: (x + n).sin(), rows_of((3,)), range(400))
        self.assertGreaterEqual(cgtree.torch.stats(compiled)["replays"], 395)

    def test_backward_passes_take_it_too(self):
        def step(x, n):
            return (x * n).sin() + n

        compiled = cgtree.torch.compile(step, kernels="eager")
        with torch.enable_grad():
            for n in [any_integer() for _ in range(40)]:
                x, grads = torch.randn(4, requires_grad=True), []
                for call in (compiled, step):
                    x.grad = None
                    call(x, n).sum().backward()
                    grads.append(x.grad)
                self.expect_same(*grads)
        self.assertGreaterEqual(cgtree.torch.stats(compiled)["replays"], 2 * 34)

    def test_a_size_and_what_bits_depend_on_have_a_recording_for_each_value(self):
        for function, integers, name in (
                (lambda x, n: x[:n] + n, range(1, 9), "aten.slice.Tensor"),
                (lambda x, n: (x * 2)[:, n:n + 2], range(6), "aten.slice.Tensor"),  # a view with visible strides
                (lambda x, n: torch.full((2,), n, dtype=torch.float16) + 1, (3, 5, -4, 60000), "aten.full.default"),
                (lambda x, n: x / n, range(2, 9), "aten.div.Tensor")):
            torch._dynamo.reset()
            compiled = cgtree.torch.compile(function, kernels="eager")
            self.expect_calls(compiled, function, rows_of((8, 8)), [*integers] * 5)
            self.assertIn(f"each value of an integer is a kind of calls, because it is no tensor in {name}",
                          cgtree.torch.explain(compiled))
            self.assertGreaterEqual(cgtree.torch.stats(compiled)["replays"], len(integers))

    def test_an_integer_that_is_too_large_raises_what_pytorch_raises(self):
        compiled = cgtree.torch.compile(lambda x, n: x + torch.full((3,), n, dtype=torch.int32), kernels="eager")
        for n in (3, 4, 5, 6, 2**40, 7, -2**31 - 1, 8):
            if abs(n) > 2**31:
                with self.assertRaisesRegex(RuntimeError, "without overflow"):
                    compiled(torch.ones(3), n)
            else:
                self.assertEqual(compiled(torch.ones(3), n).tolist(), [n + 1.0] * 3)
        self.assertGreaterEqual(cgtree.torch.stats(compiled)["replays"], 2)

    def test_an_integer_of_64_bits_without_a_sign_is_an_operand_as_in_pytorch(self):
        large = [3, 2, 2**63 - 1, 2**63, 2**63 + 2**39 + 1, 2**64 - 2, 7, 8, 9]
        for function in (
                lambda x, n: (x + n, x.double() * n, n - x.long(), x < n, torch.full((2,), n, dtype=torch.float32)),
                lambda x, n: x.double() + (n + 1)):
            torch._dynamo.reset()
            compiled = cgtree.torch.compile(function, kernels="eager")
            self.expect_calls(compiled, function, rows_of((3,)), large)
            self.assertGreaterEqual(cgtree.torch.stats(compiled)["replays"], 1)
        compiled = cgtree.torch.compile(lambda x, n: (x + n, torch.full((3,), n)), kernels="eager")
        for n in (3, 2, 4, 2**63, 5):
            if n < 2**63:
                self.assertEqual(compiled(torch.ones(3), n)[1].tolist(), [n] * 3)
            else:
                with self.assertRaisesRegex(RuntimeError, "without overflow"):  # as torch.full() does
                    compiled(torch.ones(3), n)

    def test_a_graph_whose_capture_fails_takes_it_in_each_piece(self):
        def step(x, n):
            return torch.ops.cgtree_test.hidden(x + n) * n + torch.full((3,), n)

        compiled = cgtree.torch.compile(step, kernels="eager")
        with unittest.mock.patch.object(_torch_seam, "run_on_host", captured_on_host):
            self.expect_calls(compiled, step, rows_of((3,)), range(-9, 9))
        self.assertGreaterEqual(cgtree.torch.stats(compiled)["replays"], 2 * 8)

    def test_an_operator_between_recordings_takes_it_as_a_tensor(self):
        def step(x, n):
            return (torch.full((3,), n) + x.sin()) * n + 1

        reads_back = _torch_partition._reads_back
        for name in ("expand", "add", "mul"):
            torch._dynamo.reset()
            with unittest.mock.patch("cgtree._torch_partition._reads_back",
                                     lambda node, name=name: f"aten.{name}." in str(node.target) or reads_back(node)):
                compiled = cgtree.torch.compile(step, kernels="eager")
                self.expect_calls(compiled, step, rows_of((3,)), range(2, 14))
                self.assertGreaterEqual(cgtree.torch.stats(compiled)["replays"], 8, name)

    def test_on_a_gpu_a_graph_takes_it_without_a_cut(self):
        for function, count in ((lambda x, n: (x + n).sin() * n, 1), (lambda x, n: (x + (n + 1)).sin() * n, 2)):
            graph, made = graph_on_gpu(function, ((4, 3), torch.float32, GPU), int), []
            _torch_partition.partition(graph, GPU, lambda part, names: made.append(part) or part.forward)
            [part] = made
            values, _, uses = _torch_partition.values_of(part)
            self.assertEqual((list(values.values()), uses), ([torch.int64] * count, []))
            placeholders = part.graph.find_nodes(op="placeholder")
            self.assertEqual({node.meta["val"].device for node in placeholders}, {GPU})

    def test_a_recording_takes_integers_alone(self):
        graph = Graph(lambda inputs: [inputs[0] * inputs[1]], torch.device("cpu"), "inference", (), (),
                      values={1: torch.int16})
        for n in (3, 4, -5, 6, 2**15, 2**70, 7, -2**15, True, torch.tensor(9, dtype=torch.int16)):
            x = torch.ones(3, dtype=torch.int64)
            if type(n) is int and n in (2**15, 2**70):
                with self.assertRaises((RuntimeError, OverflowError)):
                    graph([x, n])
            else:
                self.assertEqual(graph([x, n])[0].tolist(), [int(n)] * 3)
        self.assertEqual(graph.stats()["replays"], 3)
        with self.assertRaisesRegex(cgtree.InvalidArgument, "a type of integers"):
            cgtree._cgtree.FlatCall(cgtree.Context("host").compile(lambda x: x), torch.Tensor, torch.Tensor, None,
                                    ((1, torch.float32),), (), None, None, (-1, 0, 0, 0, 0, 0))


@unittest.skipUnless(importlib.util.find_spec("triton"), "Triton is absent")
class InductorIntegersPythonTest(unittest.TestCase):
    def test_partitions_of_inductor_have_no_integer(self):
        x = ((4, 3), torch.float32, GPU)
        for what, function in (
                ("sums", lambda x, n: (x.sin() + n) * (n + 1) - n),
                ("comparisons", lambda x, n: torch.where(x < n, x.sin(), x)),
                ("a slice", lambda x, n: x.sin()[n:n + 2] * 2),
                ("fills", lambda x, n: torch.full((3,), n, device=GPU) + x)):
            with self.subTest(what):
                found = partitions(function, x, int)
                recorded = [part for part in found if part is not None]
                self.assertTrue(recorded, found)
                for operators, inputs in recorded:
                    self.assertEqual(inputs - {"cuda:0"}, set(), (operators, found))


if __name__ == "__main__":
    unittest.main()
