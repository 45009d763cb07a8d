"""Random programs that combine features of PyTorch, on the CPU: each part of each compiled call equals that of the
eager call or of plain torch.compile(), or raises a named error of cgtree.

A program is the source of a module's forward(), made of random lines, and a random sequence of calls: the layout of
inputs, modes, backward passes, and values that are dropped, copied or raised between and in calls. python3 FILE
--first=SEED --count=N runs more of them than the test.
"""

import copy
import logging
import random
import sys
import threading
import traceback
import unittest
import warnings

sys.path.insert(0, "tests/python")

try:
    import torch
except ImportError as error:
    raise unittest.SkipTest("PyTorch is absent") from error

from support import SEED, cgtree, setUpModule  # noqa: E402,F401
from torch_programs import Different, _aliases, difference, leaves_of, tensors_of  # noqa: E402

import cgtree.torch  # noqa: E402

CALLS = 16


@torch.library.custom_op("cgtree_random::scaled", mutates_args=())
def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * (1 + int(x.detach()[0, 0].item() > 0))


@scaled.register_fake
def _(x):
    return torch.empty_like(x)


scaled.register_autograd(lambda context, grad: grad * 2)
is_failing = []


@torch.library.custom_op("cgtree_random::may_fail", mutates_args=())
def may_fail(x: torch.Tensor) -> torch.Tensor:
    if is_failing:
        raise ZeroDivisionError("of an operator")
    return x * 3


@may_fail.register_fake
def _(x):
    return torch.empty_like(x)

# Lines of forward(): `a` and `b` are any earlier tensors of 4 x 4, and `x` and `y` the inputs.
PURE = ("v = a + b", "v = a @ b", "v = a.sin() * 2", "v = torch.tanh(a) - b", "v = a.t() + b", "v = a * a.mean()",
        "v = self.linear(a)", "v = self.scale * a", "v = a * torch.tensor([1.0, 2.0, 3.0, 4.0])",
        "v = a + torch.arange(4)", "v = a[torch.tensor([3, 1, 0, 2])]", "v = torch.where(a > b, a, b * 2)",
        "v = torch.cat([a[:2], b[2:]])", "v = a.double().mul(0.1).float()", "v = a.to(torch.bfloat16).float() + b",
        "v = torch.nn.functional.layer_norm(a, (4,))", "v = a.flip(0)", "v = a.softmax(-1)")
READS = ("v = a * b.sum().item()", "v = a + int((b * 10).sum().item())", "v = a * (b.sum().item() > 0)",
         "v = torch.full((4, 4), b.mean().item()) + a", "v = a.clamp(max=abs(b[0, 0].item()))",
         "v = a / (b.abs().sum().item() + 1)", "others.append(a.sum().item())", "v = a - b.max().item() ** 2",
         "others.append(int(a.sum().item()))", "v = torch.maximum(a, b.min() * b[0, 0].item())")
MASKS = ("v = a.clone(); v[v > 0] = 2.5", "v = a.clone(); v[b.detach() > 0] = a.detach().sum()",
         "others.append(a[a.detach() > 0])", "others.append(a.detach().nonzero())",
         "v = torch.ops.cgtree_random.scaled(a)", "others.append(torch.ops.cgtree_random.scaled(a.detach()) + 1)",
         "others.append(torch.ops.cgtree_random.may_fail(a.detach()))")
DRAWS = ("v = torch.nn.functional.dropout(a, 0.4)", "v = a + torch.rand(4, 4)", "v = a * torch.randn_like(b)",
         "v = torch.bernoulli(torch.full_like(a, 0.5)) + b")
WRITES = ("self.total.add_(a.detach())", "self.total.mul_(0.5); v = self.total + a", "self.count += 1; v = a * self.count",
          "self.total.copy_(b.detach()); others.append(self.total[1:])", "self.seen += 1",
          "self.rows[self.where % 4] = a.detach()[0]; self.where += 1; v = a + self.rows", "self.total = a.detach() + 1")
WRITES_INPUTS = ("x.mul_(0.5)", "y.add_(a.detach())", "x[0] = 1.0", "x.copy_(y * 2)", "x.t().add_(1)")
VIEWS = ("others.append(a.t())", "others.append(a[1:, ::2])", "others.append(x[1:])", "others.append(a[:0])",
         "others.append(a.detach().view(torch.int32))", "others.append(torch.complex(a, b).conj())", "others.append(a)",
         "others.append(a.expand(2, 4, 4))", "others.append(y)", "others.append(self.linear.weight.detach()[1])",
         "others.append(a.detach().long())", "others.append(torch.zeros(2))", "others.append(None)", "others.append(3)",
         "first, second = a.chunk(2); others += [first, second]", "others.append(a.detach().half())")
