"""Runs the programs of torch_programs.py eagerly and compiled, and compares everything visible.

usage: torch_programs_run.py [--kernels=eager,inductor,graph trees,replaced] [--device=cuda]
                             [--programs=a,b] [--seed=N] [--json=FILE]

--kernels: "eager" and "inductor" are cgtree.torch.compile(kernels=...); "graph trees" is
torch.compile(mode="reduce-overhead"), "replaced" the same after cgtree.torch.replace_graph_trees().
Results of kernels="eager" must equal eager ones bit for bit, others within --tolerance.

A line per program and kind of kernels: `equal`, `different: DIFFERENCE` or `failed: EXCEPTION`, with the calls of
graphs, their replays, and the reasons of calls without a replay. The JSON has the same: program, kernels, result,
equal, calls, replays, recordings, reasons, seconds. Exits 1 if a program is different with kernels of cgtree, and not
with "graph trees" if these run too.
"""

import argparse
import json
import logging
import os
import sys
import time
import warnings

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(os.path.dirname(FOLDER)), "python"), FOLDER]

import torch  # noqa: E402
import torch._inductor.config  # noqa: E402
import torch_programs  # noqa: E402

import cgtree.torch  # noqa: E402
from cgtree._torch_seam import graphs  # noqa: E402

KERNELS = ("eager", "inductor", "graph trees", "replaced")


def run(name, kernels, options):
    torch._dynamo.reset()
    tolerance = 0.0 if kernels == "eager" else options.tolerance
    end = cgtree.torch.replace_graph_trees() if kernels == "replaced" else lambda: None
    kept = set(map(id, graphs()))
    row = {"program": name, "kernels": kernels}
    began = time.monotonic()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            torch_programs.run(name, options.device, torch_programs.compile_with(kernels), options.seed, tolerance)
            if options.device != "cpu":
                torch.cuda.synchronize()
            row["result"] = "equal"
        except torch_programs.Different as error:
            row["result"] = f"different: {error}"
        except Exception as error:  # pylint: disable=broad-except
            row["result"] = f"failed: {type(error).__name__}: {str(error).strip()[:300]}"
        finally:
            end()
    made = [graph for graph in graphs() if id(graph) not in kept]
    counts = [graph.stats() for graph in made]
    for what in ("calls", "replays", "recordings"):
        row[what] = sum(count[what] for count in counts)
    if getattr(torch_programs.PROGRAMS[name], "is_piece", False) and kernels in ("eager", "inductor") and (
            row["result"] == "equal" and not row["replays"]):
        row["result"] = "different: nothing of it replays"
    row["equal"] = row["result"] == "equal"
    said = [str(warning.message) for warning in caught if "cgtree" in str(warning.message)]
    row["reasons"] = list(dict.fromkeys(said))
    row["seconds"] = round(time.monotonic() - began, 2)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", default="eager,inductor,graph trees,replaced")
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--programs", default="")
    parser.add_argument("--tolerance", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "little"))
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    torch._logging.set_logs(all=logging.CRITICAL)
    torch._inductor.config.fallback_random = True  # draws the numbers of eager PyTorch
    kinds = options.kernels.split(",")
    for kernels in kinds:
        if kernels not in KERNELS:
            parser.error(f"--kernels={kernels}: expected {', '.join(KERNELS)}")
    if options.device != "cpu":
        torch.backends.cudnn.deterministic = True  # so that replays use the same convolutions
    names = options.programs.split(",") if options.programs else list(torch_programs.PROGRAMS)
    print(f"seed {options.seed}, torch {torch.__version__}, {options.device}")
    rows = []
    for name in names:
        for kernels in kinds:
            row = run(name, kernels, options)
            rows.append(row)
            print(f"{name:44} {kernels:12} {row['replays']:4} of {row['calls']:4} calls replayed  "
                  f"{row['result'][:150]}  {'; '.join(row['reasons'])[:150]}", flush=True)
            if options.json:  # written early, so that a crash of a later program loses no row
                with open(options.json, "w", encoding="utf-8") as file:
                    json.dump({"seed": options.seed, "torch": torch.__version__,
                               "device": options.device, "rows": rows}, file, indent=1)
    excused = {row["program"] for row in rows
               if row["kernels"] == "graph trees" and not row["equal"]}
    wrong = [row for row in rows if row["kernels"] != "graph trees"
             and row["result"].startswith("different") and row["program"] not in excused]
    for kernels in kinds:
        mine = [row for row in rows if row["kernels"] == kernels]
        print(f"{kernels}: {sum(row['equal'] for row in mine)} of {len(mine)} equal, "
              f"{sum(row['replays'] > 0 for row in mine)} with replays")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
