#!/usr/bin/env python3
"""Measures decoding steps of a Llama-architecture decoder in PyTorch: eagerly and with CUDA graphs.

  python3 benchmarks/peers/torch_llama.py --model=1b --batch 1 16 64 --json=torch_llama.json

The weights are random and in --dtype (bf16), and the KV cache holds --context positions. Each step
decodes one token of each sequence at the position after them, takes the likeliest token and feeds it
back on the device. For each batch there is a row for each of --modes:

  eager            PyTorch's operators, one after the other
  reduce-overhead  torch.compile(mode="reduce-overhead"), whose CUDA graph trees replay the step;
                   the row fails if they skip it, or record again while it is timed
  hand-made graph  a torch.cuda.CUDAGraph captured from the eager step
  cgtree           cgtree.torch.compile(kernels="eager"); like the next one, the row fails if a timed
                   step was not a replay
  cgtree-inductor  cgtree.torch.compile(), with the kernels of reduce-overhead

In float32 the row fails if it decodes other tokens than the first row.

The step time is the median over blocks of steps with one synchronisation at their end. The host
time is the median time until the call of a step returns on an idle device. No row needs a mask,
because the attention reads only valid positions, which suits PyTorch best.

The exit status is 1 if a row failed or there is no GPU. --device=cpu measures the eager row.
"""

import argparse
import collections
import gc
import json
import math
import pathlib
import re
import subprocess
import sys
import time
import traceback

Sizes = collections.namedtuple("Sizes", "hidden layers heads kv_heads head_size ffn vocabulary")
MODELS = {
    "tiny": Sizes(64, 2, 4, 2, 16, 128, 256),
    "small": Sizes(512, 4, 8, 4, 64, 2048, 32000),
    "1b": Sizes(2048, 16, 32, 8, 64, 8192, 128256),
    "8b": Sizes(4096, 32, 32, 8, 128, 14336, 128256),
}
EPSILON = 1e-5
ROPE_THETA = 500000.0
WARM_UPS = 8  # steps; the trees warm up, record and replay within three
BLOCK = 20  # steps


class NotMeasured(Exception):
    """A row would time other work than it claims."""


# The model.


