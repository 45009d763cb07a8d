"""Small programs of PyTorch with parts that cannot be captured, and mixtures of experts: how much of them replays.

usage: torch_pieces_run.py [--only=part of a name] [--kernels=eager,inductor] [--calls=16] [--device=cuda]
                           [--seed=N] [--json=FILE]

Each program is called with changing inputs, eagerly and compiled, with both kinds of kernels. A row says whether
results are equal (bit for bit with PyTorch's own kernels, within --tolerance of the largest value with
Inductor's), in how many graphs it runs, and which share of their calls replayed in the last quarter of the
calls. Exits with 1 if a result differs or nothing replays, and with 77 without a GPU. With --device=cpu the
pieces are those of the CPU.
"""

import argparse
import json
import os
import sys
import traceback
import warnings

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.dirname(os.path.abspath(__file__))]

import torch  # noqa: E402
import torch_models  # noqa: E402

import cgtree.torch  # noqa: E402
from cgtree._torch_seam import graphs  # noqa: E402

PROGRAMS = {}
TOLERANCE = 2e-3


def program(function):
    """A program: called with a device, returns (function, inputs(i)). `inputs` are arguments of call i."""
    PROGRAMS[function.__name__] = function
    return function


@torch.library.custom_op("cgtree_pieces::groups", mutates_args=())
def groups(x: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    y, start = torch.zeros(len(x), weights.shape[2], device=x.device), 0
    for i, end in enumerate(ends.tolist()):
        torch.mm(x[start:end], weights[i], out=y[start:end])
        start = end
    return y


@groups.register_fake
def _(x, weights, ends):
    return x.new_empty(len(x), weights.shape[2])


def value_of(x):
    return x.sum().item()


@torch.library.custom_op("cgtree_pieces::hidden", mutates_args=())
def hidden(x: torch.Tensor) -> torch.Tensor:
    return x / (1 + abs(value_of(x)))


@hidden.register_fake
def _(x):
    return torch.empty_like(x)


def randoms(device, *shape):
    return lambda i: torch.randn(*shape, generator=torch.Generator().manual_seed(i)).to(device)


@program
def constants_of_the_cpu(device):
    def step(x):
        rows = x[torch.tensor([0, 2, 1])] + torch.tensor([1.0, 2.0, 3.0, 4.0]).to(x.device)
        return torch.where(rows > 0, rows, torch.tensor(-3.0)) * torch.tensor(2.5)

    given = randoms(device, 3, 4)
    return step, lambda i: (given(i),)


@program
def a_number_of_the_cpu(device):
    given = randoms(device, 64, 64)
    return lambda x, n: (x @ x) * n + n, lambda i: (given(i), torch.tensor(float(i)))


@program
def a_number_of_the_cpu_that_divides(device):
    given = randoms(device, 64, 64)
    return lambda x, n: (x @ x + 1) / n * 2, lambda i: (given(i), torch.tensor(i + 1.5))


@program
def a_tensor_of_the_cpu_that_changes(device):
    given = randoms(device, 8, 64)
    return (lambda x, y: (x + y.to(x.device)).sin() @ x.t(),
            lambda i: (given(i), torch.full((64,), float(i))))


@program
def a_pinned_tensor_that_is_written_after_the_call(device):
    given, held = randoms(device, 8, 64), torch.zeros(64, pin_memory=device != "cpu")

    def step(x, y):
        return (x + y.to(x.device)).sin() @ x.t()

    return step, lambda i: (given(i), held.fill_(i))


@program
def indices_of_the_cpu_that_change(device):
    given = randoms(device, 16, 8)
    return (lambda x, rows: (x * 2)[rows].exp() + 1,
            lambda i: (given(i), torch.randint(0, 16, (5,), generator=torch.Generator().manual_seed(i))))


@program
def numbers_that_are_put_where_indices_of_the_cpu_say(device):
    def step(x, rows, n):
        return x.sin().index_put((rows,), n).index_put((rows + 1,), n, accumulate=True).cos()

    given = randoms(device, 16, 8)
    return step, lambda i: (given(i), torch.randperm(15, generator=torch.Generator().manual_seed(i))[:5],
                            torch.tensor(i + 0.5))


@torch.library.custom_op("cgtree_pieces::mixed", mutates_args=())
def mixed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * float(y.sum())


@mixed.register_fake
def _(x, y):
    return torch.empty_like(x)


@program
def an_operator_with_an_operand_of_the_cpu(device):
    given = randoms(device, 16, 8)
    return (lambda x, y: torch.ops.cgtree_pieces.mixed(x.sin(), y).exp() + 1,
            lambda i: (given(i), torch.full((3,), i / 10)))


@program
def values_that_are_read_as_numbers(device):
    def step(x):
        total = (x * 100).sum().item()
        return x * int(total) + total, torch.full((8,), total, device=x.device) - x[0], x * (total > 0)

    given = randoms(device, 8, 8)
    return step, lambda i: (given(i),)


@program
def a_value_that_is_read(device):
    given = randoms(device, 32, 32)
    return (lambda x: (x @ x).sin() * (x.sum().item() > 0) + x.mean().item() * (x @ x),
            lambda i: (given(i),))


@program
def rows_that_are_not_zero(device):
    def step(x):
        y = (x @ x.t()).relu()
        return torch.zeros_like(y).index_add(0, (y.sum(1) > 20).nonzero()[:, 0] * 0, y[y.sum(1) > 20])

    given = randoms(device, 16, 16)
    return step, lambda i: (given(i),)


@program
def masks(device):
    def step(x):
        y = (x @ x.t()).clone()
        y[y < 0] = 0.5
        return y.cumsum(0) + 1

    given = randoms(device, 16, 16)
    return step, lambda i: (given(i),)


@program
def experts_in_groups(device):
    weights, router = randoms(device, 4, 32, 48)(1), randoms(device, 32, 4)(2)

    def step(x, router, weights):
        chosen = (x @ router).softmax(-1).topk(2)
        expert, order = chosen.indices.flatten().sort(stable=True)
        ends = torch.histc(expert.float(), 4, 0, 3).cumsum(0).to(torch.int32)
        y = torch.ops.cgtree_pieces.groups(x[order // 2], weights, ends)
        y = y.sin() * chosen.values.flatten()[order][:, None]
        return torch.empty_like(y).index_copy(0, order, y).view(len(x), 2, -1).sum(1)

    given = randoms(device, 24, 32)
    return step, lambda i: (given(i), router, weights)


@program
def an_operator_that_hides_that_it_waits(device):
    given = randoms(device, 32, 32)
    return lambda x: torch.ops.cgtree_pieces.hidden(x @ x).exp() * 2, lambda i: (given(i),)


@program
def a_training_step_with_parts_outside(device):
    layer = torch.nn.Linear(32, 32).to(device)

    def step(x, n, weight, bias):
        return torch.nn.functional.linear(x, weight, bias).tanh() / n + weight[torch.tensor([1])]

    def call(run):
        def train(x, n):
            layer.zero_grad()
            run(x, n, layer.weight, layer.bias).square().sum().backward()
            return layer.weight.grad.clone(), layer.bias.grad.clone()
        return train

    given = randoms(device, 8, 32)
    step.call = call
    return step, lambda i: (given(i), torch.tensor(i + 2.0))


def mixture(name, trains=False):
    def make(device):
        torch.manual_seed(7)
        subject = torch_models.make("transformers", name, device, 7)
        names = list(subject.inputs(0))

        def call(run):
            def forward(*given):
                result = run(**dict(zip(names, given))).logits
                if not trains:
                    return result
                subject.module.zero_grad()
                result.float().square().mean().backward()
                return [result.detach(), *[weight.grad.clone() for weight in subject.module.parameters()
                                           if weight.grad is not None]]
            return forward

        subject.module.call = call
        return subject.module, lambda i: tuple(subject.inputs(i).values())

    make.needs = "transformers"
    make.trains = trains
    PROGRAMS[f"{name}{'_training' if trains else ''}"] = make


for mixture_name in ("mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "granitemoe", "gpt_oss"):
    mixture(mixture_name)
mixture("mixtral", trains=True)


def differs(got, want, is_exact):
    """Returns in what results differ, or ""."""
    got, want = ([value] if isinstance(value, torch.Tensor) else list(value) for value in (got, want))
    for j, (a, b) in enumerate(zip(got, want, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"result {j} is {a.shape} of {a.dtype}, and {b.shape} of {b.dtype} eagerly"
        gap = (a.double() - b.double()).abs().max().item() if a.numel() else 0.0
        if gap > 0 and (is_exact or gap > TOLERANCE * max(b.abs().max().item(), 1e-3)):
            return f"result {j} differs by {gap:.3g}"
    return ""


def total(found):
    counts = [graph.stats() for graph in found]
    return sum(count["calls"] for count in counts), sum(count["replays"] for count in counts)


def row_of(name, kernels, options):
    """Runs a program with one kind of kernels, and returns its row."""
    torch._dynamo.reset()
    torch.manual_seed(options.seed)
    make = PROGRAMS[name]
    trains = getattr(make, "trains", "training" in name)
    kept, so_far, row = {id(graph) for graph in graphs()}, (0, 0), {"wrong": ""}
    with torch.set_grad_enabled(trains), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        step, inputs = make(options.device)
        call = getattr(step, "call", lambda run: run)
        eager, compiled = call(step), call(cgtree.torch.compile(step, kernels=kernels))
        for i in range(options.calls):
            if i == options.calls * 3 // 4:
                so_far = total(graph for graph in graphs() if id(graph) not in kept)
            torch.manual_seed(i)
            want = eager(*inputs(i))
            torch.manual_seed(i)
            given = inputs(i)
            got = compiled(*given)
            for item in given:  # what is read must have been read
                if isinstance(item, torch.Tensor) and item.is_pinned():
                    item.fill_(-7)
            row["wrong"] = row["wrong"] or differs(got, want, kernels == "eager")
            del got
    found = [graph for graph in graphs() if id(graph) not in kept]
    calls, replays = (now - before for now, before in zip(total(found), so_far))
    row.update(graphs=len(found), replayed=round(replays / calls, 3) if calls else 0.0)
    row["said"] = list(dict.fromkeys(str(one.message)[:300] for one in caught
                                     if "cgtree" in str(one.message)))
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--kernels", default="eager,inductor")
    parser.add_argument("--calls", type=int, default=16)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "little"))
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    if options.device != "cpu" and not torch.cuda.is_available():
        print("no GPU")
        return 77
    torch._dynamo.config.capture_scalar_outputs = True
    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    torch.backends.cuda.matmul.allow_tf32 = False
    print(f"seed {options.seed}, torch {torch.__version__}")
    rows, is_bad = [], False
    for name, make in PROGRAMS.items():
        if options.only not in name:
            continue
        if getattr(make, "needs", None) and torch_models.absent(make.needs):
            print(f"absent: {make.needs}, without which {name} is left out")
            continue
        for kernels in options.kernels.split(","):
            try:
                row = row_of(name, kernels, options)
            except Exception:  # pylint: disable=broad-except
                row = {"wrong": traceback.format_exc()[-1500:], "graphs": 0, "replayed": 0.0, "said": []}
            is_bad = is_bad or bool(row["wrong"]) or not row["replayed"]
            rows.append({"program": name, "kernels": kernels, **row})
            print(f"{'FAILED' if row['wrong'] or not row['replayed'] else 'ok    '} {name:48} {kernels:9} "
                  f"{row['replayed']:6.1%} replayed of {row['graphs']} graphs  {row['wrong']} "
                  f"{'; '.join(row['said'])}", flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"program": "torch_pieces_run", "torch": torch.__version__, "seed": options.seed,
                       "device": options.device, "rows": rows}, file, indent=1)
    return int(is_bad)


if __name__ == "__main__":
    sys.exit(main())
