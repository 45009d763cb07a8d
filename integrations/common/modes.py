"""Runs a program of ggml unchanged, without graphs, and on cgtree: the common part of the comparing programs."""

import collections
import hashlib
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import time

MODES = {
    "own": {"GGML_CUDA_CGTREE": "0"},
    "eager": {"GGML_CUDA_CGTREE": "0", "GGML_CUDA_DISABLE_GRAPHS": "1"},
    "cgtree": {},
}
CALLS = ["captures", "instantiations", "updates", "launches"]  # in the order of CudaCalls


def absolute(path):
    """For paths of programs, which are started in another folder."""
    return pathlib.Path(path).resolve()


def end_by_exception():
    """SIGTERM ends the program as an exception does, so that its child processes end with it."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


class Failed(Exception):
    """A program has failed."""


class Watched:
    """A program in a mode: its environment, and the files in which it leaves its figures."""

    def __init__(self, mode, name, folder, cuda_calls=None):
        folder = pathlib.Path(folder).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        self.mode = mode
        self.log, self._calls, self._events = [folder / f"{name}.{mode}.{end}"
                                               for end in ["log", "calls", "events"]]
        self._calls.unlink(missing_ok=True)
        self._events.unlink(missing_ok=True)
        self.environment = dict(os.environ, **MODES[mode])
        if mode == "cgtree":
            self.environment["GGML_CUDA_CGTREE_EVENTS"] = str(self._events)
        if cuda_calls:
            self.environment |= {"LD_PRELOAD": str(cuda_calls), "CUDA_CALLS_FILE": str(self._calls)}

    def calls(self):
        """Returns the counts of CUDA runtime calls so far; empty if they are not counted."""
        if not self._calls.is_file() or self._calls.stat().st_size != 32:
            return {}
        return dict(zip(CALLS, struct.unpack("<4q", self._calls.read_bytes())))

    def events(self):
        """Returns the count of each outcome except replays; empty in the other modes."""
        lines = self._events.read_text(encoding="utf-8").splitlines() if self._events.is_file() else []
        return dict(collections.Counter(re.match(r"\w*", line)[0] for line in lines))


def run(command, mode, name, folder, cuda_calls=None, seconds=300):
    """Runs a program to its end. Returns (stdout, stderr, figures)."""
    watched = Watched(mode, name, folder, cuda_calls)
    started = time.perf_counter()
    # Programs leave logs in their working folder.
    done = subprocess.run([str(word) for word in command], env=watched.environment, cwd=folder, text=True,
                          check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, errors="replace", timeout=seconds)
    taken = time.perf_counter() - started
    watched.log.write_text(done.stderr + "\n" + done.stdout, encoding="utf-8")
    if done.returncode != 0:
        raise Failed(f"{name}, {mode}: exit status {done.returncode}: see {watched.log}\n{done.stderr[-2000:]}")
    figures = {"mode": mode, "seconds": round(taken, 3), **watched.calls()}
    if watched.events():
        figures["events"] = watched.events()
    return done.stdout, done.stderr, figures


def compare(name, command, parse, folder, cuda_calls=None, modes=MODES):
    """Runs a program in all modes. `parse` returns figures; the modes must agree on its `text`, which is hashed."""
    runs = []
    for mode in modes:
        stdout, stderr, figures = run(command, mode, name, folder, cuda_calls)
        figures |= parse(stdout, stderr)
        if "text" in figures:
            figures["text_hash"] = hashlib.sha256(figures.pop("text").encode()).hexdigest()[:16]
        runs.append(figures)
        print(name, json.dumps(figures), flush=True)
    return {"command": [pathlib.Path(str(word)).name for word in command],
            "same_text": len({figures.get("text_hash") for figures in runs}) == 1, "runs": runs}


def compare_all(programs, out, cuda_calls=None, modes=MODES):
    """Compares {name: (command, parse)}, and writes one JSON. Returns 1 if a program failed or modes do
    not agree."""
    made, status = {}, 0
    for name, (command, parse) in programs.items():
        try:
            made[name] = compare(name, command, parse, out.parent, cuda_calls, modes)
            status |= not made[name]["same_text"]
        except (Failed, subprocess.TimeoutExpired) as failure:
            print(failure, file=sys.stderr)
            made[name] = {"failure": str(failure)[-2000:]}
            status = 1
        # After each program, so that an interrupted one leaves the others' figures.
        out.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    return int(status)
