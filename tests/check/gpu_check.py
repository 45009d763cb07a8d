#!/usr/bin/env python3
"""Runs the planted programs on a GPU with cgtree-check, and without it: found, false, and what it costs.

Lies with planted, libcgtree_check.so and the package cgtree_check in one folder (//tests/check:check_gpu_bundle). Writes JSON; exits with 1 if a fault was not found, or something was that is none. Nothing is built.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
# The findings that each program has with its fault. Without it there is none.
EXPECTED = {"freed": ["freed"], "freed_later": ["freed"], "freed_in_order": ["freed"], "freed_pinned": ["freed"], "reused": ["reused"],
            "unmapped": ["unmapped"], "refused": ["refused"], "legacy": ["legacy"], "pageable": ["pageable"],
            "allocating": ["allocating"], "recaptured": ["recaptured"], "leaked": ["leaked"],
            "unlaunched": ["unlaunched"], "workspace": ["freed"], "updated": ["freed"], "node_memory": ["freed"],
            "freed_neighbour": ["freed"], "child": ["freed"], "conditional": ["freed"], "patched": ["freed"], "failing": ["refused"],
            "remapped": ["unmapped"], "registered": ["freed"], "managed": ["freed"], "threads": ["freed"],
            "reset": ["freed"]}
TORCH = {"freed": ["freed"], "reused": ["reused"], "kept": []}


def run(words, timeout=300):
    environment = {**os.environ, "PYTHONPATH": f"{HERE}:{os.environ.get('PYTHONPATH', '')}"}
    try:
        return subprocess.run(words, env=environment, text=True, capture_output=True, check=False, timeout=timeout)
    except subprocess.TimeoutExpired as error:
        return subprocess.CompletedProcess(words, 124, str(error.stdout), str(error.stderr))


def check(words, folder, library):
    """Runs a program with cgtree-check. Returns the completed process, and the reports."""
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    said = run([sys.executable, "-m", "cgtree_check", "run", f"--library={library}", f"--json={report}", *words])
    return said, json.loads(report.read_text(encoding="utf-8"))["processes"] if report.exists() else []


def judge(name, words, expected, folder, library):
    """One row: the findings of a program, and whether they are the ones that are expected."""
    bare = run(words)
    said, reports = check(words, folder, library)
    findings = [finding for report in reports for finding in report.get("findings", [])]
    kinds = sorted({finding["kind"] for finding in findings})
    # A program may die of its fault: the launcher says so as a shell does.
    status = bare.returncode if bare.returncode >= 0 else 128 - bare.returncode
    is_right = kinds == sorted(expected) and said.returncode == status and bool(reports)
    print(f"{'ok  ' if is_right else 'FAIL'} {name}: expected {expected}, found {kinds}", flush=True)
    if not is_right:
        print(said.stdout + said.stderr, flush=True)
    return {"name": name, "expected": expected, "found": kinds, "is_right": is_right, "status": said.returncode,
            "bare_status": bare.returncode, "stdout": bare.stdout, "said": said.stderr, "reports": reports}


def bench(planted, folder, library, rounds):
    """Times in nanoseconds, bare and with the library: the median of each over rounds that alternate."""
    times = {"bare": [], "checked": []}
    for _ in range(rounds):
        times["bare"].append(json.loads(run([planted, "--bench"]).stdout or "{}"))
        times["checked"].append(json.loads(check([planted, "--bench"], folder, library)[0].stdout or "{}"))
    rows = {}
    for key in times["bare"][0]:
        bare, checked = (sorted(row[key] for row in times[how])[rounds // 2] for how in ("bare", "checked"))
        rows[key] = {"bare": bare, "checked": checked, "more": round(checked - bare, 1)}
    for nodes in (1, 100, 1000):
        key = f"instantiate_{nodes}_ns"
        if key in rows:
            rows[key]["more_per_node"] = round(rows[key]["more"] / nodes, 1)
    return rows


def main():
    parser = argparse.ArgumentParser(prog="gpu_check.py", description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path, default=pathlib.Path("check_gpu.json"))
    parser.add_argument("--library", type=pathlib.Path, default=HERE / "libcgtree_check.so")
    parser.add_argument("--planted", type=pathlib.Path, default=HERE / "planted")
    parser.add_argument("--only", help="one case")
    parser.add_argument("--rounds", type=int, default=5, help="of the timing; 0 leaves it out")
    options = parser.parse_args()
    folder = options.json.resolve().parent
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for name, expected in EXPECTED.items():
        if options.only not in (None, name):
            continue
        for kind in ("--fault", "--clean"):
            rows.append(judge(f"{name} {kind}", [str(options.planted), name, kind],
                              expected if kind == "--fault" else [], folder, options.library))
    has_torch = run([sys.executable, "-c", "import torch; assert torch.cuda.is_available()"]).returncode == 0
    for name, expected in TORCH.items() if has_torch and options.only in (None, "torch") else ():
        rows.append(judge(f"torch {name}", [sys.executable, str(HERE / "planted_torch.py"), name], expected, folder,
                          options.library))
    result = {"rows": rows, "has_torch": has_torch,
              "times_ns": bench(str(options.planted), folder, options.library, options.rounds)
              if options.rounds > 0 and options.only is None else {}}
    options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (folder / "report.json").unlink(missing_ok=True)
    for key, row in result["times_ns"].items():
        print(f"{key}: {row}")
    wrong = [row["name"] for row in rows if not row["is_right"]]
    print(f"{len(rows) - len(wrong)} right, {len(wrong)} wrong: {', '.join(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