GROUPS = (PURE, PURE, PURE, READS, MASKS, DRAWS, WRITES, WRITES_INPUTS, VIEWS, VIEWS)


class Base(torch.nn.Module):
    def __init__(self, seed):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.linear = torch.nn.Linear(4, 4)
        self.scale = torch.nn.Parameter(torch.randn(4, generator=generator))
        with torch.no_grad():
            for parameter in self.linear.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
        self.register_buffer("total", torch.zeros(4, 4))
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("rows", torch.zeros(4, 4))
        self.seen = self.where = 0


class Program:
    """A program: `source` of forward(), and its `calls`."""

    def __init__(self, seed):
        chosen = random.Random(seed)
        self.seed = seed
        used = chosen.sample(range(len(GROUPS)), chosen.randint(3, len(GROUPS)))
        lines, names, takes_none = [], ["x", "y"], chosen.random() < 0.05
        if takes_none:
            names = ["self.total.clone()"]
        for _ in range(chosen.randint(3, 9)):
            line = chosen.choice(GROUPS[chosen.choice(used)])
            if takes_none and any(name in line for name in ("x.", "x[", "y.", "y[", "(y)", "y *")):
                continue
            made = f"v{len(names)}"
            words = {"v": made, "a": chosen.choice(names), "b": chosen.choice(names)}
            tokens = _tokens(line)
            lines.append("".join(words.get(token, token) for token in tokens))
            if "v" in tokens:
                names.append(made)
        self.source = "\n    ".join([f"def forward(self{'' if takes_none else ', x, y'}):", "others = []", *lines,
                                     f"return {names[-1]}, others"])
        self.takes_none = takes_none
        self.writes_inputs = any(text in self.source for text in ("x.mul_", "y.add_", "x[0] =", "x.copy_", "x.t().add_"))
        self.scalars, self.dynamic = chosen.random() < 0.7, chosen.choice((None, None, False, True))
        self.calls = [self._call(chosen, number) for number in range(CALLS)]

    def kind(self, seed):
        """Returns a module of a new class: compiled functions share PyTorch's compilations of a code object."""
        space = {"torch": torch}
        exec(self.source, space)  # pylint: disable=exec-used
        return type("Made", (Base,), {"forward": space["forward"]})(seed)

    def _call(self, chosen, number):
        """Returns the way a call is made. Half of the calls are usual, so that recordings are replayed."""
        usual = {"lie": "fresh", "mode": "grad" if self.seed % 2 else "no_grad", "between": None, "middle": None,
                 "backward": self.seed % 2, "hold": False, "hook": None}
        if number < 4 or chosen.random() < 0.55:
            return usual
        rare = ("shifted", "subclass", "parameter", "buffer", "expanded") if chosen.random() < 0.15 else ("fresh",)
        return {**usual, "lie": chosen.choice(("fresh", "fresh", "transposed", "columns", "same", "interleaved", "odd",
                                               "requires", *rare)),
                "mode": chosen.choice(("grad", "grad", "no_grad", "inference", "autocast")),
                "between": chosen.choice((None, None, None, "reset", "deepcopy", "eval", "train", "zero", "swap", "half",
                                                   "turn", "turn total")),
                "middle": chosen.choice((None, None, None, "reset", "reset", "call", "call", "dynamo")),
                "backward": chosen.choice((0, 1, 1, 2)), "hold": chosen.random() < 0.4,
                "hook": chosen.choice((None, None, None, "raises", "thread", "step", "fails"))}


def _tokens(line):
    tokens, word = [], ""
    for letter in line:
        if letter.isalnum() or letter in "_":
            word += letter
            continue
        tokens += [word, letter]
        word = ""
    tokens.append(word)
    return tokens


class Same(torch.Tensor):
    """A subclass without additional behaviour."""