def make_decoder(torch, sizes, max_length, device, dtype):
    """A module whose call is one decoding step. Its caches come with allocate()."""
    functional = torch.nn.functional

    def weight(*shape):
        values = torch.empty(shape, device=device, dtype=dtype).normal_(0, 0.02)
        return torch.nn.Parameter(values, requires_grad=False)

    def ones(size):
        return torch.nn.Parameter(torch.ones(size, device=device, dtype=dtype),
                                  requires_grad=False)

    rotated_heads = sizes.heads + sizes.kv_heads

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            attention = sizes.heads * sizes.head_size
            self.attention_norm = ones(sizes.hidden)
            self.qkv = weight((rotated_heads + sizes.kv_heads) * sizes.head_size, sizes.hidden)
            self.out = weight(sizes.hidden, attention)
            self.ffn_norm = ones(sizes.hidden)
            self.gate_up = weight(2 * sizes.ffn, sizes.hidden)
            self.down = weight(sizes.hidden, sizes.ffn)
            self.register_buffer("keys", None, persistent=False)
            self.register_buffer("values", None, persistent=False)

        def forward(self, x, position, cosines, sines, length):
            normal = functional.rms_norm(x, (sizes.hidden,), self.attention_norm, EPSILON)
            qkv = functional.linear(normal, self.qkv).view(x.shape[0], -1, sizes.head_size)
            qk = qkv[:, :rotated_heads]
            qk = torch.addcmul(qk * cosines, qk.roll(sizes.head_size // 2, -1), sines)
            self.keys.index_copy_(2, position, qk[:, sizes.heads:].unsqueeze(2))
            self.values.index_copy_(2, position, qkv[:, rotated_heads:].unsqueeze(2))
            attention = functional.scaled_dot_product_attention(
                qk[:, :sizes.heads].unsqueeze(2), self.keys[:, :, :length],
                self.values[:, :, :length], enable_gqa=True)
            x = x + functional.linear(attention.reshape(x.shape[0], -1), self.out)
            normal = functional.rms_norm(x, (sizes.hidden,), self.ffn_norm, EPSILON)
            gate, up = functional.linear(normal, self.gate_up).chunk(2, -1)
            return x + functional.linear(functional.silu(gate) * up, self.down)

    class Decoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = weight(sizes.vocabulary, sizes.hidden)
            self.layers = torch.nn.ModuleList(Layer() for _ in range(sizes.layers))
            self.norm = ones(sizes.hidden)
            self.head = weight(sizes.vocabulary, sizes.hidden)
            half = sizes.head_size // 2
            frequencies = ROPE_THETA ** -(torch.arange(half, device=device).double() / half)
            angles = torch.outer(torch.arange(max_length, device=device).double(), frequencies)
            # The lower half of a head subtracts the product with the upper half.
            cosines = torch.cat([angles.cos(), angles.cos()], -1).to(dtype)
            sines = torch.cat([-angles.sin(), angles.sin()], -1).to(dtype)
            self.register_buffer("cosines", cosines, persistent=False)
            self.register_buffer("sines", sines, persistent=False)
            self.register_buffer("position", torch.zeros(1, dtype=torch.int64, device=device),
                                 persistent=False)
            self.register_buffer("token", None, persistent=False)
            self.length = 0

        def allocate(self, batch, context):
            """Fills `context` positions of new caches; steps decode at the position after them."""
            shape = (batch, sizes.kv_heads, max_length, sizes.head_size)
            for layer in self.layers:
                layer.keys = layer.values = None  # frees the old ones first
            for layer in self.layers:
                layer.keys = torch.empty(shape, device=device, dtype=dtype).normal_()
                layer.values = torch.empty(shape, device=device, dtype=dtype).normal_()
            self.position.fill_(context)
            self.length = context + 1
            self.token = torch.zeros(batch, dtype=torch.int64, device=device)
            self.restart()

        def restart(self):
            """Sets the first tokens, which differ between sequences."""
            batch = self.token.shape[0]
            self.token.copy_(torch.arange(batch, device=device) % sizes.vocabulary)

        def forward(self):
            x = functional.embedding(self.token, self.embedding)
            cosines = self.cosines[self.position]
            sines = self.sines[self.position]
            for layer in self.layers:
                x = layer(x, self.position, cosines, sines, self.length)
            normal = functional.rms_norm(x, (sizes.hidden,), self.norm, EPSILON)
            following = functional.linear(normal, self.head).argmax(-1)
            self.token.copy_(following)
            return following

    return Decoder()


def bytes_read(sizes, batch, context, item):
    """The bytes that a step must read at least: each weight except the embedding, and the valid
    cache."""
    heads = sizes.heads + 2 * sizes.kv_heads
    layer = sizes.hidden * (heads * sizes.head_size + sizes.heads * sizes.head_size +
                            3 * sizes.ffn)
    weights = sizes.layers * layer + sizes.vocabulary * sizes.hidden
    cache = 2 * sizes.layers * batch * sizes.kv_heads * (context + 1) * sizes.head_size
    return item * (weights + cache)


# Time.


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def measure(synchronize, step, steps):
    """Times in us of a warm step."""
    per_step = []
    on_host = []
    gc.collect()
    gc.disable()
    try:
        synchronize()
        for _ in range(math.ceil(steps / BLOCK)):
            begin = time.perf_counter_ns()
            for _ in range(BLOCK):
                step()
            synchronize()
            per_step.append((time.perf_counter_ns() - begin) / BLOCK / 1e3)
        for _ in range(steps):
            synchronize()
            begin = time.perf_counter_ns()
            step()
            on_host.append((time.perf_counter_ns() - begin) / 1e3)
        synchronize()
    finally:
        gc.enable()
    return {"steps": len(per_step) * BLOCK, "block": BLOCK,
            "step_us": percentile(per_step, 0.5), "step_min_us": min(per_step),
            "step_p90_us": percentile(per_step, 0.9), "host_us": percentile(on_host, 0.5),
            "host_min_us": min(on_host), "host_p90_us": percentile(on_host, 0.9)}


def first_tokens(synchronize, model, step):
    """The tokens that one step decodes from the first tokens."""
    model.restart()
    step()
    synchronize()
    return model.token.tolist()


# The rows. Each yields its step, and checks at the end that the step was the timed work.


def run_eagerly(torch, model):
    yield model
    yield {}


def graphs_recorded(torch):
    """The number of graphs that the trees have recorded; counts itself."""
    from torch._inductor.cudagraph_trees import get_container
    manager = get_container(torch.cuda.current_device()).tree_manager
    return 0 if manager is None else manager.new_graph_id().id


def forget_trees(torch):
    from torch._dynamo.utils import counters
    from torch._inductor.cudagraph_trees import reset_cudagraph_trees
    torch.cuda.synchronize()
    torch._dynamo.reset()
    reset_cudagraph_trees()
    counters.clear()


def run_compiled(torch, model):
    from torch._dynamo.utils import counters
    forget_trees(torch)
    compiled = torch.compile(model, mode="reduce-overhead", fullgraph=True, dynamic=False)
    mark_step = torch.compiler.cudagraph_mark_step_begin

    def step():
        mark_step()
        compiled()

    for _ in range(WARM_UPS):
        step()
    torch.cuda.synchronize()
    graphs = graphs_recorded(torch)
    if graphs == 0:
        raise NotMeasured(f"no graph was recorded: {dict(counters['inductor'])}")
    functions = counters["stats"]["unique_graphs"]
    yield step
    if counters["inductor"]["cudagraph_skips"]:
        raise NotMeasured(f"graphs were skipped {counters['inductor']['cudagraph_skips']} times")
    if graphs_recorded(torch) != graphs + 1:
        raise NotMeasured("graphs were recorded while replays were timed")
    if counters["stats"]["unique_graphs"] != functions:
        raise NotMeasured("the step was compiled again while replays were timed")
    forget_trees(torch)
    yield {"graphs": graphs}


def run_by_hand(torch, model):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model()
    yield graph.replay
    yield {"graphs": 1}


def run_with_cgtree(torch, model, kernels="eager"):
    """Requires cgtree's package in the path of Python."""
    import cgtree.torch
    torch._dynamo.reset()
    compiled = cgtree.torch.compile(model, kernels=kernels, fullgraph=True, dynamic=False)
    for _ in range(WARM_UPS):
        compiled()
    before = cgtree.torch.stats(compiled)
    yield compiled
    after = cgtree.torch.stats(compiled)
    if after["calls"] - before["calls"] != after["replays"] - before["replays"] or after["eager"]:
        raise NotMeasured(f"not all timed steps were replays: {before}, {after}")
    yield {"graphs": after["recordings"]}


def run_inductor_with_cgtree(torch, model):
    yield from run_with_cgtree(torch, model, "inductor")
    torch._dynamo.reset()


MODES = {"eager": run_eagerly, "reduce-overhead": run_compiled, "hand-made graph": run_by_hand,
         "cgtree": run_with_cgtree, "cgtree-inductor": run_inductor_with_cgtree}


def measure_row(torch, mode, model, arguments, batch, expected):
    """A row, and the tokens that its first step decodes."""
    synchronize = torch.cuda.synchronize if arguments.device == "cuda" else lambda: None
    run = MODES[mode](torch, model)
    step = next(run)
    tokens = first_tokens(synchronize, model, step)
    model.restart()
    for _ in range(WARM_UPS):
        step()
    row = measure(synchronize, step, arguments.steps)
    row.update(next(run))
    row["tokens_per_second"] = batch / row["step_us"] * 1e6
    if expected is not None:
        # Other kernels round bf16 differently, so that near ties may be decided differently.
        row["same_first_tokens"] = sum(map(int.__eq__, tokens, expected)) / batch
        if arguments.dtype == "float32" and tokens != expected:
            raise NotMeasured(f"it decodes {tokens}, and the first row {expected}")
    return row, tokens


# The program.


def driver_version():
    try:
        return subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
                              capture_output=True, text=True, check=True,
                              timeout=60).stdout.splitlines()[0].strip()
    except (OSError, subprocess.SubprocessError, IndexError):
        return None


def command_line():
    """The command, with names of files instead of absolute paths."""
    words = ["benchmarks/peers/" + pathlib.Path(sys.argv[0]).name] + sys.argv[1:]
    return " ".join(["python3"] + [re.sub(r"(^|=)/\S*/", r"\1", word) for word in words])


def context_of(torch, arguments):
    on_gpu = arguments.device == "cuda"
    return {"gpu": torch.cuda.get_device_name() if on_gpu else None,
            "driver": driver_version() if on_gpu else None,
            "torch": torch.__version__, "torch_cuda": torch.version.cuda,
            "command": command_line(), "commit": arguments.commit, "model": arguments.model,
            "sizes": MODELS[arguments.model]._asdict(), "dtype": arguments.dtype,
            "context": arguments.context}


def table(rows):
    lines = ["batch  mode               step us    host us   tokens/s  read TB/s"]
    for row in rows:
        start = f"{row['batch']:5}  {row['mode']:15}"
        if "error" in row:
            lines.append(f"{start}  {row['error'].splitlines()[0]}")
        else:
            lines.append(f"{start} {row['step_us']:10.1f} {row['host_us']:10.1f} "
                         f"{row['tokens_per_second']:10.0f} "
                         f"{row['bytes_read'] / row['step_us'] / 1e6:10.2f}")
    return "\n".join(lines)


def run(torch, arguments):
    sizes = MODELS[arguments.model]
    torch.manual_seed(0)
    max_length = -(-(arguments.context + 1) // 64) * 64
    dtype = getattr(torch, arguments.dtype)
    model = make_decoder(torch, sizes, max_length, arguments.device, dtype)
    results = {"context": context_of(torch, arguments), "rows": []}
    modes = arguments.modes if arguments.device == "cuda" else ["eager"]
    for batch in arguments.batch:
        model.allocate(batch, arguments.context)
        expected = None
        for mode in modes:
            row = {"model": arguments.model, "mode": mode, "batch": batch,
                   "context": arguments.context,
                   "bytes_read": bytes_read(sizes, batch, arguments.context, dtype.itemsize)}
            try:
                with torch.inference_mode():
                    times, tokens = measure_row(torch, mode, model, arguments, batch, expected)
                row.update(times)
                expected = expected or tokens
                print(f"batch {batch}, {mode}: step {row['step_us']:.1f} us, "
                      f"host {row['host_us']:.1f} us", file=sys.stderr, flush=True)
            except Exception as error:  # the other rows are still useful
                traceback.print_exc()
                row["error"] = f"{type(error).__name__}: {error}"
            results["rows"].append(row)
            if arguments.json:  # after each row, because a run may be interrupted
                arguments.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return results["rows"]


def at_least(lowest):
    def integer(text):
        if int(text) < lowest:
            raise argparse.ArgumentTypeError(f"{text} is less than {lowest}")
        return int(text)
    return integer


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="1b")
    parser.add_argument("--batch", type=at_least(1), nargs="+", default=[1, 16, 64],
                        help="sequences of a step (default: 1 16 64)")
    parser.add_argument("--context", type=at_least(1), default=1024,
                        help="positions in the KV cache already (default: 1024)")
    parser.add_argument("--modes", choices=MODES, nargs="+", default=list(MODES),
                        help="rows (default: all)")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--steps", type=at_least(1), default=400,
                        help="steps of each measurement (default: 400)")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--json", type=pathlib.Path, help="file to write the results to")
    parser.add_argument("--commit", help="commit that the results belong to")
    return parser.parse_args()


def main():
    arguments = parse()
    try:
        import torch
    except ImportError as error:
        sys.exit(f"torch_llama.py: PyTorch is missing: {error}")
    if arguments.device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch_llama.py: there is no GPU that PyTorch can use; --device=cpu measures the "
                 "eager row")
    rows = run(torch, arguments)
    print(table(rows))
    failed = [f"{row['mode']} of batch {row['batch']}" for row in rows if "error" in row]
    if failed:
        sys.exit(f"{len(failed)} of {len(rows)} rows failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
