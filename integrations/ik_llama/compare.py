#!/usr/bin/env python3
"""Runs llama-bench, llama-batched-bench and llama-speculative unchanged, without graphs, and on
cgtree, and writes one JSON.

usage: compare.py --bin DIR --model FILE --draft FILE --out FILE [OPTION...]

Exits with 1 if a program fails, or if the modes of llama-speculative do not agree on the text.
"""

import argparse
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "common"))

import modes  # noqa: E402

PROMPT = "The quick brown fox jumps over the lazy dog. " * 8


def parse_bench(stdout, _):
    rows = json.loads(stdout)
    return {"rows": [{"prompt": row["n_prompt"], "generated": row["n_gen"],
                      "tokens_per_second": round(row["avg_ts"], 2), "deviation": round(row["stddev_ts"], 2)}
                     for row in rows]}


def parse_batched(stdout, stderr):
    rows = []
    for line in (stdout + stderr).splitlines():
        cells = [cell.strip() for cell in line.strip("| \n").split("|")]
        if len(cells) == 10 and cells[0].isdigit():
            rows.append({"prompt": int(cells[0]), "generated": int(cells[1]), "batch": int(cells[2]),
                         "prompt_tokens_per_second": float(cells[5]),
                         "tokens_per_second": float(cells[7])})
    return {"rows": rows}


def parse_speculative(stdout, stderr):
    found = {}
    for name, what in [("n_drafted", r"n_drafted\s*=\s*(\d+)"), ("n_accept", r"n_accept\s*=\s*(\d+)"),
                       ("n_predict", r"n_predict\s*=\s*(\d+)"),
                       ("tokens_per_second", r"decoded.*speed:\s*([0-9.]+)")]:
        match = re.search(what, stdout + stderr)
        found[name] = float(match.group(1)) if match else None
    # Without the colours that mark the sequence of a token.
    return {**found, "text": re.sub(r"\x1b\[\d+m", "", stdout)}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--bin", type=modes.absolute, required=True)
    parser.add_argument("--model", type=modes.absolute, required=True)
    parser.add_argument("--draft", type=modes.absolute, required=True)
    parser.add_argument("--out", type=modes.absolute, required=True)
    parser.add_argument("--cuda_calls", type=modes.absolute, help="libcuda_calls.so")
    parser.add_argument("--modes", default=",".join(modes.MODES))
    parser.add_argument("--layers_on_gpu", type=int, default=99)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--batches", default="1,2,4,8,16")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--bench_arguments", default="", help="for llama-bench")
    parser.add_argument("arguments", nargs="*", help="for the others, behind --")
    options = parser.parse_args()
    modes.end_by_exception()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    model = ["-m", options.model, "-ngl", options.layers_on_gpu]
    tokens, largest = options.tokens, max(int(batch) for batch in options.batches.split(","))
    # One process for each: in a process that launched many kernels one by one on a second stream, all graphs take
    # longer, plain CUDA graphs too. Each test has a separate context and stream.
    bench = [options.bin / "llama-bench", *model, "-r", options.repetitions, "-o", "json",
             *options.bench_arguments.split()]
    programs = {
        "llama-bench-prompt": ([*bench, "-p", 4 * tokens, "-n", 0], parse_bench),
        "llama-bench-tokens": ([*bench, "-p", 0, "-n", tokens], parse_bench),
        "llama-batched-bench": (
            [options.bin / "llama-batched-bench", *model, "-c", largest * 3 * tokens, "-npp", tokens,
             "-ntg", tokens, "-npl", options.batches, *options.arguments], parse_batched),
        "llama-speculative": (
            [options.bin / "llama-speculative", *model, "-md", options.draft, "-ngld", options.layers_on_gpu,
             "-c", 4096, "-p", PROMPT, "-n", tokens, "--temp", 0, "-s", 1, *options.arguments], parse_speculative),
    }
    return modes.compare_all(programs, options.out, options.cuda_calls, options.modes.split(","))


if __name__ == "__main__":
    sys.exit(main())