class Side:
    """A program in its eager or compiled run."""

    def __init__(self, program, compile_module):
        self.program, self.compile_module = program, compile_module
        self.module = program.kind(program.seed)
        self.call = compile_module(self.module)
        self.held = []

    def inputs(self, how, seed):
        if self.program.takes_none:
            return ()
        made = torch.Generator().manual_seed(seed)

        def rand(*shape):
            return torch.randn(*shape, generator=made)

        if how == "transposed":
            return rand(4, 4).t(), rand(4, 4)
        if how == "columns":
            base = rand(4, 8)
            return base[:, :4], base[:, 4:]
        if how == "interleaved":
            base = rand(4, 8)
            return base[:, ::2], base[:, 1::2]
        if how == "same":
            x = rand(4, 4)
            return x, x
        if how == "odd":
            return rand(17)[1:].view(4, 4), rand(19)[3:].view(4, 4)
        if how == "shifted":
            base = rand(5, 4)
            return base[:4], base[1:]
        if how == "parameter":
            return rand(4, 4), self.module.linear.weight.detach()
        if how == "buffer":
            return rand(4, 4), self.module.total
        if how == "expanded":
            return rand(4, 4), rand(1, 4).expand(4, 4)
        if how == "subclass":
            return rand(4, 4).as_subclass(Same), rand(4, 4)
        if how == "requires" and not self.program.writes_inputs:
            return rand(4, 4).requires_grad_(), rand(4, 4).requires_grad_()
        return rand(4, 4), rand(4, 4)

    def between(self, what):
        if what == "reset":
            self.reset()
        elif what == "deepcopy":
            copied = copy.deepcopy(self.call)
            self.call, self.module = copied, copied if self.call is self.module else self.plain_of(copied)
        elif what in ("eval", "train"):
            self.module.train(what == "train")
        elif what == "zero":
            self.module.zero_grad()
        elif what == "swap":
            with torch.no_grad():
                self.module.scale = torch.nn.Parameter(self.module.scale * 0.5)
        elif what == "turn":
            self.module.linear.weight.data = self.module.linear.weight.data.t()
        elif what == "turn total":
            self.module.total.data = self.module.total.data.t()
        elif what == "half":
            self.module.total = self.module.total.clone()

    def reset(self):
        if self.is_ours():
            cgtree.torch.reset()

    def is_ours(self):
        return getattr(self.compile_module, "is_ours", False)

    def plain_of(self, copied):
        parts = getattr(copied, "_cgtree_parts", None)
        return parts.plain if parts is not None else getattr(copied, "_orig_mod", copied)

    def run(self, how, number):
        """Makes a call, and returns everything visible about it."""
        self.between(how["between"])
        seed = self.program.seed * 1000 + number
        args = self.inputs(how["lie"], seed)
        torch.manual_seed(seed)
        seen = []

        def work():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._work(how, args, seen)

        if how["hook"] == "thread":
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        elif how["hook"] == "step" and self.is_ours():
            with cgtree.Context("host") as context:
                def step():
                    work()
                    return cgtree.empty((1,), "float32")
                context.compile(step)()
        else:
            work()
        return {"result": seen, "arguments": [item.detach() for item in args],
                "gradients": [item.grad for item in args],
                "state": [*self.module.buffers(), self.module.seen, self.module.where],
                "gradients of parameters": [parameter.grad for parameter in self.module.parameters()],
                "generator": torch.get_rng_state(), "held": list(self.held)}

    def _work(self, how, args, seen):
        modes = {"grad": torch.enable_grad, "no_grad": torch.no_grad, "inference": torch.inference_mode,
                 "autocast": lambda: torch.autocast("cpu", torch.bfloat16)}
        handles, result = [], None
        try:
            with modes[how["mode"]]():
                if how["lie"] == "buffer" and how["mode"] == "inference":
                    return
                is_failing[:] = [True] if how["hook"] == "fails" else []
                result = self.call(*args)
            if how["hook"] == "raises":
                def fail(grad):
                    raise ZeroDivisionError("of a hook")
                for parameter in self.module.linear.parameters():
                    handles.append(parameter.register_hook(fail))
            seen.append(result)
            self.middle(how["middle"], args)
            losses = [tensor for tensor in tensors_of(result) if tensor.requires_grad and tensor.is_floating_point()]
            for i in range(how["backward"] if losses and how["mode"] != "inference" else 0):
                sum(tensor.float().square().sum() for tensor in losses).backward(retain_graph=i + 1 < how["backward"])
        except Exception as error:  # pylint: disable=broad-except
            seen.append(error)
        finally:
            is_failing.clear()
            for handle in handles:
                handle.remove()
        if how["hold"] and result is not None:
            self.held = [*self.held[-2:], result]

    def middle(self, what, args):
        if what == "reset":
            self.reset()
        elif what == "dynamo" and self.call is not self.module:
            torch._dynamo.reset()
        elif what == "call":
            with torch.no_grad():
                self.call(*[item.detach().clone() for item in args])


