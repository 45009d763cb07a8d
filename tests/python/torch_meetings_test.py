"""Programs that combine two features of PyTorch, on the CPU with PyTorch's own kernels: each equals an eager run bit
for bit, or raises an error that gives the reason.
"""

import copy
import gc
import sys
import unittest
import weakref

sys.path.insert(0, "tests/python")

try:
    import torch
    from torch.autograd import forward_ad
except ImportError as error:
    raise unittest.SkipTest("PyTorch is absent") from error

from support import SEED, cgtree, setUpModule  # noqa: E402,F401

import cgtree.torch  # noqa: E402
from cgtree._torch_seam import cudagraphify, graphs  # noqa: E402


def compiled(function, **recording):
    return cgtree.torch.compile(function, kernels="eager", recording=recording)


class MeetingsPythonTest(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        torch.manual_seed(SEED)

    def expect_replays(self, function, at_least=2):
        found = cgtree.torch.stats(function)
        self.assertGreaterEqual(found["replays"], at_least, found)

    def test_an_empty_result_is_a_new_tensor_that_can_be_resized(self):
        step = compiled(lambda x: (x[:0] + 1, x * 2, x.new_empty(2, 0, dtype=torch.int64)))
        for _ in range(6):
            x = torch.randn(3)
            empty, twice, of_two = step(x)
            self.assertTrue(torch.equal(twice, x * 2))
            self.assertEqual((of_two.shape, of_two.stride(), of_two.dtype),
                             ((2, 0), (1, 1), torch.int64))
            empty.resize_(20).fill_(2)
            self.assertEqual(empty.tolist(), [2.0] * 20)
        self.expect_replays(step)

    # Acceptance: trees 12.
    def test_rows_that_an_index_names_are_put_and_added(self):
        def put(x, where, values):
            x = x.clone()
            x[where] = values
            return x.index_put_((where,), values, accumulate=True)

        step = compiled(put)
        for _ in range(6):
            given = torch.randn(9), torch.randperm(9)[:4], torch.randn(4)
            self.assertTrue(torch.equal(step(*given), put(*given)))
        self.expect_replays(step)

    def test_an_empty_result_on_another_device_does_not_make_a_graph_eager(self):
        def model(inputs):
            x, = inputs
            inputs.clear()
            return [x * 2, torch.empty(0, 3, device="meta")]

        graph = cudagraphify(model, device_index=None, is_inference=True)
        for _ in range(6):
            x = torch.randn(3)
            twice, other = graph([x])
            self.assertTrue(torch.equal(twice, x * 2))
            self.assertEqual((other.device.type, other.shape), ("meta", (0, 3)))
        self.assertGreaterEqual(graph.stats()["replays"], 2, graph.kinds())

    # Acceptance: random cpu_and_cuda_rng.
    def test_replays_that_draw_are_verified_with_the_numbers_that_they_drew(self):
        dropout = torch.nn.Dropout(0.5)
        step = compiled(lambda x: dropout(x) * 2, verify_first=8)
        draws = []
        for call in (dropout, step):
            torch.manual_seed(SEED)
            draws.append([])
            for _ in range(12):
                x = torch.ones(64, requires_grad=True)
                y = call(x) * (2 if call is dropout else 1)
                y.sum().backward()
                draws[-1].append((y.detach().clone(), x.grad.clone()))
                del x, y  # held outputs would need another recording
        for (a, b), (c, d) in zip(*draws, strict=True):
            self.assertTrue(torch.equal(a, c))
            self.assertTrue(torch.equal(b, d))
        self.expect_replays(step)

    def test_a_graph_may_be_retained_for_some_backward_passes_and_not_for_others(self):
        plain = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 4))
        step = compiled(lambda x: torch.tanh(plain(x)) * x.mean())
        for i in range(12):
            x, grads = torch.randn(2, 4), []
            for call in (lambda given: torch.tanh(plain(given)) * given.mean(), step):
                plain.zero_grad()
                y = call(x)
                if i % 3 == 2:
                    y.sum().backward(retain_graph=True)
                y.square().sum().backward()
                grads.append([parameter.grad.clone() for parameter in plain.parameters()])
            for a, b in zip(*grads, strict=True):
                self.assertTrue(torch.equal(a, b))
        self.expect_replays(step)

    def test_kernels_of_inductor_that_write_into_what_is_saved_refuse_to_retain_it_and_say_what_to_do(self):
        plain = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 4))
        for donates in (True, False):
            torch._dynamo.reset()
            with torch._functorch.config.patch(donated_buffer=donates):
                step = cgtree.torch.compile(lambda x: torch.tanh(plain(x)))
                for i in range(9):
                    x, grads = torch.randn(2, 4), []
                    for call in (lambda given: torch.tanh(plain(given)), step):
                        plain.zero_grad()
                        y = call(x)
                        if i % 2 and call is step and donates:
                            with self.assertRaisesRegex(RuntimeError, "donated_buffer=False"):
                                y.sum().backward(retain_graph=True)
                        elif i % 2:
                            y.sum().backward(retain_graph=not donates)
                        if not (i % 2 and donates):
                            y.square().sum().backward()
                        grads.append([parameter.grad for parameter in plain.parameters()
                                      if parameter.grad is not None])
                    if not (i % 2 and donates):
                        for a, b in zip(*grads, strict=True):
                            torch.testing.assert_close(a, b)
                self.expect_replays(step)

    def test_results_of_inference_mode_are_inference_tensors_also_if_they_share_memory(self):
        def parts(x):
            y = x * 2
            return y, y[1:], y.t(), x[1:], x.view(torch.int32)

        step = compiled(parts)
        for _ in range(6):
            x = torch.randn(3, 4)
            with torch.inference_mode():
                got, want = step(x), parts(x)
            for a, b in zip(got, want, strict=True):
                self.assertEqual(a.is_inference(), b.is_inference())
                self.assertTrue(torch.equal(a, b))
            del got, a
        self.expect_replays(step)

    def test_a_step_function_on_the_host_device_is_refused_with_what_to_use(self):
        with cgtree.Context("host") as context:
            step = context.compile(lambda x: x * 2, framework="torch")
            for _ in range(3):
                with self.assertRaisesRegex(cgtree.NotSupported, "cgtree.torch.compile"):
                    step(torch.ones(3))

    def test_graphs_that_pytorch_drops_go_while_another_module_of_the_class_stays(self):
        kept, other = (compiled(torch.nn.Linear(4, 4)) for _ in range(2))
        for _ in range(6):
            other(torch.randn(2, 4)).sum().backward()
        self.expect_replays(kept)
        gone = [weakref.ref(graph) for graph in graphs()]
        del other
        torch._dynamo.reset()
        gc.collect()
        self.assertEqual([graph() for graph in gone if graph() is not None], [])
        for _ in range(6):
            kept(torch.randn(2, 4)).sum().backward()
        self.expect_replays(kept)

    def test_parameters_of_a_compiled_module_may_be_swapped(self):
        model = torch.nn.Linear(4, 4)
        step = compiled(model)
        for _ in range(2):
            for _ in range(5):
                x = torch.randn(2, 4)
                y = step(x)
                y.sum().backward()
                want = torch.nn.functional.linear(x, model.weight, model.bias)
                self.assertTrue(torch.equal(y, want))
                model.zero_grad()
                del y, want
            torch.utils.swap_tensors(model.weight, torch.nn.Parameter(torch.randn(4, 4)))
        self.expect_replays(step)

    def test_forward_mode_derivatives_are_computed_after_calls_without_them_were_recorded(self):
        step = compiled(lambda x: x.sin() * 2)
        for i in range(10):
            x, tangent = torch.randn(3), torch.randn(3)
            self.assertTrue(torch.equal(step(x), x.sin() * 2))
            if i % 3 == 2:
                with forward_ad.dual_level():
                    got = forward_ad.unpack_dual(step(forward_ad.make_dual(x, tangent)))
                    want = forward_ad.unpack_dual(forward_ad.make_dual(x, tangent).sin() * 2)
                    self.assertTrue(torch.equal(got.primal, want.primal))
                    self.assertTrue(torch.equal(got.tangent, want.tangent))
        self.expect_replays(step)
        self.assertIn("forward-mode", " ".join(cgtree.torch.stats(step)["eager"]))

    def test_batched_gradients_are_computed_in_the_first_backward_pass_and_in_later_ones(self):
        step = compiled(lambda x: x * x)
        for i in range(12):
            x = torch.randn(3, requires_grad=True)
            y = step(x)
            if i % 4 == 0:
                grad, = torch.autograd.grad(y, x, torch.eye(3), is_grads_batched=True)
                self.assertTrue(torch.equal(grad, torch.diag(2 * x.detach())))
            else:
                grad, = torch.autograd.grad(y, x, torch.ones(3))
                self.assertTrue(torch.equal(grad, 2 * x.detach()))
            del y
        self.expect_replays(step)

    def test_the_context_of_tensors_of_pytorch_has_no_generations_that_would_overwrite_them(self):
        context = cgtree.torch.context("cpu")
        with self.assertRaisesRegex(cgtree.NotSupported, "a context of their own"):
            context.mark_step()
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 4))
        plain, step = copy.deepcopy(model), compiled(model)
        for _ in range(6):
            x = torch.randn(2, 4)
            for each in (plain, step):
                each.zero_grad()
                each(x).square().sum().backward()
            for a, b in zip(model.parameters(), plain.parameters(), strict=True):
                self.assertTrue(torch.equal(a.grad, b.grad))
        self.expect_replays(step)


if __name__ == "__main__":
    unittest.main()
