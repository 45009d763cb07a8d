"""Partitioning of PyTorch's graphs: the rule for graphs of a GPU, and the pieces on the CPU."""

import importlib.util
import itertools
import sys
import unittest
import unittest.mock
import warnings

sys.path.insert(0, "tests/python")

try:
    import torch
except ImportError as error:
    raise unittest.SkipTest("PyTorch is absent") from error

from support import SEED, cgtree, setUpModule  # noqa: E402,F401
from torch_graphs import CPU, GPU, captured_on_host, graph_on_gpu, partitions, waits  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # noqa: E402
from torch.fx.experimental import proxy_tensor  # noqa: E402
from torch.fx.experimental.symbolic_shapes import ShapeEnv  # noqa: E402

import cgtree.torch  # noqa: E402
from cgtree import _torch_partition, _torch_seam  # noqa: E402
from cgtree import _torch_versions as versions  # noqa: E402
from cgtree._errors import NotSupported  # noqa: E402
from cgtree._torch_kernels import Backend  # noqa: E402
from cgtree._torch_partition import INSIDE, ONCE, OUTSIDE, READ  # noqa: E402

@torch.library.custom_op("cgtree_test::sizes", mutates_args=())
def sizes(x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Scales each group of rows by its number, in the place of a product with the matrices of experts."""
    y, start = torch.zeros_like(x), 0
    for i, end in enumerate(ends.tolist()):
        y[start:end] = x[start:end] * (i + 1)
        start = end
    return y


@sizes.register_fake
def _(x, ends):
    return torch.empty_like(x)


@torch.library.custom_op("cgtree_test::halves", mutates_args=())
def halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    middle = sum(1 for value in x.tolist() if value) // 2
    return x[:middle].clone(), x[middle:].clone()


@halves.register_fake
def _(x):
    return x[:len(x) // 2].clone(), x[len(x) // 2:].clone()


class PlacesPythonTest(unittest.TestCase):
    def test_operators_that_cannot_be_captured_are_known_from_the_graph(self):
        x, ints = ((4, 3), torch.float32, GPU), ((4,), torch.int64, GPU)
        number, vector = ((), torch.float32, CPU), ((3,), torch.float32, CPU)
        rows, mask = ((2,), torch.int64, CPU), ((4, 3), torch.bool, GPU)
        half = ((4, 3), torch.float16, GPU)
        aten = torch.ops.aten
        to_gpu = {"device": GPU}
        made_on_cpu = {} if torch.cuda.is_available() else {"_to_copy": ONCE}  # without a GPU the copy is traced
        for what, function, given, want in (
                ("an operator", lambda x: x + 1, (x,), {"add": INSIDE}),
                ("a number that stays", lambda x: x * torch.tensor(2.0), (x,),
                 {"lift_fresh_copy": ONCE, "mul": INSIDE}),
                ("constants", lambda x: x + torch.tensor([1.0, 2.0, 3.0], **to_gpu) * 2, (x,),
                 {"lift_fresh_copy": ONCE, "mul": ONCE, "add": INSIDE} | made_on_cpu),
                ("constants made by operators", lambda x: x + torch.arange(3).to(GPU), (x,),
                 {"arange": ONCE, "_to_copy": ONCE, "add": INSIDE}),
                ("a constant that is chosen", lambda x: torch.where(x > 0, x, torch.tensor(3.0)), (x,),
                 {"gt": INSIDE, "lift_fresh_copy": ONCE, "_to_copy": ONCE, "where": INSIDE}),
                ("constant indices", lambda x: x[torch.tensor([0, 2])], (x,),
                 {"lift_fresh_copy": ONCE, "_to_copy": ONCE, "index": INSIDE}),
                ("a tensor of the CPU", lambda x, y: x + y.to(GPU), (x, vector),
                 {"_to_copy": READ, "add": INSIDE}),
                ("work on the CPU", lambda x, y: x + (y * 2).to(GPU), (x, vector),
                 {"mul": OUTSIDE, "_to_copy": READ, "add": INSIDE}),
                ("a number that changes", lambda x, n: x * n, (x, number),
                 {"_to_copy": READ, "mul": INSIDE}),
                ("a number whose bits count", lambda x, n: x / n, (x, number), {"div": OUTSIDE}),
                ("a number of another type", lambda x, n: x * n, (half, number), {"mul": OUTSIDE}),
                ("indices that change", lambda x, i: x[i], (x, rows),
                 {"_to_copy": READ, "index": INSIDE}),
                ("values that are put", lambda x, i, n: aten.index_put(x, [i], n), (x, rows, number),
                 {"_to_copy": READ, "index_put": INSIDE}),
                ("a mask", lambda x, m: x[m], (x, mask), {"index": OUTSIDE}),
                ("a mask that is put", lambda x, m: aten.index_put(x, [m], x.sum()), (x, mask),
                 {"sum": INSIDE, "where": INSIDE}),
                ("a mask of rows", lambda x, m: aten.index_put(x, [m[:, 0]], x.sum()), (x, mask),
                 {"sum": INSIDE, "index_put": OUTSIDE}),
                ("a mask that adds", lambda x, m: aten.index_put(x, [m], x.sum(), True), (x, mask),
                 {"sum": INSIDE, "index_put": OUTSIDE}),
                ("a constant by a mask", lambda x, m: aten.index_put(x, [m], torch.tensor(2.0)), (x, mask),
                 {"lift_fresh_copy": ONCE, "_to_copy": ONCE, "where": INSIDE}),
                ("a value", lambda x: x.sum().item(), (x,),
                 {"sum": INSIDE, "_local_scalar_dense": OUTSIDE}),
                ("a size", lambda x: x.nonzero(), (x,), {"nonzero": OUTSIDE}),
                ("repeats", lambda x, n: x.repeat_interleave(n, 0, output_size=9), (x, ints),
                 {"repeat_interleave": INSIDE, "index_select": INSIDE}),
                ("unknown repeats", lambda x, n: x.repeat_interleave(n, 0), (x, ints),
                 {"repeat_interleave": OUTSIDE}),
                ("a copy to the CPU", lambda x: x.cpu() * 2, (x,), {"_to_copy": OUTSIDE, "mul": OUTSIDE}),
                ("a random number", lambda x: x + torch.rand(3).to(GPU), (x,),
                 {"rand": OUTSIDE, "_to_copy": READ, "add": INSIDE}),
                ("an operator that reads", torch.ops.cgtree_test.sizes, (x, ints), {"sizes": OUTSIDE}),
                ("an operator unknown", torch.ops.cgtree_test.hidden, (x,), {"hidden": INSIDE})):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                graph = graph_on_gpu(function, *given)
            _torch_partition.choose_by_masks(graph.graph)
            _torch_partition.move_operands(graph.graph, GPU)
            found = {}
            for node, place in _torch_partition.places_of(graph.graph, GPU).items():
                if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
                    found.setdefault(_torch_partition._name(node), set()).add(place)
            for name, place in want.items():
                self.assertEqual(found.get(name), {place}, (what, name, found))
            self.assertTrue(set(found) <= {*want, "select", "slice", "view", "expand", "detach"}
                            or OUTSIDE in want.values(), (what, found))

    def test_what_decides_which_work_follows_on_a_gpu_is_outside_and_said(self):
        def step(x):
            y = x * 2
            z = torch.cond(y.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (y,))
            return z + 1

        graph = graph_on_gpu(step, ((4,), torch.float32, GPU))
        backend = Backend("inductor", "f", None, None)
        self.assertIsNone(backend._prepare(graph))
        self.assertEqual(backend.cuts, ["torch.cond()"])
        recorded = []
        pieces = _torch_partition.partition(
            graph, GPU, lambda part, names: recorded.append([str(node.target) for node in part.graph.nodes
                                                             if node.op == "call_function"]))
        self.assertEqual(recorded, [["aten.mul.Tensor", "aten.sum.default", "aten.gt.Scalar"], ["aten.add.Tensor"]])
        self.assertEqual(len(pieces._pieces), 3)

    def test_a_copy_is_placed_once_for_all_that_read_it(self):
        graph = graph_on_gpu(lambda x, n: (x * n, x + n, torch.where(x > n, x, n)),
                             ((4,), torch.float32, GPU), ((), torch.float32, CPU))
        _torch_partition.move_operands(graph.graph, GPU)
        places = list(_torch_partition.places_of(graph.graph, GPU).values())
        self.assertEqual((places.count(READ), places.count(OUTSIDE)), (1, 0))

    def test_what_is_read_at_each_replay_waits_for_pageable_memory_alone(self):
        for is_pinned in (False, True):
            source = unittest.mock.Mock(is_pinned=lambda is_pinned=is_pinned: is_pinned)
            with unittest.mock.patch.object(torch.ops.aten, "_to_copy") as copy:
                _torch_partition.read(source, device=GPU, non_blocking=True)
            copy.default.assert_called_once_with(source, device=GPU, non_blocking=not is_pinned)


class PartitionPythonTest(unittest.TestCase):
    """Graphs are cut at operators that cannot be recorded; on the CPU a test names these operators."""

    def setUp(self):
        torch._dynamo.reset()
        refused = unittest.mock.patch.object(_torch_partition, "_refused", set())
        refused.start()
        self.addCleanup(refused.stop)
        torch.manual_seed(SEED)
        self.reads_back = _torch_partition._reads_back
        self.addCleanup(setattr, _torch_partition, "_reads_back", self.reads_back)

    def cut_at(self, name):
        _torch_partition._reads_back = lambda node: (name in str(node.target)
                                                     or self.reads_back(node))

    def compiled(self, function, **options):
        self.backend = Backend("eager", "f", None, None)
        return torch.compile(function, backend=self.backend, **options)

    def replays(self):
        return [graph.stats()["replays"] for graph in self.backend.graphs]

    def test_what_comes_before_between_and_after_is_recorded(self):
        self.cut_at("sin")
        total, twin = torch.zeros(4), torch.zeros(4)

        def step(x, y, total):
            early = torch.sin(y)
            b = x * 2 + early
            first, second = torch.sin(b).chunk(2)
            total.add_(b)
            return first + second, b, torch.sin(torch.sin(b) * 3), b.t()

        compiled = self.compiled(lambda x, y: step(x, y, total))
        with torch.no_grad():
            for _ in range(9):
                x, y = torch.randn(4), torch.randn(4)
                for a, b in zip(compiled(x, y), step(x, y, twin), strict=True):
                    self.assertTrue(torch.equal(a, b))
                self.assertTrue(torch.equal(total, twin))
        self.assertGreaterEqual(len(self.replays()), 2)
        self.assertGreater(min(self.replays()), 1)

    def test_forward_and_backward_passes_are_cut(self):
        self.cut_at("sin")
        model = torch.nn.Linear(4, 4)
        compiled = self.compiled(lambda x: torch.sin(model(x) * 2).square().sum())
        for _ in range(8):
            x, grads = torch.randn(3, 4), []
            for function in (compiled, lambda x: torch.sin(model(x) * 2).square().sum()):
                model.zero_grad()
                function(x).backward()
                grads.append(model.weight.grad.clone())
            self.assertTrue(torch.equal(*grads))
        self.assertGreater(min(self.replays()), 2)

    def test_operators_that_read_values_back_end_a_recording(self):
        def step(x):
            y = x * 2
            rows = y.nonzero()[:, 0]
            return (x + 1)[rows] * 3, y.sum().item() * x

        config = torch._dynamo.config
        with config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
            compiled = self.compiled(step, fullgraph=True)
            for _ in range(9):
                x = torch.randn(6).relu()
                for a, b in zip(compiled(x), step(x), strict=True):
                    self.assertTrue(torch.equal(a, b))
        self.assertGreater(max(self.replays()), 3)

    # Acceptance: trees 151.
    def test_a_graph_is_cut_at_what_decides_which_work_follows(self):
        def step(x):
            y = x * 2
            first, second = torch.cond(y.sum() > 0, lambda a: (a + 1, a.sin()),
                                       lambda a: (a - 1, a.cos()), (y,))
            left, _ = torch.while_loop(lambda a, n: n.sum() > 0, lambda a, n: (a * 2, n - 1),
                                       (first + 1, (x[:1].abs() * 3).floor()))
            return left * second, y

        compiled = self.compiled(step, fullgraph=True)
        with torch.no_grad():
            for _ in range(12):
                x = torch.randn(5)
                for a, b in zip(compiled(x), step(x), strict=True):
                    self.assertTrue(torch.equal(a, b))
        self.assertEqual(self.backend.cuts, ["torch.cond()", "torch.while_loop()"])
        self.assertEqual(len(self.replays()), 3, "before, between and after")
        self.assertGreater(min(self.replays()), 6)

    def test_backward_passes_are_cut_there_too(self):
        weight = torch.randn(5, requires_grad=True)

        def step(x):
            return torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos() * 2,
                              (x * weight,)).square().sum()

        compiled = self.compiled(step, fullgraph=True)
        for _ in range(10):
            x, grads = torch.randn(5), []
            for call in (step, compiled):
                weight.grad = None
                call(x).backward()
                grads.append(weight.grad)
            self.assertTrue(torch.equal(*grads))
        self.assertGreater(min(self.replays()), 4)

    def test_a_graph_of_nothing_but_a_branch_runs_eagerly_and_says_why(self):
        compiled = cgtree.torch.compile(
            lambda taken, x: torch.cond(taken, lambda a: a.sin(), lambda a: a.cos(), (x,)),
            kernels="eager", fullgraph=True)
        with self.assertWarnsRegex(RuntimeWarning, "nothing of it can be recorded"), torch.no_grad():
            for i in range(4):
                x = torch.randn(3)
                self.assertTrue(torch.equal(compiled(torch.tensor(i % 2 == 0), x),
                                            x.cos() if i % 2 else x.sin()))
        said = cgtree.torch.explain(compiled)
        self.assertIn("a graph is cut at torch.cond(), which reads on the host which way to go", said)
        self.assertIn("a graph runs eagerly, because nothing of it can be recorded", said)

    def test_a_branch_in_a_graph_that_a_graph_calls_is_seen(self):
        inner, outer = torch.fx.Graph(), torch.fx.Graph()
        x = inner.placeholder("x")
        ways = [inner.get_attr(name) for name in ("a", "b")]
        inner.output(inner.call_function(torch.ops.higher_order.cond, (x, *ways, (x,))))
        way = torch.fx.Graph()
        way.output(way.placeholder("x"))
        ways = {name: torch.fx.GraphModule({}, way) for name in ("a", "b")}
        part = torch.fx.GraphModule(ways, inner)
        called = outer.call_function(torch.ops.higher_order.invoke_subgraph,
                                     (outer.get_attr("part"), "part", outer.placeholder("x")))
        plain = outer.call_function(torch.ops.higher_order.invoke_subgraph,
                                    (outer.get_attr("a"), "a", called))
        outer.output(plain)
        graph = torch.fx.GraphModule({"part": part, **ways}, outer)
        nodes = {node.name: node for node in graph.graph.nodes}
        self.assertEqual(_torch_partition.decides(nodes[called.name]), "torch.cond()")
        self.assertIsNone(_torch_partition.decides(nodes[plain.name]))
        self.assertEqual(_torch_partition.decisions(graph), ["torch.cond()"])
        for node in (called, plain):
            nodes[node.name].meta["val"] = torch.empty(3)
        places = _torch_partition.places_of(graph.graph, CPU)
        self.assertEqual(places[nodes[called.name]], OUTSIDE)
        self.assertEqual(places[nodes[plain.name]], INSIDE)

    # Acceptance: trees 151.
    def test_numbers_that_are_read_back_need_one_recording_for_all_values(self):
        config = torch._dynamo.config
        for step in (lambda x: (x @ x).sin() * (x.sum().item() * 2 + 1),
                     lambda x: torch.where((x @ x) > x.sum().item() + 1, x, x * 2).sin(),
                     lambda x: torch.full((4, 3), x.sum().item() + 1).sin() + x[:4, :3],
                     lambda x: x * int((x * 100).sum().item()) + 1,
                     lambda x: x.long() - int((x * 100).sum().item()),
                     lambda x: x * (x.sum().item() > 0) + 1):
            torch._dynamo.reset()
            with config.patch(capture_scalar_outputs=True), torch.no_grad():
                compiled = self.compiled(step, fullgraph=True)
                for _ in range(12):
                    x = torch.randn(5, 5)
                    got, want = compiled(x), step(x)
                    self.assertTrue(torch.equal(got, want) and got.dtype == want.dtype)
                    self.assertEqual(got.stride(), want.stride())
            self.assertGreaterEqual(min(self.replays()), 6)

    def test_numbers_that_are_read_back_are_tensors_of_backward_passes_too(self):
        weight = torch.randn(5, 5, requires_grad=True)

        def step(x):
            return ((x @ weight).sin() * (x.sum().item() + 1)).sum()

        with torch._dynamo.config.patch(capture_scalar_outputs=True):
            compiled = self.compiled(step, fullgraph=True)
            for _ in range(10):
                x, grads = torch.randn(5, 5), []
                for call in (step, compiled):
                    weight.grad = None
                    call(x).backward()
                    grads.append(weight.grad)
                self.assertTrue(torch.equal(*grads))
        self.assertGreaterEqual(min(self.replays()), 5)

    def test_numbers_that_are_read_back_equal_eager_ones_in_each_type(self):
        values = (0.1, -0.0, 3.0, float("inf"), float("nan"), 1e30)

        def step(x, y, z):
            n = y.item() + 0.5
            return x + n, n * x, z * n, z > n, x.half() * n, x.to(torch.int32) * n

        with torch._dynamo.config.patch(capture_scalar_outputs=True), torch.no_grad():
            compiled = self.compiled(step, fullgraph=True)
            for number in range(12):
                x, y = torch.randn(7), torch.tensor(values[number % len(values)])
                for a, b in zip(compiled(x, y, x.double()), step(x, y, x.double()), strict=True):
                    self.assertEqual(a.dtype, b.dtype)
                    self.assertTrue(torch.equal(a.nan_to_num(7), b.nan_to_num(7)))

    def test_a_number_that_is_given_as_a_tensor_makes_the_same_bits_of_the_same_type(self):
        numbers = {torch.float64: (0.1, -0.0, 16777217.0, 1e39), torch.int64: (3, 16777217, 2**53 + 1)}
        rows = torch.tensor([0.1, 16777216, -3])
        changed = 0
        for name, dtype, x in itertools.product(
                _torch_partition._SAME[:3] + _torch_partition._SAME[5:], numbers,
                (rows, rows[0], rows.double(), rows[0].double(), rows.long(), rows[1].long(), rows.int(), rows[1].int())):
            operator = getattr(torch, name)
            with self.subTest(name=name, number=dtype, x=x):
                with FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True):
                    graph = proxy_tensor.make_fx(lambda x, n: operator(x, n.item()))(
                        torch.empty_like(x), torch.empty((), dtype=dtype))
                _torch_partition.take_numbers_as_tensors(graph.graph, CPU)
                graph.recompile()
                changed += "number" in graph.code
                for number in numbers[dtype]:
                    got, want = graph(x, torch.tensor(number, dtype=dtype)), operator(x, number)
                    self.assertEqual((got.dtype, str(got.tolist())), (want.dtype, str(want.tolist())))
        self.assertGreater(changed, 80)

    def test_an_integer_is_rounded_once(self):
        for n in (2**60 + 2**36 + 1, 2**24 + 1, -2**63):
            self.assertEqual(torch.ops.cgtree.number(n, torch.float32).item(), torch.full((2,), n, dtype=torch.float32)[0].item())

    def test_sizes_that_never_come_back_are_not_recorded(self):
        lengths = torch.tensor([0])
        with torch._dynamo.config.patch(capture_scalar_outputs=True), torch.no_grad():
            compiled = self.compiled(lambda x, n: x[:n.item()].sin() + 1, fullgraph=True)
            x = torch.randn(400)
            for number in range(1, 300):
                lengths.fill_(number)
                self.assertTrue(torch.equal(compiled(x, lengths), x[:number].sin() + 1))
        for graph in self.backend.graphs:
            self.assertLessEqual(graph.stats()["recordings"], 1)
            self.assertLessEqual(len(graph.kinds()), _torch_seam.MAX_KINDS // 2)

    def test_tensors_made_of_constants_are_made_once(self):
        self.cut_at("sin")
        calls = []
        self.addCleanup(setattr, _torch_partition, "fold", _torch_partition.fold)
        fold = _torch_partition.fold

        def count(graph, device):
            fold(graph, device)
            calls.append([node.name for node in graph.graph.nodes if "sin" in str(node.target)])

        _torch_partition.fold = count
        compiled = self.compiled(lambda x: x * torch.sin(torch.tensor([1.0, 2.0])) + 1)
        for _ in range(6):
            x = torch.randn(2)
            self.assertTrue(torch.equal(compiled(x), x * torch.sin(torch.tensor([1.0, 2.0])) + 1))
        self.assertEqual(calls, [[]])
        self.assertEqual(self.replays(), [3])

    def test_what_is_made_once_is_not_the_callers(self):
        self.cut_at("sin")
        compiled = self.compiled(lambda x: (x + 1, torch.sin(torch.tensor([1.0, 2.0]))))
        want = torch.sin(torch.tensor([1.0, 2.0]))
        for _ in range(6):
            result = compiled(torch.randn(2))[1]
            self.assertTrue(torch.equal(result, want))
            result.fill_(7)

    def test_views_of_what_is_made_once_share_memory_where_the_eager_ones_do(self):
        def step(x):
            c = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
            return x + c.sum(), c[1:], c, c.t()[0], c + 1

        compiled = self.compiled(step)
        for _ in range(6):
            x = torch.randn(2)
            got, want = compiled(x), step(x)
            for results in (got, want):
                results[1].fill_(7)
                self.assertEqual(results[2].tolist(), [[1, 2], [7, 7]])
            for a, b in zip(got, want, strict=True):
                self.assertTrue(torch.equal(a, b))
            del got, want, results, a, b  # held outputs would need another recording
        self.assertEqual(self.replays(), [3])

    def test_operators_whose_own_code_reads_values_back_end_a_recording(self):
        def step(x, w):
            order = (x @ w).argmax(-1).sort()
            ends = torch.histc(order.values.float(), 4, 0, 3).cumsum(0).long()
            return torch.ops.cgtree_test.sizes(x[order.indices], ends).exp() + 1

        compiled, w = self.compiled(step, fullgraph=True), torch.randn(3, 4)
        with torch.no_grad():
            for _ in range(8):
                x = torch.randn(6, 3)
                self.assertTrue(torch.equal(compiled(x, w), step(x, w)))
        self.assertEqual(self.replays(), [5, 5])

    def test_values_that_may_change_are_read_at_each_replay(self):
        place_of = _torch_partition.place_of

        def read_copies(node, device, places):
            is_copy = node.target is torch.ops.aten._to_copy.default
            return READ if is_copy else place_of(node, device, places)

        compiled = self.compiled(lambda x, y: (x + y.double()) * 2)
        with (torch.no_grad(), unittest.mock.patch.object(_torch_partition, "place_of", read_copies)):
            y = torch.zeros(4)
            for number in range(7):
                x = torch.randn(4, dtype=torch.double)
                y.fill_(number)
                self.assertTrue(torch.equal(compiled(x, y), (x + number) * 2))
        self.assertEqual(self.replays(), [4])

    def test_results_of_an_operator_outside_come_to_recordings_as_tensors(self):
        def step(x):
            first, second = torch.ops.cgtree_test.halves(x + 1)
            middle = first.exp() + torch.ops.cgtree_test.halves(second * 2)[0].sum()
            return middle * 2, second.sin()

        compiled = self.compiled(step)
        with torch.no_grad():
            for _ in range(8):
                x = torch.rand(8)
                for a, b in zip(compiled(x), step(x), strict=True):
                    self.assertTrue(torch.equal(a, b))
        self.assertGreaterEqual(min(self.replays()), 4)

    def test_pieces_settle_while_the_last_results_are_held(self):
        def step(x, w):
            hidden, caches = x, []
            for _ in range(3):
                hidden = torch.ops.cgtree_test.sizes(hidden @ w, (hidden[:4, 0] > 0).cumsum(0))
                caches.append(hidden[:, :5] * 2)
            return hidden.exp(), *caches

        compiled, w, held = self.compiled(step), torch.randn(8, 8) / 3, None
        with torch.no_grad():
            for _ in range(14):
                x = torch.randn(6, 8)
                result, want = compiled(x, w), step(x, w)
                for a, b in zip([*result, *(held or ((), ()))[0]], [*want, *(held or ((), ()))[1]], strict=True):
                    self.assertTrue(torch.equal(a, b))
                held = result, want
        for graph in self.backend.graphs:
            self.assertLessEqual(graph.stats()["recordings"], 3, graph.kinds())

    def test_a_number_is_written_by_a_mask_in_the_recording(self):
        def step(x, mask, n):
            y = x * 2
            y[y > 1] = 7.5
            y[mask] = n
            z = y.t().clone(memory_format=torch.preserve_format)
            z[z < -1] = 0
            return y + 1, z

        compiled = self.compiled(step)
        with torch.no_grad():
            for _ in range(7):
                given = torch.randn(4, 3), torch.randn(4, 3) > 0.5, torch.randn(())
                for a, b in zip(compiled(*given), step(*given), strict=True):
                    self.assertTrue(torch.equal(a, b))
                    self.assertEqual(a.stride(), b.stride())
        self.assertGreaterEqual(max(self.replays()), 4)

    def test_a_graph_whose_capture_fails_in_an_operator_runs_in_pieces(self):
        def step(x, w):
            return torch.ops.cgtree_test.hidden(x @ w).exp() * 2, w.t()

        compiled, w = self.compiled(step), torch.randn(3, 3)
        with (torch.no_grad(), unittest.mock.patch.object(
                _torch_seam, "run_on_host", captured_on_host)):
            for _ in range(12):
                x = torch.randn(6, 3)
                for a, b in zip(compiled(x, w), step(x, w), strict=True):
                    self.assertTrue(torch.equal(a, b))
            self.assertEqual(len(self.backend.graphs), 3)
            self.assertEqual(self.replays()[0], 0)
            self.assertGreaterEqual(min(self.replays()[1:]), 5)
            torch._dynamo.reset()  # later graphs are cut at their first compilation
            again = self.compiled(lambda x: torch.ops.cgtree_test.hidden(x + 1) + 2)
            for _ in range(6):
                again(torch.randn(3))
            self.assertEqual(self.replays(), [3, 3])

    def test_a_graph_of_nothing_but_the_operator_whose_capture_fails_runs_eagerly(self):
        compiled = self.compiled(lambda x: torch.ops.cgtree_test.hidden(x))
        with (torch.no_grad(), warnings.catch_warnings(), unittest.mock.patch.object(
                _torch_seam, "run_on_host", captured_on_host)):
            warnings.simplefilter("ignore")
            for _ in range(8):
                x = torch.randn(3)
                self.assertTrue(torch.equal(compiled(x), x * 3))
        self.assertEqual(self.replays(), [0])

    def test_a_graph_that_cannot_be_cut_runs_eagerly_with_the_reason(self):
        def fail(graph, *_, **__):  # as with a version of PyTorch whose graphs differ
            graph.erase_node(graph.output_node())
            raise KeyError("val")

        def step(x):
            return torch.ops.cgtree_test.sizes(x, torch.tensor([1, 2])) * 2, x.nonzero()

        for failing in ("take_numbers_as_tensors", "move_operands", "choose_by_masks"):
            torch._dynamo.reset()
            compiled = self.compiled(step)
            with (torch.no_grad(), unittest.mock.patch.object(_torch_partition, failing, fail),
                  self.assertWarnsRegex(RuntimeWarning, "it could not be cut: KeyError: 'val'")):
                compiled(torch.ones(3))
            for _ in range(3):
                x = torch.randn(3)
                for a, b in zip(compiled(x), step(x), strict=True):
                    self.assertTrue(torch.equal(a, b))
            self.assertIn("it could not be cut: KeyError: 'val'", self.backend.eager)

    def test_an_operator_of_pytorchs_that_fails_is_cut_out_of_its_graph_alone(self):
        sinh = torch.ops.aten.sinh.default
        with torch.library._scoped_library("aten", "IMPL") as library:
            def failing(x):
                waits()
                return x.exp() - x.cosh()

            library.impl("sinh", failing, "CPU", allow_override=True)
            step = lambda x: (x + 1).sinh() * 2  # noqa: E731
            compiled = self.compiled(step)
            with (torch.no_grad(), unittest.mock.patch.object(
                    _torch_seam, "run_on_host", captured_on_host)):
                for _ in range(10):
                    x = torch.randn(3)
                    self.assertTrue(torch.equal(compiled(x), step(x)))
            self.assertGreaterEqual(min(self.replays()[1:]), 4)
        self.assertNotIn(sinh, _torch_partition._refused)

    def test_inductor_compiles_anew_what_failed_and_partitions_end_there(self):
        config = torch._inductor.config
        before = list(config.custom_should_partition_ops)
        self.addCleanup(config.custom_should_partition_ops.__setitem__, slice(None), before)
        self.backend = Backend("inductor", "f", None, None)
        compiled = torch.compile(lambda x: torch.ops.cgtree_test.hidden(x + 1) * 2,
                                 backend=self.backend)
        with (torch.no_grad(), warnings.catch_warnings(), unittest.mock.patch.object(
                _torch_seam, "run_on_host", captured_on_host)):
            warnings.simplefilter("ignore")
            for _ in range(10):
                x = torch.randn(3)
                self.assertTrue(torch.equal(compiled(x), (x + 1) * 3 * 2))
        self.assertIn("cgtree_test::hidden", config.custom_should_partition_ops)
        self.assertIn("cgtree_test::sizes", config.custom_should_partition_ops)
        self.assertEqual(len(self.backend.graphs), 2)  # it fails on the CPU, too, and is not moved


@torch.library.custom_op("cgtree_test::mixed", mutates_args=())
def mixed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * y.sum()


@mixed.register_fake
def _(x, y):
    return torch.empty_like(x)


@unittest.skipUnless(importlib.util.find_spec("triton"), "Triton is absent")
class InductorPartitionsPythonTest(unittest.TestCase):
    def setUp(self):
        ops = torch._inductor.config.custom_should_partition_ops
        self.addCleanup(ops.__setitem__, slice(None), list(ops))

    def test_partitions_that_inductor_records_have_no_inputs_of_the_cpu(self):
        x, vector = ((4, 3), torch.float32, GPU), ((3,), torch.float32, CPU)
        rows, number = ((2,), torch.int64, CPU), ((), torch.float32, CPU)
        aten = torch.ops.aten
        for what, function, given in (
                ("a tensor", lambda x, y: x.sin() + y.to(GPU), (x, vector)),
                ("work on the CPU", lambda x, y: x.sin() + (y * 2).to(GPU), (x, vector)),
                ("a number", lambda x, n: x.sin() / n, (x, number)),
                ("indices", lambda x, i: x.sin()[i] + 1, (x, rows)),
                ("computed indices", lambda x, i: x.sin()[i + 1] + 1, (x, rows)),
                ("what is put", lambda x, i, n: aten.index_put(x.sin(), [i], n), (x, rows, number)),
                ("what is added", lambda x, i, n: aten.index_put(x.sin(), [i], n, True), (x, rows, number)),
                ("a number that is read back", lambda x: x.sin() * x[0, 0].item() + 1, (x,)),
                ("an integer that is read back", lambda x: x.sin() - torch.sym_int(x[0, 0].item()), (x,)),
                ("a tensor filled with it", lambda x: torch.full((3,), x[0, 0].item(), device=GPU) * x, (x,)),
                ("an operator of another library", lambda x, y: torch.ops.cgtree_test.mixed(x.sin(), y) + 1,
                 (x, vector))):
            with self.subTest(what):
                found = partitions(function, *given)
                self.assertIn(None, found)
                recorded = [part for part in found if part is not None]
                self.assertTrue(recorded, found)
                for operators, devices in recorded:
                    self.assertEqual(devices - {"cuda:0"}, set(), (operators, found))

    def test_graphs_that_inductor_does_not_record_stay_as_they_are(self):
        from torch._inductor import compile_fx
        empty = torch.fx.symbolic_trace(lambda x: (x,))  # Inductor returns it without compiling
        for is_recorded in (False, True):
            for given in ({"cudagraphs": compile_fx.BoxedBool(is_recorded)}, {}):
                seen = []
                with torch._inductor.config.patch({"triton.cudagraphs": is_recorded}), (
                        versions.replaced_cudagraphify(lambda *_, **__: None, seen.append)):
                    compile_fx.compile_fx_inner(empty, [torch.zeros(1)], **given)
                self.assertEqual(seen, [empty] * is_recorded, given)

    def test_a_graph_that_cannot_be_prepared_is_compiled_as_it_was(self):
        given = ((4, 3), torch.float32, GPU), ((2,), torch.int64, CPU)

        def function(x, rows):
            return x[rows] * x[0, 0].item() + 1

        for failing in ("take_numbers_as_tensors", "move_operands", "fold", "places_of"):
            graph, changing = graph_on_gpu(function, *given), getattr(_torch_partition, failing)
            before, names = graph.code, set(graph._buffers)

            def fail(*args, changing=changing, graph=graph, **known):
                changing(*args, **known)
                graph.register_buffer("_folded_0", torch.ones(2))
                raise RuntimeError("a graph of another form\nand more")

            with unittest.mock.patch.object(_torch_partition, failing, fail):
                self.assertEqual(_torch_partition.prepare(graph), "RuntimeError: a graph of another form")
            self.assertEqual((graph.code, set(graph._buffers)), (before, names))
            with unittest.mock.patch.object(_torch_partition, failing, side_effect=NotSupported("refused")):
                with self.assertRaisesRegex(NotSupported, "refused"):
                    _torch_partition.prepare(graph)

    def test_inductor_compiles_what_cannot_be_prepared_and_says_so(self):
        with (unittest.mock.patch.object(_torch_partition, "_prepare", side_effect=KeyError("val")),
              self.assertWarnsRegex(RuntimeWarning, "could not be readied for recordings: KeyError: 'val'")):
            self.assertTrue(partitions(lambda x: x.sin() + 1, ((4, 3), torch.float32, GPU)))

    def test_a_version_of_pytorch_without_what_is_replaced_is_refused_each_time(self):
        def get(module, name):
            if name == "_compile_fx_inner":
                raise NotSupported(name)
            return getattr(importlib.import_module(module), name)

        with unittest.mock.patch.dict(versions._patched), unittest.mock.patch.object(versions, "_get", get):
            versions._patched.pop("original", None)
            for _ in range(2):
                with self.assertRaises(NotSupported), versions.replaced_cudagraphify(None, None):
                    pass

    def test_operators_of_ours_are_known_where_inductor_refuses_unknown_ones(self):
        found = partitions(lambda x, y, i: (x.sin() + y.to(GPU))[i] * x[0, 0].item(), ((4, 3), torch.float32, GPU),
                           ((3,), torch.float32, CPU), ((2,), torch.int64, CPU), implicit_fallbacks=False)
        self.assertIn(None, found)

    def test_a_copy_of_a_constant_that_tells_nothing_is_told_by_a_fake_tensor(self):
        graph = graph_on_gpu(lambda x: x[torch.tensor([0, 2])], ((4, 3), torch.float32, GPU))
        for node in graph.graph.find_nodes(op="get_attr"):  # as Inductor has it
            node.meta.clear()
            for copy in list(node.users):
                copy.replace_all_uses_with(node)
        _torch_partition.move_operands(graph.graph, GPU, ("index",), ())
        copies = [node for node in graph.graph.nodes if _torch_partition._name(node) == "_to_copy"]
        self.assertEqual([(type(node.meta["val"]), node.meta["val"].device) for node in copies], [(FakeTensor, GPU)])

    def test_copies_that_need_no_wait_and_those_of_other_forms_stay(self):
        for function, want in ((lambda x, y: x + torch.ops.prims.device_put(y, GPU), "read"),
                               (lambda x, y: x + torch.ops.prims.device_put(y, GPU, True), "device_put"),
                               (lambda x, y: x + y.to(GPU), "_to_copy")):
            graph = graph_on_gpu(function, ((4, 3), torch.float32, GPU), ((3,), torch.float32, CPU))
            _torch_partition.prepare(graph)
            self.assertIn(want, [_torch_partition._name(node) for node in graph.graph.nodes])

    def test_numbers_of_the_cpu_are_returned_on_the_cpu(self):
        from torch._inductor.fx_passes.post_grad import ConstructorMoverPass
        for function in (lambda x, n: (x.sin() / n, n), lambda x, n: (x.sin(), n)):
            graph = graph_on_gpu(function, ((4, 3), torch.float32, GPU), ((), torch.float32, CPU))
            _torch_partition.prepare(graph)
            ConstructorMoverPass("cuda", allow_outputs=True, allow_inputs=True)(graph.graph)
            _, number = graph.graph.output_node().args[0]
            self.assertIn("val", number.meta, number)  # Inductor drops it for nodes that it moves
            self.assertEqual(number.meta["val"].device, CPU)

    def test_work_on_the_cpu_with_numbers_that_are_returned_stays_there(self):
        def function(x, n):
            y, work = x.sin() / n, n + 1
            n.copy_(work)  # as AOTAutograd ends a graph that writes an input
            return y, n, work

        graph = graph_on_gpu(function, ((4, 3), torch.float32, GPU), ((), torch.float32, CPU))
        [written] = [node for node in graph.graph.nodes if _torch_partition._name(node) == "copy_"]
        graph.graph.output_node().replace_input_with(written, written.args[0])
        _torch_partition.prepare(graph)
        for node in graph.graph.nodes:
            if _torch_partition._name(node) in ("copy_", "add"):
                self.assertTrue(all(_torch_partition._lies_on(given, CPU) for given in node.all_input_nodes), node)
            if _torch_partition._name(node) == "copy_":
                self.assertEqual(node.args[0].op, "placeholder")

    def test_a_graph_without_inputs_is_prepared(self):
        graph = graph_on_gpu(lambda: torch.arange(3, device=GPU) + 1)
        _torch_partition.prepare(graph)
        self.assertEqual(graph.graph.find_nodes(op="placeholder"), [])

    def test_sizes_and_small_constants_stay_in_the_kernels(self):
        x = ((4, 3), torch.float32, GPU)
        for function in (lambda x: x.sin() + torch.arange(3).to(GPU), lambda x: x.sin() * torch.tensor(2.0),
                         lambda x: x.sin()[torch.arange(2)]):
            self.assertEqual(partitions(function, x), [({"ComputedBuffer"}, {"cuda:0"})])

    def test_constants_of_the_cpu_are_copied_to_the_device_once(self):
        graph = graph_on_gpu(lambda x: (x[torch.tensor([0, 2])] + torch.arange(12).view(4, 3)[:2].to(GPU)),
                             ((4, 3), torch.float32, GPU))
        put, copied = torch.ops.prims.device_put.default, []
        call = type(put).__call__

        def note(operator, *args, **kwargs):
            if operator is not put and operator is not torch.ops.aten._to_copy.default or (
                    isinstance(args[0], FakeTensor)):
                return call(operator, *args, **kwargs)
            copied.append(args[0])
            return args[0].clone()

        with unittest.mock.patch.object(type(put), "__call__", note):
            _torch_partition.prepare(graph)
        self.assertEqual([item.tolist() for item in copied], [[0, 2]])
        # Inductor runs a graph with fake tensors, and accepts constants only through lift_fresh_copy().
        for constant in graph.graph.find_nodes(op="get_attr"):
            self.assertEqual({_torch_partition._name(user) for user in constant.users}, {"lift_fresh_copy"})
        found = [node for node in graph.graph.nodes if node.op == "call_function"
                 and _torch_partition.place_of(node, GPU, {}) == READ]
        self.assertEqual([_torch_partition._name(node) for node in found], ["_to_copy"])  # the copy of arange()

    def test_what_is_read_at_each_replay_is_a_copy_with_the_strides_of_the_source(self):
        source = torch.randn(3, 4).t()
        got = torch.ops.cgtree.read(source, CPU)
        self.assertTrue(torch.equal(got, source) and got.stride() == source.stride())
        self.assertNotEqual(got.data_ptr(), source.data_ptr())


if __name__ == "__main__":
    unittest.main()
