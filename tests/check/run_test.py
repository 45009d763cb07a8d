"""cgtree-check run, with a program that uses a false libcuda: no GPU and no driver."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

LIBRARY = os.path.realpath("check/libcgtree_check.so")
DRIVER = os.path.realpath("tests/check/libcuda.so.1")
BESIDE = os.path.realpath("tests/check/libbeside.so")
PROGRAM = os.path.realpath("tests/check/fake_program")
# Calls with the interpreter's lock held, as extensions that do not give it up.
PYTHON = f"""
import ctypes
driver = ctypes.PyDLL({DRIVER!r})

def call(name, *words):
    getattr(driver, name)(*map(ctypes.c_void_p, words))

def begin_in_python():
    call("cuStreamBeginCapture_v2", 0x500, 0)

call("cuInit", 0)
begin_in_python()
call("cuMemcpyBatchAsync_v2", 0, 0, 0, 900, 0, 0, 0, 0x500)
graph, exec = ctypes.c_uint64(), ctypes.c_uint64()
call("cuStreamEndCapture", 0x500, ctypes.addressof(graph))
call("cuGraphInstantiateWithFlags", ctypes.addressof(exec), graph.value, 0)
call("cuGraphLaunch", exec.value, 0x500)
"""
RUN = [sys.executable, "-m", "cgtree_check", "run", f"--library={LIBRARY}"]


def environment(**more):
    return {**os.environ, "PYTHONPATH": "check", **more}


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
        self.assertIn("cuMemcpyBatchAsync_v2 returned 900", finding["call"])
        self.assertTrue(any("capture" in frame for frame in finding["captured"]), finding)
        self.assertEqual(1, report["totals"]["launches"])

    def test_functions_are_watched_however_a_program_gets_them(self):
        for way in ("by_dlsym", "by_entry_point", "linked"):
            with self.subTest(way=way):
                _, [report] = self.run_json(PROGRAM, way, "refused")
                self.assertEqual(["refused"], [finding["kind"] for finding in report["findings"]])

    def test_dlsym_looks_at_its_caller(self):
        self.assertEqual(0, self.run_check(PROGRAM, "next").returncode)

    def compare(self, *words, **more):
        """Runs a program with the check and without: status and output are the same."""
        bare = subprocess.run(words, env=environment(**more), text=True, capture_output=True, check=False, timeout=60)
        said = self.run_check(*words, **more)
        self.assertEqual((bare.returncode, bare.stdout), (said.returncode, said.stdout), said.stderr)
        return said

    def test_lookups_have_the_results_that_they_have_without_the_check(self):
        said = self.compare(PROGRAM, "look_up", BESIDE)
        self.assertEqual("error 0 same 1\nmissing 1\nown 1\nlinked 0\n", said.stdout)
        self.assertEqual("found 1\n", self.compare(PROGRAM, "look_up_beside", BESIDE).stdout)

    def test_another_library_before_the_driver_is_called_as_without_the_check(self):
        said = self.compare(PROGRAM, "refused", LD_PRELOAD=BESIDE)
        self.assertEqual("beside\n", said.stdout)
        self.assertIn("faults: 1", said.stderr)
        said = subprocess.run([PROGRAM, "refused"], text=True, capture_output=True, check=False, timeout=60,
                              env=environment(LD_PRELOAD=f"{LIBRARY}:{BESIDE}"))
        self.assertEqual(0, said.returncode)

    def test_a_thread_that_loads_a_library_may_launch_while_a_finding_is_told(self):
        self.assertIn("faults: 1", self.compare(PROGRAM, "load", BESIDE).stderr)

    def test_a_thread_may_be_cancelled_while_a_finding_is_told(self):
        self.assertIn("faults: 1", self.compare(PROGRAM, "cancelled").stderr)

    def test_files_that_a_program_closes_are_none_of_the_check(self):
        said = self.run_check(PROGRAM, "close_others", "three")
        self.assertEqual("bytes 0\n", said.stdout)

    def test_a_driver_that_is_not_there_has_no_functions(self):
        program = ("import ctypes\n"
                   "assert not hasattr(ctypes.CDLL(None), 'cuInit')\n"
                   "assert hasattr(ctypes.CDLL(None), 'malloc')\n")
        said = self.run_check(sys.executable, "-c", program)
        self.assertEqual(0, said.returncode, said.stderr)

    def test_a_library_may_lie_in_a_folder_with_a_space(self):
        with tempfile.TemporaryDirectory() as folder:
            library = pathlib.Path(folder, "a b:c", "libcgtree_check.so")
            library.parent.mkdir()
            library.symlink_to(LIBRARY)
            said = subprocess.run([*RUN[:-1], f"--library={library}", PROGRAM, "refused"], env=environment(), text=True,
                                  capture_output=True, check=False, timeout=60)
            self.assertIn("faults: 1", said.stderr)
            self.assertNotIn("ld.so", said.stderr)

    def test_libraries_that_are_loaded_first_stay(self):
        said = self.run_check("sh", "-c", 'echo "$LD_PRELOAD"', LD_PRELOAD="libm.so.6")
        self.assertEqual(f"libm.so.6:{LIBRARY}\n", said.stdout)

    def test_a_program_without_faults_has_none(self):
        said, [report] = self.run_json("--fail-on=any", PROGRAM, "clean")
        self.assertEqual(0, said.returncode)
        self.assertEqual([], report["findings"])

    def test_the_exit_status_is_the_programs(self):
        self.assertEqual(3, self.run_check(PROGRAM, "refused", "three").returncode)
        self.assertEqual(3, self.run_check("--fail-on=any", PROGRAM, "refused", "three").returncode)
        self.assertEqual(127, self.run_check("/no/such/program").returncode)

    def test_a_script_may_have_no_first_line(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "without_a_line")
            path.write_text("exit $1\n", encoding="utf-8")
            path.chmod(0o755)
            self.assertEqual(3, self.run_check(str(path), "3").returncode)
            self.assertEqual(3, self.run_check("without_a_line", "3", PATH=f"{folder}:{os.environ['PATH']}").returncode)

    def test_a_process_that_leaves_without_a_finding_was_watched(self):
        said, [report] = self.run_json("--fail-on=any", PROGRAM, "clean", "leave")
        self.assertEqual(0, said.returncode)
        self.assertEqual([], report["findings"])
        self.assertIn("findings until then: 0", said.stderr)

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
        self.assertIn("cuMemcpyBatchAsync_v2 returned 900", said.stderr)
        said, [report] = self.run_json("--fail-on=refused", PROGRAM, "refused", "leave")
        self.assertEqual(66, said.returncode)

    def test_frames_of_python_are_told_where_its_lock_is_held(self):
        said, [report] = self.run_json(sys.executable, "-c", PYTHON)
        self.assertEqual(0, said.returncode, said.stderr)
        [finding] = report["findings"]
        self.assertEqual("refused", finding["kind"])
        self.assertEqual(["call at <string>:6", "begin_in_python at <string>:9", "<module> at <string>:12"],
                         finding["captured"][:3])

    def test_an_interpreter_beside_the_first_hides_no_lock(self):
        program = PYTHON.replace("PyDLL", "CDLL").replace("import ctypes\n", (
            "import ctypes\n"
            "try:\n"
            "    import _interpreters as interpreters\n"
            "except ImportError:  # before 3.13\n"
            "    import _xxsubinterpreters as interpreters\n"
            "interpreters.create()\n"))
        said, [report] = self.run_json(sys.executable, "-c", program)
        self.assertEqual(0, said.returncode, said.stderr)
        self.assertEqual(["refused"], [finding["kind"] for finding in report["findings"]])

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

    def test_a_report_in_between_loses_no_finding_of_a_program_that_is_killed(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "report.json")
            with subprocess.Popen([*RUN, f"--json={path}", PROGRAM, "clean", "pause", "refused", "abort"], env=environment(),
                                  text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
                self.assertEqual("ready\n", program.stdout.readline())
                program.send_signal(signal.SIGUSR1)
                self.assertIn("faults: 0", program.stderr.readline())
                while "not seen" not in program.stderr.readline():
                    pass
                program.communicate(input="\n", timeout=30)
            [report] = json.loads(path.read_text(encoding="utf-8"))["processes"]
        self.assertEqual(["refused"], [finding["kind"] for finding in report["findings"]])

    def test_a_program_that_becomes_another_leaves_its_findings(self):
        said, reports = self.run_json("--fail-on=refused", PROGRAM, "refused", "exec")
        self.assertEqual(66, said.returncode)
        self.assertEqual([1, 0], sorted((len(report["findings"]) for report in reports), reverse=True))

    def test_a_signal_to_a_fork_does_as_without_the_check(self):
        said = self.run_check(PROGRAM, "clean", "signalled_fork")
        self.assertEqual(f"signal {signal.SIGUSR1:d}\n", said.stdout)
        self.assertEqual(1, said.stderr.count("faults: 0"))

    def test_a_thread_that_cannot_be_made_is_no_fault_of_the_program(self):
        said = self.run_check(PROGRAM, "no_threads", "refused", "three")
        self.assertEqual(3, said.returncode)
        self.assertIn("faults: 1", said.stderr)

    def test_a_source_of_blocks_is_called_no_more_when_it_is_taken_back(self):
        program = ("import ctypes, os, signal, threading, time\n"
                   "called, done = threading.Event(), []\n"
                   "@ctypes.CFUNCTYPE(None)\n"
                   "def ask():\n"
                   "    called.set()\n"
                   "    time.sleep(0.5)\n"
                   "    done.append(1)\n"
                   "library = ctypes.CDLL(None)\n"
                   f"ctypes.CDLL({DRIVER!r}).cuInit(0)\n"
                   "library.cgtree_check_set_source(ask)\n"
                   "os.kill(os.getpid(), signal.SIGUSR1)\n"
                   "assert called.wait(30)\n"
                   "library.cgtree_check_set_source(ctypes.CFUNCTYPE(None)())\n"
                   "print(done)\n")
        said = self.run_check(sys.executable, "-c", program)
        self.assertEqual(("[1]\n", 0), (said.stdout, said.returncode), said.stderr)

    def test_signals_are_passed_on_from_the_start(self):
        program = "trap 'exit 9' USR1; kill -USR1 $PPID; while :; do sleep 0.01; done"
        for _ in range(5):
            self.assertEqual(9, self.run_check("sh", "-c", program).returncode)

    def test_the_terminals_signals_are_the_programs(self):
        said = self.run_check("sh", "-c", "kill -INT $PPID; kill -INT $$; sleep 5")
        self.assertEqual(128 + signal.SIGINT, said.returncode)

    def test_an_interrupt_without_a_terminal_is_passed_on(self):
        program = "trap 'exit 7' INT; echo ready; while :; do sleep 0.01; done"
        with subprocess.Popen([*RUN, "sh", "-c", program], env=environment(), text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, start_new_session=True) as launcher:
            self.assertEqual("ready\n", launcher.stdout.readline())
            launcher.send_signal(signal.SIGINT)
            self.assertEqual(7, launcher.wait(timeout=30))

    def run_shell(self, line):
        return subprocess.run(["bash", "-c", line.replace("RUN", " ".join(RUN))], env=environment(), text=True,
                              capture_output=True, check=False, timeout=60)

    def test_open_files_are_passed_on(self):
        self.assertEqual("given\n", self.run_shell("RUN cat <(echo given)").stdout)

    def test_signals_that_are_ignored_stay_ignored(self):
        for name in ("HUP", "INT"):
            with self.subTest(name=name):
                said = self.run_shell(f"trap '' {name}; RUN sh -c 'kill -{name} $$; echo survived'")
                self.assertEqual("survived\n", said.stdout)
        said = self.run_shell("trap '' CHLD; RUN python3 -c 'import signal; exit(signal.getsignal(signal.SIGCHLD) + 2)'")
        self.assertEqual(3, said.returncode, said.stderr)

    def test_what_cannot_be_written_does_not_change_the_status(self):
        said = self.run_check("--json=/no/such/folder/x.json", PROGRAM, "three")
        self.assertEqual(3, said.returncode)
        self.assertIn("/no/such/folder/x.json: No such file", said.stderr)
        said = self.run_shell(f"RUN {PROGRAM} refused three 2>&-; echo $?")
        self.assertEqual("3\n", said.stdout)
        reader, writer = os.pipe()
        os.close(reader)
        for words, expected in [(["sh", "-c", "exit 3"], 3), ([PROGRAM, "refused", "three"], 3),
                                ([PROGRAM, "refused", "abort"], 128 + signal.SIGABRT)]:
            said = subprocess.run([*RUN, *words], env=environment(), stderr=writer, check=False, timeout=60)
            self.assertEqual(expected, said.returncode)
        os.close(writer)

    def test_the_report_needs_no_launcher(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "report.json")
            said = subprocess.run(
                [PROGRAM, "refused"], text=True, capture_output=True, check=True, timeout=60,
                env=environment(LD_PRELOAD=LIBRARY, CGTREE_CHECK_JSON=str(path)))
            self.assertIn("faults: 1", said.stderr)
            self.assertEqual(1, len(json.loads(path.read_text(encoding="utf-8"))["findings"]))

    def test_a_library_that_is_not_there_is_said_in_a_line(self):
        said = subprocess.run([*RUN[:-1], "--library=/no/such.so", PROGRAM, "three"], env=environment(), text=True,
                              capture_output=True, check=False, timeout=60)
        self.assertEqual(3, said.returncode)
        self.assertIn("/no/such.so is not there; the program runs on without it", said.stderr)

    def test_the_report_may_go_to_a_device_or_a_pipe(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "pipe")
            os.mkfifo(path)
            for words in ([PROGRAM, "refused"], [*RUN, f"--json={path}", PROGRAM, "refused"]):
                more = {} if words[0] == sys.executable else {"LD_PRELOAD": LIBRARY, "CGTREE_CHECK_JSON": str(path)}
                with subprocess.Popen(words, env=environment(**more), stderr=subprocess.DEVNULL):
                    self.assertIn('"refused"', path.read_text(encoding="utf-8"))
                self.assertTrue(path.is_fifo())

    def test_a_log_of_rmm_is_read_if_it_is_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            for path in ("/dev/stdout", folder, "/no/such/log"):
                said = self.run_check(PROGRAM, "clean", RMM_LOG_FILE=path)
                self.assertEqual(0, said.returncode)
                self.assertIn("a caching allocator takes back", said.stderr)
            path = pathlib.Path(folder, "log.txt")
            path.write_text("Thread,Time,Action,Pointer,Size,Stream\n", encoding="utf-8")
            self.assertNotIn("a caching allocator takes back", self.run_check(PROGRAM, "clean", RMM_LOG_FILE=str(path)).stderr)

    def test_another_handler_of_the_signal_stays(self):
        program = ("import ctypes, os, signal\n"
                   "signal.signal(signal.SIGUSR1, lambda *_: print('mine'))\n"
                   f"ctypes.CDLL({DRIVER!r}).cuInit(0)\n"
                   "os.kill(os.getpid(), signal.SIGUSR1)\n")
        said = self.run_check(sys.executable, "-c", program)
        self.assertEqual("mine\n", said.stdout)
        self.assertIn("SIGUSR1 is the program's", said.stderr)


if __name__ == "__main__":
    unittest.main()
