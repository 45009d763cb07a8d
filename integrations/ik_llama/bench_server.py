#!/usr/bin/env python3
"""Replays requests of a trace against llama-server unchanged, without graphs, and on cgtree.

usage: bench_server.py --server FILE --model FILE --trace CSV --out FILE [--draft FILE] [OPTION...]

The trace has the columns ContextTokens and GeneratedTokens. Its requests are sent in order, each as
soon as a slot is free, so that the server is always busy; prompts are random tokens, seeded by the
number of the request. The JSON has for each mode and number of slots: tokens per second,
milliseconds to the first token and between tokens, bytes of device memory and of the process at the
start, in the middle and at the end, the CUDA runtime calls until then (with --cuda_calls), and a
hash of all texts.

With one slot, equal seeds give equal texts in all modes, or the program exits with 1. With several slots, timing
decides which requests meet in a batch, and kernels differ with the batch: `same_texts` is the share of requests with
the text of the first mode.
"""

import argparse
import csv
import hashlib
import http.client
import json
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "common"))

import modes  # noqa: E402

FIRST_TOKEN, TOKENS = 259, 32000  # of the vocabulary: earlier tokens are special, or single bytes


def requests_of(options):
    """Returns [(prompt, tokens to generate)] of the first requests of the trace."""
    with options.trace.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))[:options.requests]
    made = []
    while len(made) < options.requests:
        row = rows[len(made) % len(rows)]
        tokens = random.Random(f"{options.seed} {len(made)}")
        length = max(1, min(int(row["ContextTokens"]), options.max_prompt))
        made.append(([tokens.randrange(FIRST_TOKEN, TOKENS) for _ in range(length)],
                     max(2, min(int(row["GeneratedTokens"]), options.max_tokens))))
    return made


