"""Random snapshots of any size: valid, but not made by a program."""

import random

_BLOCK = 512


def _input(rng, addresses):
    treatment = rng.choice(["static", "managed", "copied", "copied_back", "value", "rebound"])
    return {"dtype": "float32", "shape": [rng.randrange(9), 4], "static": treatment == "static",
            "mutated": rng.random() < 0.2, "treatment": treatment,
            "address": 0 if treatment == "rebound" else rng.choice(addresses)}


def _scopes(rng):
    count = rng.randrange(1, 20)
    return {"paths": ["", "layer <0>", "layer <0>/attention"], "kernels": ["", "gemm<float>"],
            "node_types": [rng.choice(["kernel", "copy"]) for _ in range(count)],
            "node_kernels": [rng.randrange(2) for _ in range(count)],
            "node_paths": [rng.randrange(3) for _ in range(count)],
            "node_ids": [0] * count, "exec_node_ids": [0] * count}


def _node(rng, number, functions, slots, starts):
    function = rng.choice(functions)
    ranges, at = [], 0
    for _ in range(rng.randrange(1, 12)):
        at = rng.choice(starts) if at == 0 else at + _BLOCK * rng.randrange(2, 40)
        ranges.append({"address": at, "bytes": _BLOCK * rng.randrange(1, 7)})
        at += ranges[-1]["bytes"]
    slot = rng.choice(slots)
    return {"id": number, "parent": rng.randrange(number), "function": function["name"],
            "function_id": function["id"], "signature": f"float32 {{{rng.randrange(64)}, 4}}",
            "cause": {"nearest": 0, "changes": []}, "followed_by": [],
            "replays": rng.choice([0, rng.randrange(10_000)]), "root_patches": 0,
            "recorded_at_us": 10**15 + number, "record_us": rng.randrange(1, 10_000),
            "graph_nodes": 3, "kernel_nodes": 3, "estimated_graph_bytes": 9216, "padded": {},
            "footprint_bytes": sum(item["bytes"] for item in ranges), "footprint": ranges, "kept": [],
            "inputs": [_input(rng, starts) for _ in range(rng.randrange(4))],
            "outputs": [{"dtype": "float32", "shape": [4], "kind": "slot", "slot": slot["slot"],
                         "address": slot["address"], "bytes": slot["bytes"], "live": slot["live"]}],
            "audit": {"memory": [], "foreign": [], "unseen": []},
            **({"scopes": _scopes(rng)} if rng.random() < 0.3 else {})}


def make(seed, slots, recordings):
    """Returns a snapshot with `slots` slots, which are in few segments and may overlap."""
    rng = random.Random(seed)
    functions = [{"id": i, "name": f"f{i}", "calls": 9, "warm_ups": 1, "recordings": 3, "replays": 5,
                  "failures": 0, "evictions": 0, "kept_recordings": 3, "frozen": False, "skips": {},
                  "axes": []} for i in range(1, 1 + rng.randrange(1, 30))]
    segments, all_slots, base = {"output": [], "scratch": []}, [], 1 << 46
    while len(all_slots) < slots:
        region = rng.choice(list(segments))
        begin, blocks = base, rng.randrange(1, 20 + slots)
        segments[region].append({"address": begin, "bytes": blocks * _BLOCK})
        base += (blocks + rng.choice([0, 8])) * _BLOCK
        for _ in range(rng.randrange(1, 3 + blocks // 4)):
            first = rng.randrange(blocks)
            live = rng.random() < 0.3
            slot = {"slot": len(all_slots), "region": region, "address": begin + first * _BLOCK,
                    "bytes": rng.choice([_BLOCK, rng.randrange(1, 1 + _BLOCK * min(8, blocks - first))]),
                    "live": live,
                    "workspace": rng.random() < 0.1}
            if live:
                slot["holds"] = {"function": rng.choice(functions)["name"], "output": rng.randrange(3)}
            all_slots.append(slot)
    del all_slots[slots:]
    starts = [slot["address"] // _BLOCK * _BLOCK for slot in all_slots]
    pools = {name: {"reserved_bytes": {"current": sum(item["bytes"] for item in found), "peak": 0},
                    "segments": found} for name, found in segments.items()}
    pools["eager"] = {"reserved_bytes": {"current": 0, "peak": 0}, "segments": [], "blocks": []}
    nodes = [_node(rng, number, functions, all_slots, starts) for number in range(1, 1 + recordings)]
    return {"schema": "cgtree.snapshot", "version": 1, "time_us": 10**15 + 10**9, "device": "cuda:0",
            "generation": 3, "restores": 1, "live_outputs": sum(slot["live"] for slot in all_slots),
            "live_bytes": 0, "reserved_bytes": 0, "recording_us": 10**6, "max_recordings": 1024,
            "verify_every": 0, "current": 0, "functions": functions, "nodes": nodes,
            "slots": all_slots, "pools": pools}
