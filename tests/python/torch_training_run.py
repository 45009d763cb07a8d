"""Trains models of transformers, timm and torchvision eagerly and compiled, and compares losses, time and memory.

usage: torch_training_run.py [--models=transformers/bert,...] [--optimizers=sgd,adam] [--kernels=eager,...]
                             [--steps=50] [--device=cuda] [--limit=S] [--seed=N] [--json=FILE]

--kernels: "none" is without a compiler; "eager" and "inductor" are cgtree.torch.compile(kernels=...); "graph
trees" is torch.compile(mode="reduce-overhead"); "aot eager" and "plain inductor" are PyTorch's compilers
without recordings, whose results those of cgtree equal bit for bit.

A step: a new batch, forward pass, loss, backward pass, optimizer (SGD with momentum, or Adam) and a schedule that
lowers its rate every ten steps. Each row, of a model, an optimizer and a kind of kernels, comes from a separate
process: the losses; the median time of a step in microseconds with the wait for the device, after the first steps; the
peak of allocated and of reserved memory; calls and replays of graphs; "worst", the largest relative difference of a
loss from that of "none"; and "as_compiled", true if losses equal those of the same compiler without recordings. The
JSON is written as rows come. Exits 1 if a row of cgtree failed or has other losses, and 77 if a package is absent.
"""

import argparse
import json
import logging
import os
import statistics
import subprocess
import sys
import time
import warnings

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(os.path.dirname(FOLDER)), "python"), FOLDER]

MODELS = ("transformers/bert", "transformers/gpt2", "transformers/t5", "timm/vit_tiny_patch16_224",
          "torchvision/resnet18")
# By kind of kernels: the kind with the same compiler and without recordings.
KERNELS = {"none": None, "aot eager": None, "plain inductor": None, "eager": "aot eager",
           "inductor": "plain inductor", "graph trees": "plain inductor"}
OURS = ("eager", "inductor")
ABSENT = 77
MARK = "ROW "


def loss_of(result):
    """Returns a loss computed from the largest floating-point tensor that a model returned."""
    import torch
    logits = result.logits if hasattr(result, "logits") else result
    logits = logits["out"] if isinstance(logits, dict) else logits
    rows = logits.reshape(-1, logits.shape[-1])
    wanted = torch.arange(rows.shape[0], device=rows.device) % rows.shape[1]
    return torch.nn.functional.cross_entropy(rows.float(), wanted)


