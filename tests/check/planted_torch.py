#!/usr/bin/env python3
"""A graph of PyTorch's whose input is a block of the caching allocator: planted_torch.py freed|reused|kept.

freed: the input is freed before the last replay; reused: its block is allocated again, too; kept: it lives.
"""

import argparse

SIZE = 1 << 20


def main():
    parser = argparse.ArgumentParser(prog="planted_torch.py", description=__doc__.splitlines()[0])
    parser.add_argument("case", choices=["freed", "reused", "kept"])
    case = parser.parse_args().case
    import torch

    given = torch.ones(SIZE, device="cuda")
    other = torch.ones(SIZE, device="cuda")
    (given * 2).add_(other)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = given * 2 + other
    graph.replay()
    torch.cuda.synchronize()
    kept = [given, made]
    address = given.data_ptr()
    if case != "kept":
        kept.pop(0)
        del given
    if case == "reused":
        while kept[-1].data_ptr() != address and len(kept) < 100:
            kept.append(torch.zeros(SIZE, device="cuda"))
    torch.cuda.synchronize()
    graph.replay()
    torch.cuda.synchronize()
    print(f"replayed {len(kept)}")


if __name__ == "__main__":
    main()
