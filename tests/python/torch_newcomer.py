"""The cases of torch_cases.py, each compared with eager PyTorch over random inputs.

usage: torch_newcomer.py [--device=cuda] [--cases=a,b] [--json=FILE] [--seed=N]

Cases run in a process of their own that is started anew after a crash, after a time-out, and when
the device has failed. A line per case: `right`, `wrong: WHY`, `failed: EXCEPTION`, `absent: WHAT`.
Exits 1 unless all are right or absent.
"""

import argparse
import faulthandler
import importlib.util
import json
import os
import queue
import subprocess
import sys
import threading
import time
import traceback

FOLDER = os.path.dirname(os.path.abspath(__file__))
TIMEOUT = 240  # seconds for a case; the compiler of PyTorch takes minutes on a cold machine
MARK = "CASE "


def run_case(name, device):
    """Runs one case, and returns (result, seconds)."""
    import torch
    import torch_cases
    function, needs_gpu = torch_cases.CASES[name]
    began = time.monotonic()
    if needs_gpu and device == "cpu":
        return "absent: a GPU", 0.0
    try:
        function(torch_cases.Trial(device))
        if device != "cpu":
            torch.cuda.synchronize()
        result = "right"
    except (torch_cases.Wrong, AssertionError) as error:
        result = f"wrong: {error}"
        traceback.print_exc()
    except Exception as error:  # pylint: disable=broad-except
        result = f"failed: {type(error).__name__}: {error}"
        traceback.print_exc()
    return result, time.monotonic() - began


def work(names, device, seed):
    """Runs cases and prints a line for each, until one leaves the device unusable."""
    import torch
    faulthandler.enable()
    if "on_our_allocator" in names:
        import cgtree.torch
        cgtree.torch.use_allocator()
    for number, name in enumerate(names):
        torch.manual_seed(seed + number)
        result, seconds = run_case(name, device)
        print(MARK + json.dumps([name, result, round(seconds, 2)]), flush=True)
        if device != "cpu":
            torch.cuda.synchronize()  # raises if the device has failed


def start(names, device, seed):
    """Runs cases in another process. Returns {name: (result, seconds)} of those that ended, and the
    process's last words if not all did."""
    command = [sys.executable, os.path.abspath(__file__), f"--worker={','.join(names)}",
               f"--device={device}", f"--seed={seed}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = queue.Queue()

    def read():
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    done, said = {}, []
    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            line = lines.get(timeout=max(0.1, deadline - time.monotonic()))
        except queue.Empty:
            process.kill()
            process.wait()
            return done, f"took more than {TIMEOUT} s", said
        if line is None:
            break
        if line.startswith(MARK):
            name, result, seconds = json.loads(line[len(MARK):])
            done[name] = (result, seconds, "".join(said[-40:]) if result != "right" else "")
            said, deadline = [], time.monotonic() + TIMEOUT
        else:
            said.append(line)
    code = process.wait()
    return done, f"the process ended with {code}", said


def run_all(names, device, seed):
    """Runs all cases; a case that ends its process does not end the others."""
    results = {}
    rest = list(names)
    while rest:
        alone = [name for name in rest if name == "on_our_allocator"]
        together = [name for name in rest if name not in alone]
        chunk = together or alone
        done, why, said = start(chunk, device, seed)
        results.update(done)
        left = [name for name in chunk if name not in done]
        if left and (not done or chunk[len(done)] == left[0]):
            culprit = left[0]
            if not done or "more than" in why or results[chunk[len(done) - 1]][0] == "right":
                results[culprit] = (f"failed: {why}", 0.0, "".join(said[-40:]))
        rest = [name for name in names if name not in results]
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default=None)
    parser.add_argument("--cases", default="")
    parser.add_argument("--json", default="")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "little"))
    parser.add_argument("--worker", default="")
    options = parser.parse_args()
    sys.path.insert(0, FOLDER)
    if importlib.util.find_spec("torch") is None:
        print("torch: absent")
        return 0
    import torch
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if options.worker:
        work(options.worker.split(","), device if device == "cpu" else "cuda:0", options.seed)
        return 0
    from torch_cases import CASES as cases
    names = options.cases.split(",") if options.cases else list(cases)
    print(f"seed {options.seed}, torch {torch.__version__}, {device}")
    results = run_all(names, device, options.seed)
    for name in names:
        result, seconds, said = results[name]
        title = (cases[name][0].__doc__ or name).splitlines()[0]
        print(f"{name:32s} {seconds:6.1f} s  {result.splitlines()[0][:160]:40s}  {title}")
    for name in names:
        result, _, said = results[name]
        if not result.startswith(("right", "absent")):
            print(f"\n==== {name}: {result}\n{said[-3000:]}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"seed": options.seed, "torch": torch.__version__, "device": device,
                       "cases": {name: {"result": each[0], "seconds": each[1], "output": each[2]}
                                 for name, each in results.items()}}, file, indent=1)
    return int(any(not each[0].startswith(("right", "absent")) for each in results.values()))


if __name__ == "__main__":
    sys.exit(main())
