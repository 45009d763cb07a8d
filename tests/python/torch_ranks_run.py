"""Runs a model that is divided among GPUs eagerly and compiled, with a process for each GPU.

usage: torch_ranks_run.py [--ranks=2] [--kernels=eager,inductor,replaced,graph trees] [--device=cuda]
                          [--layers=4] [--inputs=12] [--limit=S] [--seed=N] [--json=FILE]

Each layer's partial sums are added by an all-reduce inside the compiled function (torch.distributed's functional
collectives, over NCCL, or gloo with --device=cpu). For each kind of kernels (see torch_programs_run.py) a line says if
the results of all ranks equal eager ones, to --tolerance, and gives the number of replays. A rank that takes longer
than --limit seconds for one kind prints its stack, and ends. Exits 1 if a result is not equal or a rank has ended, 77
if there are too few GPUs.
"""

import argparse
import faulthandler
import gc
import json
import os
import queue
import socket
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(os.path.dirname(FOLDER)), "python"), FOLDER]

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed._functional_collectives as collectives  # noqa: E402
import torch._inductor.cudagraph_trees  # noqa: E402
import torch.multiprocessing as processes  # noqa: E402

import cgtree.torch  # noqa: E402
from torch_programs import compile_with  # noqa: E402

WIDTH, ROWS = 512, 8


class Divided(torch.nn.Module):
    """A feed-forward layer: each rank has some columns of the first matrix, and rows of the second."""

    def __init__(self, ranks):
        super().__init__()
        self.up = torch.nn.Linear(WIDTH, 4 * WIDTH // ranks, bias=False)
        self.down = torch.nn.Linear(4 * WIDTH // ranks, WIDTH, bias=False)

    def forward(self, x):
        part = self.down(torch.nn.functional.gelu(self.up(x)))
        return x + collectives.all_reduce(part, "sum", dist.group.WORLD)


def run_kind(model, kernels, options, device):
    torch._dynamo.reset()
    end = cgtree.torch.replace_graph_trees() if kernels == "replaced" else lambda: None
    before = cgtree.torch.stats()
    compiled = compile_with(kernels)(model)
    generator = torch.Generator().manual_seed(options.seed)  # equal on all ranks
    worst = 0.0
    with torch.no_grad():
        for _ in range(options.inputs):
            x = torch.randn(ROWS, WIDTH, generator=generator).to(device)
            expected, given = model(x), compiled(x)
            worst = max(worst, (given - expected).abs().max().item() / expected.abs().max().item())
    after = cgtree.torch.stats()
    end()
    return worst, {name: after[name] - before.get(name, 0) for name in ("calls", "replays")}


def rank_main(rank, port, options, rows):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    device = torch.device(options.device, rank if options.device == "cuda" else None)
    if options.device == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if options.device == "cuda" else "gloo", rank=rank,
                            world_size=options.ranks)
    torch.manual_seed(options.seed + rank)
    model = torch.nn.Sequential(*(Divided(options.ranks) for _ in range(options.layers))).to(device)
    for kernels in options.kernels.split(","):
        row = {"rank": rank, "kernels": kernels}
        faulthandler.dump_traceback_later(options.limit, exit=True)
        try:
            row["worst"], counts = run_kind(model, kernels, options, device)
            row |= counts
            row["equal"] = row["worst"] <= options.tolerance
        except Exception as error:  # pylint: disable=broad-except
            row |= {"equal": False, "failed": f"{type(error).__name__}: {str(error).strip()[:300]}"}
        rows.put(row)
    faulthandler.dump_traceback_later(options.limit, exit=True)
    dist.barrier(**({"device_ids": [rank]} if options.device == "cuda" else {}))
    # NCCL does not end a communicator while a graph uses it.
    torch._dynamo.reset()
    cgtree.torch.reset()
    torch._inductor.cudagraph_trees.reset_cudagraph_trees()
    gc.collect()
    dist.destroy_process_group()
    faulthandler.cancel_dump_traceback_later()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--kernels", default="eager,inductor,replaced,graph trees")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--inputs", type=int, default=12)
    parser.add_argument("--tolerance", type=float, default=1e-5, help="of the largest value")
    parser.add_argument("--limit", type=float, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json")
    options = parser.parse_args()
    if options.device == "cuda" and torch.cuda.device_count() < options.ranks:
        print(f"{torch.cuda.device_count()} GPUs, and {options.ranks} ranks")
        return 77
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = processes.get_context("spawn")
    rows = context.Queue()
    ranks = [context.Process(target=rank_main, args=(rank, port, options, rows))
             for rank in range(options.ranks)]
    for process in ranks:
        process.start()
    told = []
    while any(process.is_alive() for process in ranks) or not rows.empty():
        try:
            told.append(rows.get(timeout=1))
            print(told[-1], flush=True)
        except queue.Empty:
            if any(process.exitcode for process in ranks):
                break
    for process in ranks:
        process.join(10)
        process.kill()
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            context = {"torch": torch.__version__, "seed": options.seed, "ranks": options.ranks,
                       "layers": options.layers, "command": " ".join(sys.argv)}
            if options.device == "cuda":
                context["gpu"] = torch.cuda.get_device_name()
            json.dump(context | {"rows": told}, file, indent=1)
            file.write("\n")
    expected = options.ranks * len(options.kernels.split(","))
    ours = all(row["equal"] for row in told if row["kernels"] != "graph trees")
    return 0 if ours and len(told) == expected else 1


if __name__ == "__main__":
    sys.exit(main())
