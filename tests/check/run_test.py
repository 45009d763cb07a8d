"""cgtree-check run, with a program whose callbacks a false libcupti makes: no GPU and no driver."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

LIBRARY = os.path.realpath("check/libcgtree_check.so")
CUPTI = os.path.realpath("tests/check/libfake_cupti.so")
PROGRAM = os.path.realpath("tests/check/fake_program")
# Calls with the interpreter's lock held, as extensions that do not give it up. Numbers are of cupti_driver_cbid.h.
PYTHON = """
import ctypes, os
ctypes.PyDLL(os.environ["CUDA_INJECTION64_PATH"]).InitializeInjection()
cupti = ctypes.PyDLL(os.environ["CGTREE_CHECK_CUPTI"])

def call(number, name, *words, result=0):
    cupti.fake_cupti_call(number, name, (ctypes.c_uint64 * len(words))(*words), result)

def begin_in_python():
    call(539, b"cuStreamBeginCapture_v2", 0x500, 0)

begin_in_python()
call(776, b"cuMemcpyBatchAsync", *[0] * 8, 0x500, result=900)
graph, exec = ctypes.c_uint64(0x100), ctypes.c_uint64(0x300)
call(497, b"cuStreamEndCapture", 0x500, ctypes.addressof(graph))
call(643, b"cuGraphInstantiateWithFlags", ctypes.addressof(exec), 0x100, 0)
call(514, b"cuGraphLaunch", 0x300, 0x500)
"""
RUN = [sys.executable, "-m", "cgtree_check", "run", f"--library={LIBRARY}"]


def environment(**more):
    return {**os.environ, "PYTHONPATH": "check", "CGTREE_CHECK_CUPTI": CUPTI, **more}


class RunTest(unittest.TestCase):
    def run_check(self, *words, **more):
        return subprocess.run([*RUN, *words], env=environment(**more), text=True, capture_output=True,
                              check=False, timeout=60)

    def run_json(self, *words, **more):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "report.json")
            said = self.run_check(f"--json={path}", *words, **more)
            return said, json.loads(path.read_text(encoding="utf-8"))["processes"]

    def test_a_fault_is_told(self):
        said, [report] = self.run_json(PROGRAM, "refused")
        self.assertEqual(0, said.returncode)
        self.assertIn("faults: 1, remarks: 0", said.stderr)
        [finding] = report["findings"]
        self.assertEqual("refused", finding["kind"])
        self.assertIn("cuMemcpyBatchAsync returned 900", finding["call"])
        self.assertTrue(any("capture" in frame for frame in finding["captured"]), finding)
        self.assertEqual(1, report["totals"]["launches"])

    def test_a_program_without_faults_has_none(self):
        said, [report] = self.run_json("--fail-on=any", PROGRAM, "clean")
        self.assertEqual(0, said.returncode)
        self.assertEqual([], report["findings"])

    def test_the_exit_status_is_the_programs(self):
        self.assertEqual(3, self.run_check(PROGRAM, "refused", "three").returncode)
        self.assertEqual(3, self.run_check("--fail-on=any", PROGRAM, "refused", "three").returncode)
        self.assertEqual(127, self.run_check("/no/such/program").returncode)

    def test_fail_on_names_kinds(self):
        self.assertEqual(66, self.run_check("--fail-on=any", PROGRAM, "refused").returncode)
        self.assertEqual(66, self.run_check("--fail-on=stale,refused", PROGRAM, "refused").returncode)
        self.assertEqual(0, self.run_check("--fail-on=stale", PROGRAM, "refused").returncode)
        self.assertEqual(67, self.run_check("--fail-on=stale", "true").returncode)
        self.assertEqual(2, self.run_check("--fail-on=nonsense", "true").returncode)

    def test_a_program_that_is_killed_leaves_its_findings(self):
        said, [report] = self.run_json(PROGRAM, "refused", "abort")
        self.assertEqual(128 + signal.SIGABRT, said.returncode)
        self.assertEqual("refused", report["findings"][0]["kind"])
        self.assertIn("findings until then: 1", said.stderr)
        self.assertIn("ended by signal 6", said.stderr)
        self.assertIn("cuMemcpyBatchAsync returned 900", said.stderr)
        said, [report] = self.run_json("--fail-on=refused", PROGRAM, "refused", "leave")
        self.assertEqual(66, said.returncode)

    def test_frames_of_python_are_told_where_its_lock_is_held(self):
        said, [report] = self.run_json(sys.executable, "-c", PYTHON)
        self.assertEqual(0, said.returncode, said.stderr)
        [finding] = report["findings"]
        self.assertEqual("refused", finding["kind"])
        self.assertEqual(["call at <string>:7", "begin_in_python at <string>:10", "<module> at <string>:12"],
                         finding["captured"][:3])

    def test_a_fork_says_that_it_is_not_watched(self):
        said, reports = self.run_json(PROGRAM, "refused", "fork")
        self.assertEqual(1, len(reports))
        self.assertEqual(1, said.stderr.count("is not watched"))
        self.assertEqual(1, said.stderr.count("faults: 1"))

    def test_a_signal_asks_for_a_report(self):
        with subprocess.Popen([*RUN, PROGRAM, "refused", "pause"], env=environment(), text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
            self.assertEqual("ready\n", program.stdout.readline())
            program.send_signal(signal.SIGUSR1)
            said = program.stderr.readline()
            _, rest = program.communicate(input="\n", timeout=30)
        self.assertIn("faults: 1", said)
        self.assertIn("faults: 1", rest)

    def test_signals_are_passed_on_from_the_start(self):
        program = "trap 'exit 9' USR1; kill -USR1 $PPID; while :; do sleep 0.01; done"
        for _ in range(5):
            self.assertEqual(9, self.run_check("sh", "-c", program).returncode)

    def test_the_terminals_signals_are_the_programs(self):
        said = self.run_check("sh", "-c", "kill -INT $PPID; kill -INT $$; sleep 5")
        self.assertEqual(128 + signal.SIGINT, said.returncode)

    def test_the_report_needs_no_launcher(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "report.json")
            said = subprocess.run(
                [PROGRAM, "refused"], text=True, capture_output=True, check=True, timeout=60,
                env=environment(CUDA_INJECTION64_PATH=LIBRARY, CGTREE_CHECK_JSON=str(path)))
            self.assertIn("faults: 1", said.stderr)
            self.assertEqual(1, len(json.loads(path.read_text(encoding="utf-8"))["findings"]))

    def test_what_cannot_be_watched_is_said_in_a_line(self):
        for more, why in [({"FAKE_CUPTI": "busy"}, "another tool has subscribed"),
                          ({"FAKE_CUPTI": "old"}, "older than that of CUDA 12.0"),
                          ({"CUDA_INJECTION64_PATH": "/other.so"}, "CUDA_INJECTION64_PATH is /other.so already")]:
            with self.subTest(why=why):
                program = [PROGRAM, "three"] if "FAKE_CUPTI" in more else ["sh", "-c", "exit 3"]
                said = self.run_check(*program, **more)
                self.assertEqual(3, said.returncode)
                self.assertIn(f"{why}", said.stderr)
                self.assertIn("the program runs on without it", said.stderr)

    def test_another_handler_of_the_signal_stays(self):
        program = ("import ctypes, os, signal\n"
                   "signal.signal(signal.SIGUSR1, lambda *_: print('mine'))\n"
                   "ctypes.CDLL(os.environ['CUDA_INJECTION64_PATH']).InitializeInjection()\n"
                   "os.kill(os.getpid(), signal.SIGUSR1)\n")
        said = self.run_check(sys.executable, "-c", program)
        self.assertEqual("mine\n", said.stdout)
        self.assertIn("SIGUSR1 is the program's", said.stderr)


if __name__ == "__main__":
    unittest.main()
