"""State besides the inputs on which recordings of PyTorch's graphs depend, on the CPU: settings, hooks, checks, Python
state that operators read; and explain() without recordings.
"""

import functools
import inspect
import logging
import sys
import types
import unittest
import unittest.mock
import warnings

sys.path.insert(0, "tests/python")

try:
    import torch
except ImportError as error:
    raise unittest.SkipTest("PyTorch is absent") from error

from support import cgtree, setUpModule  # noqa: E402,F401

import cgtree.torch  # noqa: E402
from cgtree import _torch_memory, _torch_seam, _torch_state  # noqa: E402
from cgtree import _torch_versions as versions  # noqa: E402

torch._logging.set_logs(all=logging.ERROR)


def eager(function, **options):
    return cgtree.torch.compile(function, kernels="eager", **options)


_hidden = types.ModuleType("hidden")  # Dynamo does not follow its attributes
_hidden.count = 0
_named = []


@torch.library.custom_op("cgtree_key::hidden", mutates_args=())
def hidden(x: torch.Tensor) -> torch.Tensor:
    _hidden.count += 1
    return x * _hidden.count


@torch.library.custom_op("cgtree_key::unseen", mutates_args=())
def unseen(x: torch.Tensor) -> torch.Tensor:
    _hidden.count += 1
    return x * _hidden.count


@torch.library.custom_op("cgtree_key::named", mutates_args=())
def named(x: torch.Tensor) -> torch.Tensor:
    return x * len(_named)


for operator in (hidden, unseen, named):
    operator.register_fake(torch.empty_like)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4)

    def forward(self, x, *, scale=1.0):
        return self.first(x) * scale



