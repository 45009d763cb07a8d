"""Rows of PyTorch's tests of CUDA graph trees, restated for eager(): see
tests/acceptance.md. They run on the GPU if PyTorch sees one, else on the CPU."""

import sys
import threading
import unittest
import warnings

sys.path.insert(0, "tests/python")

try:
    import torch
except ImportError as error:
    raise unittest.SkipTest("PyTorch is absent") from error

from support import SEED, cgtree, setUpModule  # noqa: E402,F401

import cgtree.torch  # noqa: E402

DEVICE = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


def eager(function, **options):
    return cgtree.torch.compile(function, kernels="eager", **options)


def count(compiled, name):
    return cgtree.torch.stats(compiled)[name]


def rand(*shape):
    return torch.randn(*shape, device=DEVICE)


class TorchTreesPythonTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(SEED)
        torch._dynamo.reset()
        grad = torch.no_grad()
        grad.__enter__()
        self.addCleanup(grad.__exit__, None, None, None)

    def expect_equal(self, compiled, step, make, calls=8):
        for _ in range(calls):
            args = make()
            copies = [arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args]
            want, got = step(*copies), compiled(*args)
            torch.testing.assert_close(got, want)
            torch.testing.assert_close(args, tuple(copies))
            del got

    # Acceptance: torch 1.
    def test_1_two_shapes_have_recordings_of_their_own(self):
        compiled = eager(lambda x: x + 1)
        for size in (4, 5):
            self.expect_equal(compiled, lambda x: x + 1, lambda n=size: (rand(n, n),))
        self.assertEqual(count(compiled, "recordings"), 2)

    # Acceptance: torch 7.
    def test_7_what_is_written_is_written_once_in_each_phase(self):
        count, twin = torch.zeros(3, device=DEVICE), torch.zeros(3, device=DEVICE)

        def step(x, memory):
            memory.add_(1)
            return x.mul_(2) + memory

        self.expect_equal(eager(lambda x: step(x, count)),
                          lambda x: step(x, twin), lambda: (rand(3),))
        torch.testing.assert_close(count, twin)

    # Acceptance: trees 12.
    def test_12_index_put(self):
        def step(x, where, values):
            x = x.clone()
            x[where] = values
            return x.index_put_((where,), values, accumulate=True)

        self.expect_equal(eager(step), step, lambda: (
            rand(9), torch.randperm(9, device=DEVICE)[:4], rand(4)))

    # Acceptance: torch 16.
    def test_16_a_function_may_be_called_twice_in_a_chain(self):
        first, second = (eager(lambda x: x.sin()) for _ in range(2))
        for _ in range(8):
            x = rand(4)
            torch.testing.assert_close(second(second(first(x))), x.sin().sin().sin())
        self.assertGreater(count(second, "replays"), 6)

    # Acceptance: torch 34.
    def test_34_a_parameter_and_its_view_are_returned_as_such(self):
        weight = torch.nn.Parameter(rand(4, 4))
        compiled = eager(lambda x: (weight, weight[1], x + weight))
        for _ in range(6):
            x = rand(4, 4)
            got = compiled(x)
            self.assertIs(got[0], weight)
            self.assertEqual(got[1].data_ptr(), weight[1].data_ptr())
            torch.testing.assert_close(got[2], x + weight)

    # Acceptance: torch 51.
    def test_51_an_argument_and_its_view_are_returned_as_such(self):
        compiled = eager(lambda x: (x, x * 2))
        for _ in range(6):
            x = rand(4)
            self.assertIs(compiled(x)[0], x)

    # Acceptance: torch 63.
    def test_63_a_static_argument_that_moves_is_used_where_it_is(self):
        held = [rand(4)]
        compiled = eager(lambda x: x * held[0])
        for weight in (rand(4), rand(4), rand(4)):
            held[0] = weight
            self.expect_equal(compiled, lambda x: x * held[0], lambda: (rand(4),))

    # Acceptance: trees 64.
    def test_64_all_threads_share_a_context_of_each_device(self):
        mine, others = cgtree.torch.context(DEVICE), []
        thread = threading.Thread(target=lambda: others.append(cgtree.torch.context(DEVICE)))
        thread.start()
        thread.join()
        self.assertIs(others[0], mine)
        self.assertEqual(mine.device, "host:0" if DEVICE.type == "cpu" else "cuda:0")

    # Acceptance: torch 65.
    def test_65_results_that_are_held_keep_their_values(self):
        compiled = eager(lambda x: x * 3)
        held = []
        for _ in range(12):
            x = rand(50)
            held.append((compiled(x), x))
        for y, x in held:
            torch.testing.assert_close(y, x * 3)

    # Acceptance: trees 67.
    def test_67_an_error_names_the_line_of_the_function(self):
        def broken(x):
            return x @ x

        compiled = eager(broken)
        for _ in range(3):
            try:
                compiled(rand(2, 3))
            except RuntimeError as error:
                self.assertIn("in broken", str(error))
        self.expect_equal(compiled, broken, lambda: (rand(3, 3),))

    # Acceptance: torch 72.
    def test_72_three_calls_of_a_kind_are_no_replays(self):
        compiled = eager(lambda x: x + 1)
        for _ in range(10):
            compiled(rand(4))
        self.assertEqual(count(compiled, "replays"), 7)

    # Acceptance: torch 85.
    def test_85_a_parameter_that_comes_back_has_its_recording(self):
        model = torch.nn.Linear(4, 4).to(DEVICE)
        compiled = eager(model)
        weights = [model.weight, torch.nn.Parameter(rand(4, 4))]
        counts = []
        for number in (0, 1, 0, 1):
            model.weight = weights[number]
            self.expect_equal(compiled, model, lambda: (rand(2, 4),))
            counts.append(count(compiled, "recordings"))
        self.assertEqual(counts[1:], [2, 2, 2])

    # Acceptance: torch 92.
    def test_114_kinds_of_calls_beyond_the_limit_run_eagerly(self):
        from cgtree._torch_seam import MAX_KINDS, cudagraphify

        index = DEVICE.index if DEVICE.type == "cuda" else None
        graph = cudagraphify(lambda inputs: [inputs[0] + inputs[1]], device_index=index)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for n in range(MAX_KINDS + 3):
                for _ in range(3):
                    x = rand(2)
                    torch.testing.assert_close(graph([x, n])[0], x + n)
        self.assertEqual(len(graph.kinds()), MAX_KINDS)
        self.assertEqual(graph.stats()["calls"], 3 * (MAX_KINDS + 3))

    # Acceptance: trees 134.
    def test_134_functions_of_the_cpu_touch_no_gpu(self):
        before = torch.cuda.is_initialized()
        compiled = eager(lambda x: x + 1)
        for _ in range(4):
            compiled(torch.rand(3))
        self.assertEqual(torch.cuda.is_initialized(), before)
        self.assertEqual(count(compiled, "replays"), 1)

    # Acceptance: trees 151.
    def test_152_operators_on_lists(self):
        def step(xs, ys):
            torch._foreach_add_(xs, ys)
            return torch._foreach_mul(xs, 2)

        compiled = eager(step)
        for _ in range(8):
            xs, ys = [rand(3), rand(4)], [rand(3), rand(4)]
            copies = [x.clone() for x in xs]
            torch.testing.assert_close(compiled(xs, ys), step(copies, ys))
            torch.testing.assert_close(xs, copies)

    # Acceptance: trees 151.
    def test_155_sizes_that_are_numbers(self):
        def step(x, rows):
            return x[:rows].sum(0).expand(rows, -1)

        compiled = eager(step)
        for rows in (3, 5, 3):
            self.expect_equal(compiled, step, lambda n=rows: (rand(6, 4), n))

    # Acceptance: random cpu_and_cuda_rng.
    def test_cpu_rng_draws_what_an_eager_call_draws(self):
        def step(x):
            return x + torch.rand(3)

        compiled = eager(step)
        torch.manual_seed(5)
        want = [step(torch.zeros(3)) for _ in range(8)]
        torch.manual_seed(5)
        got = [compiled(torch.zeros(3)).clone() for _ in range(8)]
        torch.testing.assert_close(got, want)


if __name__ == "__main__":
    unittest.main()