def train(model_name, optimizer_name, kernels, options):
    """Returns the row of a training in this process."""
    import cgtree.torch
    import torch
    import torch_models
    import torch_programs
    device = options.device or ("cuda:0" if torch.cuda.is_available() else "cpu")
    is_gpu = device != "cpu"
    subject = torch_models.make(*model_name.split("/"), device, options.seed)
    model = subject.module.train()
    call = torch_programs.compile_with(kernels)(model)
    make = {"sgd": lambda given: torch.optim.SGD(given, 0.01, momentum=0.9),
            "adam": lambda given: torch.optim.Adam(given, 1e-3)}[optimizer_name]
    optimizer = make(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.5)
    torch.manual_seed(options.seed)
    losses, times = [], []
    if is_gpu:
        torch.cuda.reset_peak_memory_stats()
    for i in range(options.steps):
        inputs = subject.inputs(i)
        if is_gpu:
            torch.cuda.synchronize()
        began = time.perf_counter_ns()
        if kernels == "graph trees":
            torch.compiler.cudagraph_mark_step_begin()
        optimizer.zero_grad()
        result = call(**inputs) if isinstance(inputs, dict) else call(*inputs)
        loss = loss_of(result)
        del result
        loss.backward()
        optimizer.step()
        schedule.step()
        if is_gpu:
            torch.cuda.synchronize()
        times.append((time.perf_counter_ns() - began) / 1000)
        losses.append(loss.item())
    row = {"device": torch.cuda.get_device_name() if is_gpu else "CPU", "torch": torch.__version__,
           "losses": losses, "us": round(statistics.median(times[len(times) // 2:]), 1),
           "first_steps_s": round(sum(times[:len(times) // 2]) / 1e6, 1)}
    if is_gpu:
        row["peak_allocated"] = torch.cuda.max_memory_allocated()
        row["peak_reserved"] = torch.cuda.max_memory_reserved()
        free, whole = torch.cuda.mem_get_info()
        row["used_on_device"] = whole - free
        row["cgtree_pools"] = cgtree.torch.context(device).stats() if kernels in OURS else {}
    if kernels in OURS:
        stats = cgtree.torch.stats(call)
        row.update({name: stats[name] for name in ("calls", "replays", "recordings", "graphs")})
        row["reasons"] = stats["eager"]
    return row


def work(options):
    """Prints the row of one training as JSON."""
    import torch
    torch._logging.set_logs(all=logging.CRITICAL)
    torch.backends.cudnn.deterministic = True  # so that replays use the same convolutions
    import torch._inductor.config
    torch._inductor.config.fallback_random = True  # draws the numbers of eager PyTorch
    name, optimizer, kernels = options.worker.split(",")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        row = train(name, optimizer, kernels, options)
    print(MARK + json.dumps(row), flush=True)


def start(name, optimizer, kernels, options):
    """Returns the row of one training, from a separate process."""
    row = {"model": name, "optimizer": optimizer, "kernels": kernels}
    command = [sys.executable, os.path.abspath(__file__), f"--worker={name},{optimizer},{kernels}",
               f"--steps={options.steps}", f"--device={options.device}", f"--seed={options.seed}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=options.limit,
                              check=False)
    except subprocess.TimeoutExpired:
        return {**row, "failed": f"took more than {options.limit} s"}
    found = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if not found:
        return {**row, "failed": f"ended with {done.returncode}: {done.stderr[-2000:]}"}
    return {**row, **json.loads(found[0][len(MARK):])}


def compare(row, rows, tolerance):
    """Adds the comparison of its losses to a row, and "result" as text."""
    def losses_of(kernels):
        same = [other for other in rows if kernels == other["kernels"] and "losses" in other
                and all(other[key] == row[key] for key in ("model", "optimizer"))]
        return same[0]["losses"] if same else None

    if "failed" in row:
        row["result"] = f"failed: {row['failed'].splitlines()[-1][:200]}"
        return
    plain, control = losses_of("none"), losses_of(KERNELS[row["kernels"]])
    if plain is not None:
        row["equal"] = row["losses"] == plain
        row["worst"] = max(abs(a - b) / max(abs(b), 1e-9) for a, b in zip(row["losses"], plain))
    if control is not None:
        row["as_compiled"] = row["losses"] == control
    row["result"] = ("equal" if row.get("equal") else "as compiled" if row.get("as_compiled")
                     else "close" if row.get("worst", 0.0) <= tolerance else "different")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--optimizers", default="sgd,adam")
    parser.add_argument("--kernels", default=",".join(KERNELS))
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--tolerance", type=float, default=2e-3)
    parser.add_argument("--device", default="")
    parser.add_argument("--limit", type=float, default=300)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "little"))
    parser.add_argument("--json", default="")
    parser.add_argument("--worker", default="")
    options = parser.parse_args()
    if options.worker:
        work(options)
        return 0
    try:
        import torch  # noqa: F401
        import torch_models
    except ImportError as error:
        print(f"absent: {error}")
        return ABSENT
    for source in {name.split("/")[0] for name in options.models.split(",")}:
        if torch_models.absent(source):
            print(f"{source}: {torch_models.absent(source)} is absent")
            return ABSENT
    kinds = sorted(options.kernels.split(","), key=list(KERNELS).index)  # controls first
    print(f"seed {options.seed}, torch {torch.__version__}")
    rows = []
    for name in options.models.split(","):
        for optimizer in options.optimizers.split(","):
            for kernels in kinds:
                row = start(name, optimizer, kernels, options)
                compare(row, rows, options.tolerance)
                rows.append(row)
                print(f"{name:28} {optimizer:4} {kernels:14} {row.get('us', 0):10} us a step, "
                      f"{row.get('peak_reserved', 0) / 2**20:7.1f} MiB reserved, "
                      f"{row.get('replays', 0)} of {row.get('calls', 0)} replayed  "
                      f"{row['result'][:200]} {row.get('worst', 0.0):.2g} "
                      f"{'; '.join(row.get('reasons', []))[:200]}", flush=True)
                if options.json:
                    with open(options.json, "w", encoding="utf-8") as file:
                        json.dump({"program": "torch_training_run", "seed": options.seed,
                                   "command": sys.argv[1:], "rows": rows}, file, indent=1)
    return int(any(row["kernels"] in OURS and row["result"].startswith(("different", "failed"))
                   for row in rows))


if __name__ == "__main__":
    sys.exit(main())