class KeyPythonTest(unittest.TestCase):
    """State besides its inputs on which a call depends, and the part of it that Dynamo guards."""

    def setUp(self):
        torch._dynamo.reset()
        grad = torch.no_grad()
        grad.__enter__()
        self.addCleanup(grad.__exit__, None, None, None)

    def kinds(self, compiled):
        return sum(len(graph.kinds()) for graph in _torch_seam.graphs() if graph.name.startswith(compiled))

    def test_each_setting_that_kernels_depend_on_is_read_at_each_call(self):
        cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
        settings = {
            "cudnn.enabled": (cudnn, "enabled"), "cudnn.benchmark": (cudnn, "benchmark"),
            "cudnn.benchmark_limit": (cudnn, "benchmark_limit"),
            "cudnn.deterministic": (cudnn, "deterministic"), "cudnn.allow_tf32": (cudnn, "allow_tf32"),
            "cublas.fp16": (cuda.matmul, "allow_fp16_reduced_precision_reduction"),
            "cublas.bf16": (cuda.matmul, "allow_bf16_reduced_precision_reduction"),
            "cublas.fp16 sums": (cuda.matmul, "allow_fp16_accumulation"),
            "mkldnn.enabled": (torch.backends.mkldnn, "enabled"),
            "mkldnn.deterministic": (torch.backends.mkldnn, "deterministic"),
        }
        functions = {
            "flash": (cuda.flash_sdp_enabled, cuda.enable_flash_sdp),
            "efficient": (cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp),
            "math": (cuda.math_sdp_enabled, cuda.enable_math_sdp),
            "cudnn attention": (cuda.cudnn_sdp_enabled, cuda.enable_cudnn_sdp),
            "math sums": (cuda.fp16_bf16_reduction_math_sdp_allowed, cuda.allow_fp16_bf16_reduction_math_sdp),
            "precision": (lambda: torch.get_float32_matmul_precision() == "high",
                          lambda on: torch.set_float32_matmul_precision("high" if on else "highest")),
            "fill": (lambda: torch.utils.deterministic.fill_uninitialized_memory,
                     lambda on: setattr(torch.utils.deterministic, "fill_uninitialized_memory", on)),
            "denormals": (lambda: False, torch.set_flush_denormal),
            "priority": (lambda: False, lambda on: torch._C._set_sdp_priority_order(
                [int(backend) for backend in torch._C._get_sdp_priority_order()[::-1]])),
        }
        read = versions.settings().read
        compiled = eager(lambda x: x * 2, name="settings")
        x = torch.ones(3)
        torch.set_float32_matmul_precision("highest")  # differs from leaving the default
        for name, place in settings.items():
            functions[name] = (functools.partial(getattr, *place), functools.partial(setattr, *place))
        for name, (get, set_to) in functions.items():
            before, known = get(), read()
            for _ in range(4):
                compiled(x)
            count = self.kinds("settings")
            set_to(7 if name == "cudnn.benchmark_limit" else not before)
            try:
                with self.subTest(name):
                    self.assertNotEqual(read(), known)
                    self.assertEqual(compiled(x).tolist(), [2, 2, 2])
                    self.assertEqual(self.kinds("settings"), count + 1)
            finally:
                set_to(before)
            self.assertEqual(read(), known, name)
            replays = cgtree.torch.stats(compiled)["replays"]
            compiled(x)
            self.assertEqual(cgtree.torch.stats(compiled)["replays"], replays + 1, name)

    def test_a_version_of_pytorch_without_a_setting_says_which(self):
        versions.settings.cache_clear()
        self.addCleanup(versions.settings.cache_clear)
        names = (*versions._SETTINGS, ("_ZNK2at7Context7missingEv", 0, 0, 1))
        with unittest.mock.patch.object(versions, "_SETTINGS", names):
            with self.assertWarnsRegex(RuntimeWarning, "_ZNK2at7Context7missingEv"):
                read = versions.settings().read()
        self.assertEqual(len(read), len(versions.settings.__wrapped__().read()))

    def test_settings_refuse_what_is_no_function(self):
        make = cgtree._cgtree.Settings
        self.assertEqual(len(make(()).read()), 1)  # the thread's treatment of denormals
        for wrong in ((0, 0, 0, 0, 1), (1, 0, 0, 0, 3), (1, 0, 0, 0, 65)):
            with self.assertRaises(cgtree.InvalidArgument):
                make((wrong,))
        with self.assertRaises(TypeError):
            make(3)
        with self.assertRaises(TypeError):
            cgtree._cgtree.FlatCall(cgtree.Context("host").compile(lambda x: x), torch.Tensor, torch.Tensor, None,
                                    (), (), None, None, (-1, 0, 0, 0, 0, 0), 3)

    def test_kernels_of_inductor_refuse_a_weight_that_is_another_tensor_where_it_lies(self):
        weights = {
            "strides": (torch.randn(4, 4), lambda weight: weight.t_()),
            "strides of 0": (torch.randn(4, 4), lambda weight: setattr(weight, "data", weight.data[:1].expand(4, 4))),
            "type": (torch.arange(4, dtype=torch.int32), lambda weight: setattr(
                weight, "data", weight.data.view(torch.float32))),
            "conjugate bit": (torch.randn(4, dtype=torch.complex64), lambda weight: setattr(
                weight, "data", weight.data.conj())),
        }
        for what, (weight, change) in weights.items():
            def model(inputs):
                made = [inputs[0] + inputs[1].abs().sum()]
                inputs.clear()
                return made

            graph = _torch_seam.cudagraphify(model, (1,), device_index=None, is_inference=True, name="kernels")
            for _ in range(6):
                graph([torch.ones(4), weight])
            change(weight)
            with self.subTest(what):
                for _ in range(2):
                    with self.assertRaisesRegex(cgtree.WrongValue, "when PyTorch compiled the kernels"):
                        graph([torch.ones(4), weight])

    def test_a_check_of_a_value_that_is_read_back_is_made_at_each_call(self):
        def of_a_sum(x):
            y = x * 2
            torch._check(x.sum().item() > 0)
            return y

        def of_a_size(x):
            n = x[0].to(torch.int64).item()
            torch._check(n >= 1)
            torch._check(n <= 5)
            return x + 1

        def of_a_count(x):
            y = x * 2
            torch._check(x.clamp(min=0).nonzero().shape[0] >= 1)
            return y

        with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
            for step in (of_a_sum, of_a_size, of_a_count):
                torch._dynamo.reset()
                compiled = eager(step, fullgraph=True)
                for call in range(12):
                    x = torch.full((3,), -1.0 if call in (5, 9) else 1.0 + call % 2)
                    with self.subTest(step.__name__, call=call):
                        if x[0] < 0:
                            with self.assertRaises(RuntimeError):
                                compiled(x)
                        else:
                            self.assertTrue(torch.equal(compiled(x), step(x)))
                self.assertGreater(cgtree.torch.stats(compiled)["replays"], 3)

    def test_an_operator_whose_replay_differs_from_an_eager_run_ends_recordings(self):
        compiled = eager(lambda x: torch.ops.cgtree_key.hidden(x * 2) + 1, name="hidden")
        with self.assertWarnsRegex(RuntimeWarning, "cgtree_key::hidden reads what changes"):
            for _ in range(12):
                self.assertEqual(compiled(torch.ones(3)).tolist(), [2.0 * _hidden.count + 1] * 3)
        self.assertIn("a replay differs from an eager run", cgtree.torch.explain(compiled))
        torch._dynamo.reset()
        compiled = eager(lambda x: torch.ops.cgtree_key.hidden(x * 2) + 2, name="pieces")
        for _ in range(8):
            self.assertEqual(compiled(torch.ones(3)).tolist(), [2.0 * _hidden.count + 2] * 3)
        self.assertEqual(cgtree.torch.stats(compiled)["graphs"], 2)  # before and after the operator
        self.assertGreater(cgtree.torch.stats(compiled)["replays"], 4)

    def test_verification_of_such_operators_can_be_left_out(self):
        compiled = eager(lambda x: torch.ops.cgtree_key.unseen(x) + 1, name="blind", recording={"verify_first": 0})
        for _ in range(12):
            self.assertEqual(compiled(torch.ones(3)).tolist(), [1.0 * _hidden.count + 1] * 3)
        self.assertGreater(cgtree.torch.stats(compiled)["replays"], 8)

    def test_what_an_operator_reads_of_python_is_a_part_of_what_a_call_depends_on(self):
        compiled = eager(lambda x: torch.ops.cgtree_key.named(x) + 1, name="named")
        for number in range(24):
            _named[:] = [1.0] * (number // 8 % 2 + 1)
            self.assertEqual(compiled(torch.ones(3)).tolist(), [number // 8 % 2 + 2.0] * 3)
        self.assertEqual(self.kinds("named"), 2)
        self.assertGreater(cgtree.torch.stats(compiled)["replays"], 14)

    def test_the_state_that_operators_read_is_compared_by_value(self):
        values = [1, 1.0, True, -0.0, 0.0, "1", None, [1], [1, 2], (1,), {"a": 1}, {"a": 2}, float("nan")]
        seen = []
        for value in values:
            _named.clear()
            _named.append(value)
            state = _torch_state.state_of([torch.ops.cgtree_key.named.default])
            self.assertEqual(state(), state())
            self.assertNotIn(state(), seen)
            seen.append(state())
        _named[:] = [list(range(10_000))]  # only a part of it is compared
        self.assertLess(len(str(_torch_state.state_of([torch.ops.cgtree_key.named.default])())), 10_000)
        self.assertIsNone(_torch_state.state_of([]))

    def test_hooks_of_all_modules_run_once_they_are_registered_and_no_longer_once_they_are_removed(self):
        class Outer(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())

            def forward(self, x):
                return self.inner(x) * 2

        register = torch.nn.modules.module.register_module_forward_hook
        for plain in (torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), Outer()):
            torch._dynamo.reset()
            compiled, function = eager(plain), eager(lambda x, plain=plain: plain(x) + 1)
            hooks = []
            self.addCleanup(lambda hooks=hooks: [hook.remove() for hook in hooks])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for call in range(16):
                    if call in (4, 6):
                        hooks.append(register(lambda module, args, made: made + 1))
                    if call == 10:
                        while hooks:
                            hooks.pop().remove()
                    x = torch.randn(2, 4)
                    self.assertTrue(torch.equal(compiled(x), plain(x)), call)
                    self.assertTrue(torch.equal(function(x), plain(x) + 1), call)
            self.assertGreater(cgtree.torch.stats(function)["replays"], 4)

    def test_memory_that_another_stream_uses_is_noted_when_its_last_tensor_ends(self):
        compiled = eager(lambda x: x * 2)
        for _ in range(5):
            y = compiled(torch.ones(4))
        lent, noted = cgtree._cgtree.lent, []

        def lent_memory(address):
            memory = lent(address)
            if memory is None:
                return None
            return types.SimpleNamespace(note_use=lambda stream: noted.append((memory, stream)))

        with unittest.mock.patch.object(_torch_memory._cgtree, "lent", lent_memory):
            _torch_memory.note_stream(y, "a stream")
            _torch_memory.note_stream(torch.ones(4), "no memory of ours")
        view = y[1:]
        del y
        self.assertEqual(noted, [])
        del view
        self.assertEqual([stream for _, stream in noted], ["a stream"])

    def test_record_stream_is_replaced_once(self):
        self.addCleanup(lambda: delattr(torch.Tensor, "record_stream"))
        for _ in range(2):
            _torch_memory.obey_record_stream()
        with unittest.mock.patch.object(_torch_memory, "note_stream") as noted:
            with self.assertRaises(NotImplementedError):  # PyTorch has no such operator for the CPU
                torch.ones(3).record_stream(torch.Stream("cpu"))
        noted.assert_not_called()

    def test_forward_of_a_compiled_module_is_compiled(self):
        compiled = eager(Net())
        plain = compiled._cgtree_parts.plain
        hook = plain.register_forward_hook(lambda module, args, made: made + 1)
        self.addCleanup(hook.remove)
        for _ in range(8):
            x = torch.randn(2, 4)
            self.assertTrue(torch.equal(compiled.forward(x), plain.forward(x)))
            self.assertTrue(torch.equal(compiled(x), plain(x)))
        self.assertGreater(cgtree.torch.stats(compiled)["replays"], 4)
        self.assertEqual(inspect.signature(compiled.forward), inspect.signature(plain.forward))
        whole = eager(lambda x: compiled.forward(x) * 2)
        for _ in range(5):
            x = torch.randn(2, 4)
            self.assertTrue(torch.equal(whole(x), plain.forward(x) * 2))
        layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
        self.assertTrue(torch.equal(torch.fx.symbolic_trace(eager(layers))(x), layers(x)))

    def test_options_of_recordings_are_checked_at_once(self):
        for wrong in ({"max_recordigns": 4}, {"max_recordings": "four"}, {"at_limit": "wait"}):
            with self.assertRaises((cgtree.InvalidArgument, TypeError), msg=wrong):
                cgtree.torch.compile(lambda x: x, recording=wrong)

    def test_explain_says_why_there_is_no_graph(self):
        compiled = eager(lambda x: x)
        self.assertIn("call the function first", cgtree.torch.explain(compiled))

        def nothing(x):
            torch._dynamo.graph_break()
            return len(x)

        compiled = eager(nothing)
        for _ in range(3):
            compiled([1])
        self.assertRegex(cgtree.torch.explain(compiled), "PyTorch has compiled no graph of it.*fullgraph=True")

    def test_explain_says_that_pytorch_compiles_no_further(self):
        def step(x, n):
            return x * n

        compiled = eager(step, dynamic=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for n in range(12):
                self.assertEqual(compiled(torch.ones(2), n).tolist(), [n, n])
        self.assertIn("recompile_limit", cgtree.torch.explain(compiled))
        compiled = eager(lambda x: x + 2)
        compiled(torch.ones(2))
        self.assertNotIn("recompile_limit", cgtree.torch.explain(compiled))


if __name__ == "__main__":
    unittest.main()
