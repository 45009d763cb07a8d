"""The interface to Dynamo and AOTAutograd, on the CPU with PyTorch's own kernels."""

import contextlib
import gc
import itertools
import random
import sys
import threading
import time
import types
import unittest
import unittest.mock
import weakref

sys.path.insert(0, "tests/python")

try:
    import torch
except ImportError as error:
    raise unittest.SkipTest("PyTorch is absent") from error

from support import SEED, cgtree, on_threads, setUpModule  # noqa: E402,F401

from cgtree import _torch_kernels, _torch_memory, _torch_outputs  # noqa: E402
from cgtree import _torch_seam  # noqa: E402
from cgtree import _torch_versions as versions  # noqa: E402
from cgtree._torch_kernels import Backend  # noqa: E402
from cgtree._torch_seam import context, cudagraphify  # noqa: E402


def graph_of(function, static=(), mutated=()):
    """A Graph of a function that takes tensors, as a boxed one."""
    def model(inputs):
        given = list(inputs)
        inputs.clear()
        return list(function(*given))

    return cudagraphify(model, static, device_index=None, is_inference=True,
                        mutated_input_idxs=tuple(mutated), name=function.__name__)


class SeamPythonTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(SEED)
        torch._dynamo.reset()
        grad = torch.no_grad()
        grad.__enter__()
        self.addCleanup(grad.__exit__, None, None, None)

    def expect_replays(self, graph, at_least):
        self.assertGreaterEqual(graph.stats()["replays"], at_least, graph.kinds())

    def test_a_boxed_list_is_cleared_and_its_tensors_end(self):
        graph = graph_of(lambda x: [x + 1])
        for _ in range(8):
            x = torch.randn(8)
            want, gone, inputs = x + 1, weakref.ref(x), [x]
            del x
            got = graph(inputs)
            self.assertEqual(inputs, [])
            self.assertTrue(torch.equal(got[0], want))
            self.assertIsNone(gone())
        self.expect_replays(graph, 3)

    def test_a_result_written_into_an_input_that_is_not_called_mutated_is_seen(self):
        def into_its_input(x, y):
            torch.mul(x, y, out=y)
            return y, y[1:]

        graph = graph_of(into_its_input)
        for _ in range(8):
            x, y = torch.randn(8), torch.randn(8)
            want = x * y
            result, part = graph([x, y])
            self.assertIs(result, y)
            self.assertTrue(torch.equal(result, want))
            self.assertTrue(torch.equal(part, want[1:]))
        self.expect_replays(graph, 3)

    # Acceptance: torch 34, 51.
    def test_results_have_the_strides_and_types_of_eager_ones(self):
        def views(x, w):
            y = x * 2
            return (y, y.t(), y[1:], x, x.t(), x[:, 1], y.expand(3, *y.shape), None, 7,
                    y.to(torch.bfloat16), (y > 0).t(), y.new_empty(0, 4), torch.complex(y, y).conj(),
                    y.sum(), w, w[1])

        graph, weight = graph_of(views, static=(1,)), torch.nn.Parameter(torch.randn(4, 4))
        for _ in range(8):
            x = torch.randn(4, 6)
            want, got = views(x, weight), graph([x, weight])
            for a, b in zip(got, want, strict=True):
                if not isinstance(b, torch.Tensor):
                    self.assertEqual(a, b)
                    continue
                self.assertTrue(torch.equal(a, b))
                self.assertEqual((a.shape, a.stride(), a.dtype, a.is_conj()),
                                 (b.shape, b.stride(), b.dtype, b.is_conj()))
            self.assertIs(got[3], x)
            self.assertIs(got[-2], weight)
            self.assertEqual(got[-1].data_ptr(), weight[1].data_ptr())
            got[4].fill_(3)
            self.assertTrue(torch.equal(x, torch.full_like(x, 3)))
            got[0].fill_(5)
            self.assertTrue(torch.equal(got[1], torch.full_like(got[1], 5)))
        self.expect_replays(graph, 3)

    def test_step_functions_verify_their_first_replays_unless_they_are_told_not_to(self):
        for options, expected in (({}, "4 of the first"), ({"verify_first": 2}, "2 of the first"),
                                  ({"verify_first": 0}, "no replay is verified")):
            with cgtree.Context("host") as made:
                step = made.compile(lambda x: x, framework="torch", **options)
                self.assertIsNone(step.last_outcome())
                self.assertIn(expected, made.verification())
        with cgtree.Context("host") as made:
            step = made.compile(lambda x: x)
            self.assertIsNone(step.last_outcome())
            self.assertEqual(made.verification(), "no replay is verified")

    def test_pools_of_pytorch_end_with_their_step_and_no_two_are_in_use_at_once(self):
        live, in_use, most = set(), [], []

        class Pool:
            def __init__(self, allocator):
                self.id = object()
                live.add(self.id)

            def __del__(self):
                ended_in_use.append(bool(in_use))
                live.remove(self.id)

        @contextlib.contextmanager
        def use(pool, device):
            in_use.append(pool)
            most.append(len(in_use))
            try:
                yield
            finally:
                in_use.remove(pool)

        def fail():
            with _torch_memory._memory("device", may_keep=False):
                raise KeyError

        def run(_):
            for _ in range(20):
                with _torch_memory._memory("device", may_keep=False):
                    time.sleep(0.001)
                    with _torch_memory._memory("device", may_keep=False):  # in a nested step
                        self.assertEqual(len(live), 1)
                try:
                    fail()
                except KeyError as error:
                    kept.append(error)

        def other_pool_of_the_callers():
            in_use.append(None)
            with (unittest.mock.patch.object(_torch_memory, "_allocates_here", lambda _: False),
                  self.assertRaisesRegex(_torch_memory.OtherPool, "use_mem_pool"),
                  _torch_memory._memory("device", may_keep=False)):
                self.fail("it allocates elsewhere")
            in_use.remove(None)

        ended_in_use, kept = [], []
        with (unittest.mock.patch.multiple(torch.cuda, MemPool=Pool, use_mem_pool=use),
              unittest.mock.patch.multiple(_torch_memory, _pluggable=unittest.mock.Mock(),
                                           _allocates_here=lambda _: True)):
            on_threads(3, run)
            self.assertEqual((set(most), live, len(ended_in_use)), ({1}, set(), 120))
            other_pool_of_the_callers()
            self.assertEqual(len(live), 1)
            with _torch_memory._memory("device", may_keep=False):
                self.assertEqual(len(live), 2)
            self.assertEqual(live, set())
        self.assertFalse(any(ended_in_use))

    def test_a_parameter_that_moves_is_read_where_it_is(self):
        """The parameter moves in several ways; PyTorch's guards notice only the last three."""
        many = torch.randn(400)

        def resize(weight):
            storage = weight.untyped_storage()
            size, values = storage.size(), weight.detach().clone()
            storage.resize_(0)
            self.moved_to = torch.empty(1 << 20)  # takes the memory that the parameter had
            storage.resize_(size)
            weight.copy_(values * 2)

        def replace(weight):
            model.weight = torch.nn.Parameter(torch.randn(4, 4))

        changes = {
            "written": lambda weight: weight.mul_(2),
            "data": lambda weight: setattr(weight, "data", torch.randn(4, 4)),
            "into a larger tensor": lambda weight: setattr(weight, "data", many[:16].view(4, 4)),
            "in the same storage": lambda weight: setattr(weight, "data", many[32:48].view(4, 4)),
            "set_": lambda weight: weight.set_(torch.randn(4, 4)),
            "resized": resize, "replaced": replace,
            "other strides": lambda weight: setattr(weight, "data", torch.randn(4, 4).t()),
            "dtype": lambda weight: model.to(torch.float64),
            "requires_grad": lambda weight: weight.requires_grad_(False),
        }
        model = torch.nn.Linear(4, 4)
        compiled = torch.compile(model, backend=Backend("eager", "moving", None, None))
        for what, change in changes.items():
            for call in range(5):
                x = torch.randn(3, 4, dtype=model.weight.dtype)
                self.assertTrue(torch.equal(compiled(x), model(x)), (what, "before", call))
            change(model.weight)
            for call in range(5):
                x = torch.randn(3, 4, dtype=model.weight.dtype)
                self.assertTrue(torch.equal(compiled(x), model(x)), (what, "after", call))
        graphs = [graph for graph in _torch_seam.graphs() if graph.name.startswith("moving")]
        self.assertGreater(sum(graph.stats()["replays"] for graph in graphs), 40)

    def test_what_the_short_way_needs_of_pytorch_is_found_in_this_version(self):
        self.assertGreaterEqual(versions.place_reader()[0], 0)
        before = versions._partitions()
        torch._dynamo.utils.counters["inductor"]["cudagraph_partitions"] += 2
        self.assertEqual(versions._partitions(), before + 2)

    def test_arguments_in_another_order_take_the_short_way_and_others_do_not(self):
        for order, pick, is_short in (
                ((0, 1), lambda made: made, True),
                ((1, 0), lambda made: made, True),
                ((1, 0), lambda made: [made[1], None, made[0]], True),
                ((0, 0), lambda made: made, True),
                ((0, 1), lambda made: [made[0], torch.zeros(1)], False),
                ((0, 1), lambda made: [made[0], 7], False)):
            graph = graph_of(lambda a, b: [a * 2, b + 1])
            wrapper = []

            def compiled(*args, graph=graph, order=order, pick=pick, wrapper=wrapper):
                wrapper.append(1)
                return tuple(pick(graph([args[i] for i in order])))

            call = _torch_kernels._direct(compiled, graph)
            for number in range(8):
                x, y = torch.randn(4), torch.randn(4)
                first, second = [(x, y)[i] for i in order]
                want = pick([first * 2, second + 1])
                wrapper.clear()
                got = call(x, y)
                for a, b in zip(got, want, strict=True):
                    same = torch.equal(a, b) if isinstance(b, torch.Tensor) else a == b
                    self.assertTrue(same, (order, number))
                if number == 7:
                    self.assertEqual(not wrapper, is_short, order)

    def test_a_path_leads_from_tensors_to_tensors_alone(self):
        a, b, c, y, z = (torch.zeros(1) for _ in range(5))

        def path(given, made, args, results):
            seen = types.SimpleNamespace(last_seen=(tuple(map(id, given)), tuple(map(id, made))))
            return _torch_kernels._path(seen, args, results)

        for case, want in (
                (((a, b), (y, 7), (a, b), (y, 7)), (2, (), ())),
                (((b, a), (y,), (a, b, 7), (y, y, None)), (3, [1, 0], [0, 0, -1])),
                (((b,), (y, z), (a, b, c), (z,)), (3, [1], [1])),
                (((b, 7), (y,), (7, b), (y,)), None),
                (((a,), (y,), (a, a), (y, y)), None),
                (((a,), (y, 7), (b, a), (y, 7)), None),
                (((a, c), (y,), (a, b), (y,)), None),
                (((a,), (y,), (b, a), (z,)), None),
                (((a,), (), (b, a), ()), None)):
            self.assertEqual(path(*case), want, case)

    def test_numbers_that_always_change_cost_little_and_those_that_stay_are_replayed(self):
        graph = graph_of(lambda x, n: [x * n])
        for n in [*range(1000), *[1007] * 800]:
            x = torch.randn(3)
            self.assertTrue(torch.equal(graph([x, n])[0], x * n))
            if n == 999:
                self.assertLess(len(graph.kinds()), 140)
                self.assertEqual(graph.stats()["calls"], 1000)
        self.expect_replays(graph, 300)

    def test_many_kinds_that_are_all_in_use_are_all_replayed(self):
        for count in (7, 100, 150):
            graph = graph_of(lambda x, n: [x * n])
            for _ in range(8):
                for n in range(count):
                    x = torch.randn(3)
                    self.assertTrue(torch.equal(graph([x, n])[0], x * n))
            self.assertEqual(len(graph.kinds()), count)
            self.expect_replays(graph, 4 * count)
            self.assertTrue(all(kind["replays"] for kind in graph.kinds()))

    def test_kinds_that_never_came_back_make_room(self):
        graph = graph_of(lambda x, n: [x * n])
        for n in range(3000):
            graph([torch.randn(3), n])
            self.assertLessEqual(len(graph.kinds()), _torch_seam.MAX_KINDS // 2)
        self.assertLessEqual(graph.stats()["warm_ups"], 3000 // 4)

    def test_inputs_that_lie_within_one_another_are_refused_where_they_share_an_element(self):
        whole, twin = torch.zeros(4, 6), torch.zeros(4, 6)
        graph = graph_of(lambda cache, x: [cache.add_(x * 2), x + 1][1:], static=(0,), mutated=(0,))
        for number in range(12):
            columns = torch.randn(4, 6)[:, 3:]
            if number % 3 == 1:
                whole[:, 3:], twin[:, 3:] = columns, columns
                columns = whole[:, 3:]
            y, = graph([whole[:, :3], columns])
            twin[:, :3].add_(columns * 2)
            self.assertTrue(torch.equal(y, columns + 1))
            self.assertTrue(torch.equal(whole, twin), number)
            with self.assertRaisesRegex(cgtree.WrongValue, "input 0 .* shares 4 of its 12 elements with input 1"):
                graph([whole[:, :3], whole[:, 2:5]])
            self.assertTrue(torch.equal(whole, twin))
        self.expect_replays(graph, 4)

    def test_inputs_that_lie_between_others_in_the_first_call_may_share_no_element_later(self):
        graph = graph_of(lambda cache, x: [cache.add_(1), x * cache][1:], static=(0,), mutated=(0,))
        whole = torch.zeros(6, 6)
        cache = whole[:4, ::2]
        for number in range(9):
            x = whole.as_strided((4, 3), (6, 2), 7 if number == 8 else 1)
            result, = graph([cache, x])
            self.assertTrue(torch.equal(result, x * (number + 1)))
            self.assertEqual(cache.tolist(), torch.full((4, 3), number + 1).tolist())
            del result
        self.expect_replays(graph, 5)
        for begin, count in ((0, 12), (2, 11), (6, 9)):
            with self.assertRaisesRegex(cgtree.WrongValue, f"input 0 .* shares {count} of its 12 elements with input 1"):
                graph([cache, whole.as_strided((4, 3), (6, 2), begin)])
        self.assertEqual(cache.tolist(), torch.full((4, 3), 9).tolist())

    def test_counts_are_read_while_a_call_is_inside_the_context(self):
        seen, graph = [], graph_of(lambda x: [x + 1])

        def step(x):
            if number:
                seen.append(graph.stats()["calls"])
            return [x * 2]

        other = graph_of(step)
        for number in range(4):
            if number == 1:
                graph([torch.ones(3)])  # known after this, but not yet called in the context
            other([torch.ones(3)])
        self.assertGreater(len(seen), 1)
        self.assertEqual(set(seen), {1})

    def test_a_reset_during_a_call_drops_its_recordings_and_counts_later_calls(self):
        def step(x, n):
            if is_reset:
                graph.reset()
            return [x * n]

        graph, is_reset = graph_of(step), []
        for number in range(40):
            is_reset[:] = [True] if number == 12 else []
            x, n = torch.randn(3), 5 if number > 12 else number % 6
            self.assertTrue(torch.equal(graph([x, n])[0], x * n))
            if number == 12:
                self.assertEqual(graph.kinds(), [])
                before = graph.stats()["calls"]
        self.assertEqual(graph.stats()["calls"], before + 27)
        is_reset[:] = [True]
        for n in range(6):
            graph([torch.randn(3), n])
        self.assertEqual(graph.stats()["calls"], before + 33)

    def test_results_are_views_of_the_input_in_which_they_lie(self):
        graph = graph_of(lambda x, y, z: [x * 2, y[1:], z[:, 1:]])
        for number in range(12):
            base = torch.randn(4, 12)
            given = [base[0], base[1], base[2:]] if number % 4 else [torch.randn(12), torch.randn(12), torch.randn(2, 12)]
            want = [given[0] * 2, given[1][1:], given[2][:, 1:]]
            for a, b in zip(graph(given), want, strict=True):
                self.assertTrue(torch.equal(a, b))
                self.assertEqual(a.data_ptr() == b.data_ptr(), b is not want[0])
        self.expect_replays(graph, 8)

    def test_elements_that_two_tensors_share_are_counted(self):
        flat, chosen = torch.zeros(64), random.Random(SEED)
        for _ in range(300):
            views = []
            for _ in range(2):
                dtype = chosen.choice((torch.float32, torch.int16, torch.complex64))
                size = dtype.itemsize
                shape = [chosen.randrange(0 if chosen.random() < 0.1 else 1, 4) for _ in range(chosen.randrange(3))]
                strides = [chosen.randrange(4) for _ in shape]
                views.append(torch.as_strided(flat.view(dtype), shape, strides,
                                              chosen.randrange(flat.nbytes // size - 24)))
            a, b = views
            places = [[view.data_ptr() + sum(n * stride for n, stride in zip(at, view.stride()))
                       * view.element_size() for at in itertools.product(*map(range, view.shape))]
                      for view in views]
            want = sum(any(x < y + b.element_size() and y < x + a.element_size() for y in places[1])
                       for x in places[0])
            self.assertEqual(_torch_outputs.shared_elements(a, b) or 0, want, (a.shape, b.shape))

    def test_columns_between_others_are_told_apart_by_their_steps(self):
        blocks = torch.empty(8, 2, 1 << 16)
        pairs = ((blocks[:, 0], blocks[:, 1]), (blocks[..., ::2], blocks[..., 1::2]), (blocks[..., :3], blocks[..., 3:]),
                 (blocks.mT[1::4], blocks.mT[2::4]), (blocks[:, :1].expand(-1, 5, -1), blocks[:, 1:]))
        with unittest.mock.patch.object(torch, "zeros", side_effect=AssertionError("looks at elements")):
            for a, b in pairs:
                self.assertEqual(_torch_outputs.shared_elements(a, b), 0, (a.stride(), b.stride()))
                self.assertEqual(_torch_outputs.shared_elements(b, a), 0, (a.stride(), b.stride()))

    def test_seeds_that_another_thread_notes_meanwhile_are_kept(self):
        threads = []

        def is_seed(_):
            if not threads:
                threads.append(threading.Thread(target=_torch_seam._note_seeds, args=([-1],)))
                threads[0].start()
                threads[0].join(0.1)
            return True

        with unittest.mock.patch.object(_torch_seam, "_is_seed", is_seed), unittest.mock.patch.object(
                _torch_seam._shared, "seeds", set(range(2 * _torch_seam.MAX_SEEDS))):
            _torch_seam._note_seeds([0])
            threads[0].join()
            self.assertIn(-1, _torch_seam._shared.seeds)

    def test_a_seed_on_the_device_is_known_for_as_long_as_it_is_held(self):
        graph = graph_of(lambda x: [x + 1])
        for _ in range(4):
            graph([torch.randn(3)])
        result, = graph([torch.randn(3)])
        self.expect_replays(graph, 2)
        address = result.data_ptr()
        _torch_seam._note_seeds([address])
        graph.reset()  # between a forward pass and its backward pass
        self.assertTrue(_torch_seam._is_seed(address))
        _torch_seam._note_seeds(range(_torch_seam.MAX_SEEDS))
        self.assertTrue(_torch_seam._is_seed(address))
        self.assertLess(len(_torch_seam._shared.seeds), 9)
        del result
        self.assertFalse(_torch_seam._is_seed(address))

    def test_kernels_of_inductor_see_aligned_addresses_and_what_they_write_is_written(self):
        class Clones(torch.utils._python_dispatch.TorchDispatchMode):
            count = 0

            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                self.count += function is torch.ops.aten.clone.default
                return function(*args, **(kwargs or {}))

        def model(inputs):
            for given in inputs:
                self.assertEqual(given.data_ptr() % versions.ALIGNMENT, 0)
            x, y, z = inputs
            inputs.clear()
            return [x + y, y.add_(1), z.sum()]

        flat = torch.randn(100)
        odd, written, wide = flat[1:7].view(3, 2), flat[31:43:2].view(3, 2), flat[61:64].expand(4, 3)
        want = odd + written, written + 1, wide.sum()
        with Clones() as clones:
            got = versions.aligned(model, {1})([odd, written, wide])
        for a, b in zip(got, want, strict=True):
            self.assertTrue(torch.equal(a, b))
        self.assertTrue(torch.equal(written, want[1]))
        self.assertEqual(clones.count, 0)
        self.assertEqual(got[1].stride(), written.stride())

    def test_static_inputs_of_inductor_that_are_not_aligned_are_copied(self):
        graph = cudagraphify(lambda inputs: [inputs[0] * inputs[1]], (0, 1), device_index=None,
                             is_inference=True)
        flat, y = torch.randn(64), torch.randn(4)
        for number in range(12):
            x = flat[number * 4 + 1:][:4]
            self.assertTrue(torch.equal(graph([x, y])[0], x * y))
        self.assertEqual(graph.stats()["recordings"], 1)

    def test_few_outputs_in_a_large_segment_are_copied_and_others_stay(self):
        def chosen(*tensors):
            """tensors: the number of a segment or None, the segment's MiB, and the bytes of the tensor."""
            segments = [number if number is None else
                        types.SimpleNamespace(data_ptr=number, nbytes=size << 20)
                        for number, size, _ in tensors]
            sources = [torch.empty(count, dtype=torch.uint8) for _, _, count in tensors]
            with unittest.mock.patch.multiple(
                    _torch_outputs, segment_of=lambda tensor: segments[sources.index(tensor)],
                    from_tensor=lambda tensor: "stays", _copied=lambda made, tensor: "copied"):
                sources = _Same(sources)
                return _torch_outputs.outputs_of([None] * len(tensors), sources)

        class _Same(list):
            def index(self, item):
                return next(i for i, other in enumerate(self) if other is item)

        mib = 1 << 20
        self.assertEqual(chosen((1, 2, 100)), ("stays",))
        self.assertEqual(chosen((1, 20, 2 * mib)), ("copied",))
        self.assertEqual(chosen((1, 20, 17 * mib)), ("stays",))
        self.assertEqual(chosen((1, 20, 9 * mib), (1, 20, 8 * mib)), ("stays", "stays"))
        self.assertEqual(chosen(*[(1, 20, mib)] * 5), ("stays",) * 5)
        self.assertEqual(chosen((None, 0, 5), (1, 20, mib), (2, 2, 7)),
                         ("copied", "copied", "stays"))

    # Acceptance: torch 65.
    def test_tensors_that_are_held_are_never_overwritten(self):
        graph = graph_of(lambda x: [x * 3])
        held = []
        for _ in range(12):
            torch.compiler.cudagraph_mark_step_begin()
            x = torch.randn(50)
            held.append((graph([x])[0], x * 3))
        for got, want in held:
            self.assertTrue(torch.equal(got, want))

    def test_results_that_are_kept_for_ever_are_replayed(self):
        graph = graph_of(lambda x: [x * 3, x, x[1:], (x * 2).t()])
        kept = []
        for _ in range(150):
            x = torch.randn(5, 6)
            kept.append((graph([x]), x))
            self.assertIs(kept[-1][0][1], x)
        for got, x in kept:
            for one, want in zip(got, (x * 3, x, x[1:], (x * 2).t())):
                self.assertTrue(torch.equal(one, want))
                self.assertEqual(one.stride(), want.stride())
        stats = graph.stats()
        self.assertLess(stats["recordings"], 10)
        self.assertGreater(stats["replays"], 130)

    # Acceptance: torch 16.
    def test_an_output_of_one_graph_is_a_managed_input_of_another_and_of_itself(self):
        first, second = graph_of(lambda x: [x + 1]), graph_of(lambda x: [x * 2])
        for _ in range(8):
            x = torch.randn(5)
            self.assertTrue(torch.equal(second(second(first([x])))[0], (x + 1) * 4))
        snapshot = context("cpu").snapshot_json()
        self.assertIn("managed", snapshot)
        self.expect_replays(second, 4)

    # Acceptance: torch 7.
    def test_written_inputs_are_copied_back(self):
        def step(x, total):
            total.add_(x)
            return [total * 2]

        for static in ((), (1,)):
            graph, total, want = graph_of(step, static, (1,)), torch.zeros(4), torch.zeros(4)
            for _ in range(7):
                x = torch.randn(4)
                want += x
                self.assertTrue(torch.equal(graph([x, total])[0], want * 2))
                self.assertTrue(torch.equal(total, want))
            self.expect_replays(graph, 4)

    # Acceptance: torch 63, 85.
    def test_a_static_input_that_moves_is_recorded_anew_and_replayed_where_it_comes_back(self):
        graph = graph_of(lambda x, w: [x @ w], static=(1,))
        weights = [torch.nn.Parameter(torch.randn(4, 4)) for _ in range(3)]
        for w in 2 * weights:
            for _ in range(4):
                x = torch.randn(2, 4)
                self.assertTrue(torch.equal(graph([x, w])[0], x @ w))
        self.expect_replays(graph, 16)
        self.assertEqual(graph.stats()["recordings"], 3)

    # Acceptance: torch 1.
    def test_numbers_and_layouts_have_recordings_of_their_own(self):
        graph = graph_of(lambda x, n: [x * n + torch.arange(x.numel()).view(x.shape)])
        cases = [(torch.randn(3, 4), 2), (torch.randn(3, 4), 2.0), (torch.randn(4, 3).t(), 2),
                 (torch.randn(3, 4), 0.0), (torch.randn(3, 4), -0.0), (torch.randn(2, 4), True)]
        for _ in range(6):
            for x, n in cases:
                want = x * n + torch.arange(x.numel()).view(x.shape)
                got = graph([x, n])[0]
                self.assertTrue(torch.equal(got, want))
                self.assertTrue(torch.equal(got.signbit(), want.signbit()))
        self.assertEqual(len(graph.kinds()), len(cases))

    # Acceptance: torch 92.
    def test_kinds_of_calls_that_are_too_many_do_not_drop_one_another(self):
        self.addCleanup(setattr, _torch_seam, "MAX_KINDS", _torch_seam.MAX_KINDS)
        _torch_seam.MAX_KINDS = 4
        graph = graph_of(lambda x, n: [x * n])

        def cycle(numbers, rounds):
            before = graph.stats()["replays"]
            for _ in range(rounds):
                for n in numbers:
                    x = torch.randn(3)
                    self.assertTrue(torch.equal(graph([x, n])[0], x * n))
            return graph.stats()["replays"] - before

        with self.assertWarnsRegex(RuntimeWarning, "more than 4 kinds of calls"):
            self.assertGreaterEqual(cycle(range(6), 12), 4 * 8)
        cycle(range(10, 14), 20)
        self.assertEqual(cycle(range(10, 14), 5), 4 * 5)
        self.assertEqual(graph.stats()["calls"], 6 * 12 + 4 * 25)

    def test_pools_of_the_callers_that_are_in_use_are_counted(self):
        device, calls = torch.device("cuda", 7), []
        memory = types.SimpleNamespace(
            _cuda_beginAllocateCurrentThreadToPool=lambda *given: calls.append(("begin", *given)),
            _cuda_endAllocateToPool=lambda *given: calls.append(("end", *given)))
        versions.count_pools(memory)
        for pool in (1, 2):
            memory._cuda_beginAllocateCurrentThreadToPool(7, pool)
            self.assertEqual(versions.pools_in_use(device), pool)
        self.assertEqual(versions.pools_in_use(torch.device("cuda", 6)), 0)
        memory._cuda_endAllocateToPool(7, 2)
        self.assertEqual(versions.pools_in_use(device), 1)
        memory._cuda_endAllocateToPool(7, 1)
        self.assertEqual(versions.pools_in_use(device), 0)
        self.assertEqual(calls, [("begin", 7, 1), ("begin", 7, 2), ("end", 7, 2), ("end", 7, 1)])

    def test_what_cannot_be_an_input_runs_eagerly_and_says_so(self):
        graph = graph_of(lambda x: [x + x])
        for x in (torch.eye(3).to_sparse(), torch.randn(*[1] * 9)):
            with self.assertWarnsRegex(RuntimeWarning, "runs eagerly, because input 0 is"):
                got = graph([x])[0]
            self.assertTrue(torch.equal(got.to_dense(), (x + x).to_dense()))
            graph([x])
        x = torch.complex(torch.randn(3), torch.randn(3))
        for _ in range(5):
            for given in (x, x.conj()):
                self.assertTrue(torch.equal(graph([given])[0], given + given))

    def test_exceptions_of_the_graph_reach_the_caller_and_later_calls_work(self):
        fails = []

        def step(x):
            if fails:
                raise ValueError("no")
            return [x + 1]

        graph = graph_of(step)
        for number in range(8):
            if number in (2, 5):
                fails.append(1)
                with self.assertRaisesRegex(ValueError, "no"):
                    graph([torch.randn(3)])
                fails.clear()
            x = torch.randn(3)
            self.assertTrue(torch.equal(graph([x])[0], x + 1))

    def test_memory_that_runs_out_is_pytorchs_error_and_later_calls_work(self):
        small = cgtree.Context("host", max_bytes=100 << 20)
        self.addCleanup(setattr, _torch_seam, "context", _torch_seam.context)
        _torch_seam.context = lambda device: small
        graph = graph_of(lambda x: [x + 1])
        x = torch.zeros(1 << 20)
        held = [graph([x])[0]]
        with self.assertRaises(torch.OutOfMemoryError):
            for _ in range(60):
                held += graph([x])
        self.assertTrue(all(torch.equal(y, x + 1) for y in held))
        held.clear()
        for _ in range(6):
            self.assertTrue(torch.equal(graph([x])[0], x + 1))

    def test_memory_of_warm_ups_serves_recordings(self):
        made = cgtree.Context("host")
        self.addCleanup(setattr, _torch_seam, "context", _torch_seam.context)
        _torch_seam.context = lambda device: made
        graph, x = graph_of(lambda x: [x.repeat(1 << 10) + k for k in range(10)]), torch.randn(1 << 10)
        for _ in range(5):
            needed = sum(result.nbytes for result in graph([x]))
        self.expect_replays(graph, 2)
        self.assertLessEqual(made.stats()["pool_reserved_bytes"], needed * 1.25, made.stats())

    def test_threads_take_turns_in_one_context(self):
        graph = graph_of(lambda x: [x.sin() + 1])

        def work(_):
            for _ in range(40):
                x = torch.randn(64)
                self.assertTrue(torch.equal(graph([x])[0], x.sin() + 1))

        on_threads(4, work)
        self.expect_replays(graph, 20)

    def test_recordings_go_with_their_graph(self):
        graph = graph_of(lambda x: [x + 1])
        for _ in range(4):
            graph([torch.randn(3)])
        kept = context("cpu").stats()["kept_recordings"]
        gone = weakref.ref(graph)
        del graph
        gc.collect()
        self.assertIsNone(gone())
        self.assertLess(context("cpu").stats()["kept_recordings"], kept)


class TrainingPythonTest(unittest.TestCase):
    """Forward and backward passes through AOTAutograd."""

    def setUp(self):
        torch._dynamo.reset()

    def model(self):
        torch.manual_seed(SEED)
        return torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
            torch.nn.Flatten(), torch.nn.Dropout(0.3), torch.nn.Linear(8 * 36, 4))

    def losses(self, model, call, make_optimizer, steps=12):
        optimizer = make_optimizer(model.parameters())
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)
        torch.manual_seed(SEED + 1)
        losses = []
        for _ in range(steps):
            x = torch.randn(5, 3, 8, 8)
            loss = torch.nn.functional.cross_entropy(call(x), torch.randint(0, 4, (5,)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        return losses, [*model.parameters(), *model.buffers()]

    def test_losses_and_weights_equal_eager_ones(self):
        optimizers = {"sgd": lambda given: torch.optim.SGD(given, 0.1, momentum=0.9),
                      "adam": lambda given: torch.optim.Adam(given, 0.01)}
        for name, make_optimizer in optimizers.items():
            torch._dynamo.reset()
            eager, model = self.model(), self.model()
            backend = Backend("eager", name, None, None)
            want = self.losses(eager, eager, make_optimizer)
            got = self.losses(model, torch.compile(model, backend=backend), make_optimizer)
            self.assertEqual(got[0], want[0], name)
            for a, b in zip(got[1], want[1], strict=True):
                self.assertTrue(torch.equal(a, b), name)
            roles = {graph.role: graph.stats()["replays"] for graph in backend.graphs}
            self.assertGreaterEqual(min(roles["forward"], roles["backward"]), 4, roles)

    def test_two_forward_passes_before_their_backward_passes(self):
        eager = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1))
        compiled = torch.compile(eager, backend=Backend("eager", "f", None, None))
        for _ in range(8):
            xs = [torch.randn(3, 6) for _ in range(2)]
            grads = []
            for model in (eager, compiled):
                first, second = (model(x).sum() for x in xs)
                eager.zero_grad()
                first.backward()
                (second * 2).backward()
                grads.append([parameter.grad.clone() for parameter in eager.parameters()])
            for a, b in zip(*grads):
                self.assertTrue(torch.equal(a, b))


    def test_a_backward_pass_draws_no_numbers_that_the_forward_pass_has_drawn(self):
        import torch._inductor.config
        model = torch.nn.Sequential(torch.nn.Embedding(9, 8), torch.nn.LayerNorm(8),
                                    torch.nn.Dropout(0.3), torch.nn.Linear(8, 4))
        compiled = torch.compile(model, backend=Backend("eager", "f", None, None))
        ids, found = torch.arange(9), []
        with torch._inductor.config.patch(fallback_random=True):  # keeps draws with unused results
            for function in (model, compiled):
                torch.manual_seed(SEED)
                for _ in range(5):
                    model.zero_grad()
                    function(ids).sum().backward()
                    found.append((model[0].weight.grad.clone(), torch.get_rng_state()))
        for a, b in zip(found[:5], found[5:]):
            self.assertTrue(torch.equal(a[0], b[0]))
            self.assertTrue(torch.equal(a[1], b[1]))


if __name__ == "__main__":
    unittest.main()
