"""The measurements of llama-server's client and of compare.py, with fake programs."""

import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

sys.path[:0] = ["integrations/common", "integrations/ik_llama"]

import bench_server  # noqa: E402
import modes  # noqa: E402

# Answers as llama-server does: a token for each of the prompt's first tokens, and another token where DIFFERS is the
# mode.
SERVER = """#!/usr/bin/env python3
import http.server, json, os, sys

mode = "eager" if "GGML_CUDA_DISABLE_GRAPHS" in os.environ else os.environ.get("GGML_CUDA_CGTREE", "cgtree")
events = os.environ.get("GGML_CUDA_CGTREE_EVENTS")
if events:
    open(events, "w").write("record: no recording fits\\n" * 3)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()
        shift = 1 if mode == os.environ.get("DIFFERS") else 0
        for token in asked["prompt"][:asked["n_predict"]]:
            self.say({"content": f" {token + shift}", "stop": False})
        self.say({"content": "", "stop": True, "tokens_predicted": asked["n_predict"]})

    def say(self, piece):
        self.wfile.write(b"data: " + json.dumps(piece).encode() + b"\\n\\n")

    def log_message(self, *_):
        pass


port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
PROGRAM = """#!/usr/bin/env python3
import os, sys

sys.exit(3) if os.environ.get("FAILS") else print(os.environ.get(sys.argv[1], "text"))
"""
TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n0,9,5\n1,3,2\n2,4000,400\n"


class CompareTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def program(self, name, text):
        file = self.root / name
        file.write_text(text, encoding="utf-8")
        file.chmod(0o755)
        return file

    def bench(self, *arguments, **environment):
        """Runs the client. Returns its exit status and its JSON."""
        trace, out = self.root / "trace.csv", self.root / "out.json"
        trace.write_text(TRACE, encoding="utf-8")
        command = ["bench_server.py", "--server", str(self.program("server", SERVER)), "--model", "m.gguf",
                   "--trace", str(trace), "--out", str(out), *arguments]
        with mock.patch.object(sys, "argv", command), mock.patch.dict("os.environ", environment), \
                contextlib.redirect_stdout(io.StringIO()):
            status = bench_server.main()
        return status, json.loads(out.read_text(encoding="utf-8"))

    def test_requests_are_those_of_the_trace_cut_to_the_limits(self):
        status, made = self.bench("--requests", "3", "--slots", "2", "--max_prompt", "20", "--max_tokens", "7")
        self.assertEqual(status, 0)
        self.assertEqual([run["mode"] for run in made["runs"]], ["own", "eager", "cgtree"])
        for run in made["runs"]:
            self.assertEqual((run["requests"], run["tokens"]), (3, 5 + 2 + 7))
            self.assertEqual(run["same_texts"], 1)
            self.assertGreater(run["start"]["rss_bytes"], 0)
        self.assertEqual(made["runs"][2]["events"], {"record": 3})
        self.assertNotIn("events", made["runs"][0])

    def test_texts_depend_on_the_seed(self):
        hashes = {self.bench("--requests", "3", "--slots", "1", "--modes", "own", "--seed", seed)[1]["runs"][0]
                  ["texts_hash"] for seed in ["1", "2", "1"]}
        self.assertEqual(len(hashes), 2)

    def test_other_texts_fail_with_one_slot_and_are_told_with_several(self):
        status, made = self.bench("--requests", "3", "--slots", "1", DIFFERS="eager")
        self.assertIn("do not agree", status)
        self.assertEqual([run["same_texts"] for run in made["runs"]], [1, 0, 1])
        status, made = self.bench("--requests", "3", "--slots", "2", DIFFERS="eager")
        self.assertEqual(status, 0)
        self.assertEqual([run["same_texts"] for run in made["runs"]], [1, 0, 1])

    def compare(self, variable, **environment):
        out = self.root / "compare.json"
        programs = {"program": ([self.program("program", PROGRAM), variable], lambda out, _: {"text": out})}
        with mock.patch.dict("os.environ", environment), contextlib.redirect_stdout(io.StringIO()), \
                contextlib.redirect_stderr(io.StringIO()):
            return modes.compare_all(programs, out), json.loads(out.read_text(encoding="utf-8"))["program"]

    def test_modes_that_agree_succeed_and_others_fail(self):
        status, made = self.compare("NOTHING")
        self.assertEqual((status, made["same_text"]), (0, True))
        status, made = self.compare("GGML_CUDA_DISABLE_GRAPHS")
        self.assertEqual((status, made["same_text"]), (1, False))

    def test_a_client_that_is_told_to_end_ends_its_server(self):
        slow = SERVER.replace("        shift =", "        import time; time.sleep(60)\n        shift =")
        trace, server = self.root / "trace.csv", self.program("server", slow)
        trace.write_text(TRACE, encoding="utf-8")
        client = subprocess.Popen(
            [sys.executable, bench_server.__file__, "--server", server, "--model", "m.gguf", "--trace", trace,
             "--out", self.root / "out.json"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(client.kill)
        # The server creates the log at its start.
        while not list(self.root.glob("*.log")):
            time.sleep(0.05)
        time.sleep(0.5)
        client.terminate()
        client.wait(30)
        running = [line for line in subprocess.run(["ps", "-eo", "args"], text=True, check=True,
                                                   stdout=subprocess.PIPE).stdout.splitlines()
                   if str(server) in line]
        self.assertEqual(running, [])

    def test_a_program_that_fails_is_told_with_its_log(self):
        status, made = self.compare("NOTHING", FAILS="1")
        self.assertEqual(status, 1)
        self.assertRegex(made["failure"], "exit status 3: see .*program.own.log")


if __name__ == "__main__":
    unittest.main()