def eagerly(module):
    return module


def plainly(program):
    # Without dynamic shapes PyTorch does not guard overlapping inputs, and uses compiled code for the wrong ones.
    return lambda module: torch.compile(module, backend="aot_eager", dynamic=program.dynamic)


def ours(program):
    def compile_module(module):
        return cgtree.torch.compile(module, kernels="eager", dynamic=program.dynamic)

    compile_module.is_ours = True
    return compile_module


def _text(value):
    if isinstance(value, Exception):
        return (type(value).__name__,)
    if isinstance(value, (list, tuple)):
        return type(value)(map(_text, value))
    return value


def _refuses_saved_values(want):
    return any("modified by an inplace operation" in str(item) for item in want["result"] if isinstance(item, Exception))


def compare(program, number, got, wants):
    """Compares each part of a call with that of a reference. Raises Different."""
    def must_equal_one(part_name, differences):
        found = list(differences)
        if all(found):
            errors = [item for side in (got, *wants) for item in side["result"] if isinstance(item, Exception)]
            raise Different(f"call {number} {program.calls[number]}, {part_name}: {'; and '.join(found)} {errors}")

    def aliases(want):
        sides = [leaves_of([_text(side["result"]), side["arguments"]]) for side in (got, want)]
        return _aliases(*sides) if len(sides[0]) == len(sides[1]) else f"{len(sides[0])} values in place of {len(sides[1])}"

    for name, part in got.items():
        must_equal_one(name, (difference(_text(part), _text(want[name])) for want in wants))
    must_equal_one("results and arguments", map(aliases, wants))


def run(program, compile_module, references):
    """Runs a program with references and compiled. Raises Different. Returns its counts."""
    torch._dynamo.reset()
    settings = torch._dynamo.config.patch(recompile_limit=64, capture_scalar_outputs=program.scalars,
                                          capture_dynamic_output_shape_ops=program.scalars)
    with torch._functorch.config.patch(donated_buffer=False), settings, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sides, compiled = [Side(program, reference) for reference in references], Side(program, compile_module)
        for number, how in enumerate(program.calls):
            state = torch.get_rng_state()
            wants = []
            for side in sides:
                torch.set_rng_state(state)
                wants.append(side.run(how, number))
            torch.set_rng_state(state)
            got = compiled.run(how, number)
            torch.set_rng_state(state)
            errors = [item for item in got["result"] if isinstance(item, Exception)]
            if any(isinstance(item, cgtree.WrongValue) for item in errors):  # a named error, with a remedy
                break
            if not errors and all(map(_refuses_saved_values, wants)):  # a recording has them
                break
            compare(program, number, got, wants)
            if errors and references == [eagerly]:
                break  # each side may have completed another part of the call
    return cgtree.torch.stats(compiled.call)


def check(seed):
    """Returns the fault of the program of a seed, or None, and its counts."""
    program, found = Program(seed), []
    for references in ([eagerly], [eagerly, plainly(program)]):
        try:
            return ("as plain: " + found[0].splitlines()[0][:300] if found else None), run(program, ours(program), references)
        except Exception as error:  # pylint: disable=broad-except
            found.append(str(error) if isinstance(error, Different) else traceback.format_exc())
    return "DIFFERENT: " + "\n   and plainly: ".join(found), None


class RandomPythonTest(unittest.TestCase):
    def test_random_programs_equal_eager_ones_or_do_what_pytorchs_compiler_does(self):
        for seed in range(SEED, SEED + 4):
            found, _ = check(seed)
            self.assertFalse(found and found.startswith("DIFFERENT"), f"--first={seed} --count=1: {found}")


def main():
    torch._logging.set_logs(all=logging.CRITICAL)
    if len(sys.argv) == 1:
        unittest.main()
    options = dict(item.lstrip("-").split("=") for item in sys.argv[1:])
    first, count = int(options.get("first", SEED)), int(options.get("count", 10))
    for seed in range(first, first + count):
        found, counts = check(seed)
        print(f"seed {seed}: {found or 'equal'} {counts}", flush=True)
        if found:
            print("  " + Program(seed).source.replace("\n", "\n  "), flush=True)


if __name__ == "__main__":
    main()