class Server:
    """A llama-server, from its start to its end."""

    def __init__(self, options, mode, slots, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        name = f"server{'_draft' if options.draft else ''}_{slots}"
        self.watched = modes.Watched(mode, name, folder, options.cuda_calls)
        # A batch must find cells of the cache in one piece, between those of the other slots.
        context = (2 if slots > 1 else 1) * slots * (options.max_prompt + options.max_tokens + 32)
        command = [str(options.server), "-m", str(options.model), "-c", str(context), "-np", str(slots),
                   "--host", "127.0.0.1", "--port", str(self.port), "-ngl", str(options.layers_on_gpu),
                   "--cache-ram", "0", *options.arguments]
        if options.draft:
            command += ["-md", str(options.draft), "-ngld", str(options.layers_on_gpu),
                        "--spec-type", f"draft:n_max={options.draft_tokens},p_min=0.0"]
        self.log = self.watched.log.open("w", encoding="utf-8")
        self.process = subprocess.Popen(command, env=self.watched.environment, cwd=folder,
                                        stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=self.log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()

    def wait(self, seconds):
        """Waits until the server answers."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                break
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.2)
        said = self.watched.log.read_text(encoding="utf-8", errors="replace")
        raise SystemExit(f"the server does not answer: see {self.log.name}\n{said[-1500:]}")

    def complete(self, prompt, tokens):
        """Returns (text, tokens generated, seconds at which a piece of text came, from the start)."""
        body = {"prompt": prompt, "n_predict": tokens, "stream": True, "temperature": 0, "top_k": 1,
                "ignore_eos": True, "cache_prompt": False}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        started = time.perf_counter()
        connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"the server answered {response.status}: {response.read()!r}")
        pieces, times, count = [], [], 0
        for line in response:
            if not line.startswith(b"data: "):
                continue
            now = time.perf_counter() - started
            piece = json.loads(line[6:])
            if piece.get("stop"):
                count = piece.get("tokens_predicted", len(times))
                break
            pieces.append(piece["content"])
            times.append(now)
        connection.close()
        return "".join(pieces), count, times

    def look(self):
        """Returns the present figures of the server."""
        return {"rss_bytes": self.resident(), "device_bytes": self.device_bytes(), **self.watched.calls()}

    def resident(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return None

    def device_bytes(self):
        """Device memory in use by all programs; null without a GPU."""
        try:
            said = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                                  text=True, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            return int(said.stdout.split()[0]) << 20
        except (OSError, subprocess.CalledProcessError, ValueError, IndexError):
            return None


def percentile(values, share):
    values = sorted(values)
    return round(values[min(len(values) - 1, int(share * len(values)))], 3) if values else None


def replay(server, requests, slots):
    """Sends all requests, `slots` at a time; returns the figures and the texts."""
    results, looks = [None] * len(requests), [server.look()]
    lock, numbers, failures = threading.Lock(), iter(range(len(requests))), []
    finished = 0

    def send():
        nonlocal finished
        while True:
            with lock:
                number = next(numbers, None)
            if number is None or failures:
                return
            try:
                results[number] = server.complete(*requests[number])
            except Exception as failure:  # the waiting thread raises it
                failures.append(failure)
                return
            with lock:
                finished += 1
                if finished == len(requests) // 2:
                    looks.append(server.look())

    started = time.perf_counter()
    threads = [threading.Thread(target=send) for _ in range(slots)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - started
    if failures:
        raise failures[0]
    looks.append(server.look())
    first = [1000 * times[0] for _, _, times in results if times]
    between = [1000 * (b - a) for _, _, times in results for a, b in zip(times, times[1:])]
    tokens = sum(count for _, count, _ in results)
    texts = [text for text, _, _ in results]
    return {
        "requests": len(requests), "tokens": tokens, "seconds": round(seconds, 3),
        "tokens_per_second": round(tokens / seconds, 1),
        "first_token_ms": {"median": percentile(first, 0.5), "p99": percentile(first, 0.99)},
        "between_tokens_ms": {"median": percentile(between, 0.5), "p99": percentile(between, 0.99),
                              "mean": round(statistics.fmean(between), 3) if between else None},
        "start": looks[0], "middle": looks[1], "end": looks[-1],
        "texts_hash": hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16],
    }, texts


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--server", type=modes.absolute, required=True)
    parser.add_argument("--model", type=modes.absolute, required=True)
    parser.add_argument("--draft", type=modes.absolute)
    parser.add_argument("--draft_tokens", type=int, default=4)
    parser.add_argument("--trace", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=modes.absolute, required=True)
    parser.add_argument("--modes", default=",".join(modes.MODES))
    parser.add_argument("--slots", default="1,4,16")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--max_prompt", type=int, default=1024)
    parser.add_argument("--max_tokens", type=int, default=128)
    parser.add_argument("--layers_on_gpu", type=int, default=99)
    parser.add_argument("--cuda_calls", type=modes.absolute, help="libcuda_calls.so")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--start_seconds", type=int, default=120)
    parser.add_argument("arguments", nargs="*", help="for the server, behind --")
    options = parser.parse_args()
    modes.end_by_exception()
    requests = requests_of(options)
    folder = options.out.parent
    folder.mkdir(parents=True, exist_ok=True)
    made = {"model": options.model.name, "draft": options.draft and options.draft.name,
            "draft_tokens": options.draft_tokens if options.draft else 0,
            "max_prompt": options.max_prompt, "max_tokens": options.max_tokens, "seed": options.seed,
            "arguments": options.arguments, "runs": []}
    differs = False
    for slots in [int(slots) for slots in options.slots.split(",")]:
        expected = None
        for mode in options.modes.split(","):
            with Server(options, mode, slots, folder) as server:
                server.wait(options.start_seconds)
                server.complete(requests[0][0][:16], 8)
                figures, texts = replay(server, requests, slots)
            expected = expected or texts
            same = sum(a == b for a, b in zip(texts, expected)) / len(texts)
            run = {"mode": mode, "slots": slots, **figures, "same_texts": round(same, 4)}
            if mode == "cgtree":
                run["events"] = server.watched.events()
            differs = differs or (slots == 1 and same != 1)
            made["runs"].append(run)
            # Written after each run, so that an interrupted program leaves its results.
            options.out.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
            print(f"{slots:>2} slots, {mode:>6}: {run['tokens_per_second']} tokens/s, first token "
                  f"{run['first_token_ms']['median']} ms, between tokens {run['between_tokens_ms']['median']} ms, "
                  f"p99 {run['between_tokens_ms']['p99']} ms, texts {run['texts_hash']}, same {same:.0%}", flush=True)
    return "with one slot, the modes do not agree on all texts" if differs else 0


if __name__ == "__main__":
    sys.exit(main())
