"""Runs PyTorch's own tests of CUDA graphs, with PyTorch's recordings and with cgtree's.

usage: torch_suites_run.py --tests=FOLDER [--suite=trees,dynamo,inductor] [--manager=cgtree,pytorch]
                           [--select=REGEX] [--jobs=N] [--limit=S] [--stop-after=S] [--json=FILE]
                           [--all]

--tests: the folder test/ of PyTorch's repository at the installed version; test/inductor/ and test/dynamo/ suffice.
--suite:

    trees      test/inductor/test_cudagraph_trees.py
    dynamo     test/dynamo/test_cudagraphs.py
    inductor   test/inductor/test_torchinductor.py with graphs on, its tests on a GPU. Most of them call a
               function once, which neither manager replays: each graph is therefore called four
               times with the same inputs, whose contents are restored, and returns the last results

--manager: "cgtree" is with cgtree.torch.replace_graph_trees(), and the back end "cudagraphs" is that of cgtree with
PyTorch's kernels. "pytorch" after "cgtree" runs only the tests that cgtree did not pass, or with --all every test.
Tests run in --jobs processes, each of which takes the next test when it is ready. A test that lasts longer than --limit
seconds ends its process, and so does one after which the device is unusable; the remaining tests go on in a new
process. After --stop-after seconds no further test begins.

A line for each test that did not pass, and the sums. JSON lines as results come: suite, manager, test, result
("passed", "failed", "left over" if only the check after a passed test failed, such as that no pool of CUDA graphs has
memory, "skipped", "timed out", "crashed"), seconds, why, and "inside": true if the source of the test, or of a method
of its class that it calls, names PyTorch's manager, its messages or its counters. At the end FILE also has the sums
and, if both managers ran, the tests that only one of them passes. Exits 1 if a test that does not look inside fails
with cgtree and passes with PyTorch; 77 if the folder or PyTorch is absent.
"""

import argparse
import collections
import importlib.util
import inspect
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import unittest

FOLDER = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.path.join(os.path.dirname(os.path.dirname(FOLDER)), "python")
# By suite: the file, and the selected tests in it.
SUITES = {"trees": ("inductor/test_cudagraph_trees.py", ""),
          "dynamo": ("dynamo/test_cudagraphs.py", ""),
          "inductor": ("inductor/test_torchinductor.py", "GPU|[cC]uda|Triton")}
MANAGERS = ("cgtree", "pytorch")
INSIDE = re.compile(r"get_manager|get_roots?\b|get_root_children|cudagraph_trees|all_cudagraph_segments|"
                    r"curr_node|num_checkpoints|cudagraphify|CUDAGraphTree|running_forwards|live_block|"
                    r"cudagraph_skips|skipping cudagraph|overwritten|cudagraph_recorded|Recording function|"
                    r"too many CUDAGraphs|"
                    r"cudagraph_or_error|support_input_mutation\", False")
REHEARSED = ("inductor",)
REHEARSALS = 3  # calls before the first replay: observed, warmed up, recorded
READY, MARK = "READY", "TEST "
START_LIMIT = 180  # seconds for the imports of a process
ABSENT = 77


# ---- In a process that runs tests ----


def load(options, suite):
    """Returns the module of a suite's tests."""
    path = os.path.join(os.path.abspath(options.tests), SUITES[suite][0])
    sys.path[:0] = [os.path.dirname(path), os.path.abspath(options.tests)]
    sys.argv = [path]
    os.chdir(os.path.dirname(path))
    if suite == "inductor":
        import torch._inductor.config
        torch._inductor.config.triton.cudagraphs = True
    from torch.testing._internal import common_utils
    common_utils.parse_cmd_line_args()
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def replace():
    """Replaces PyTorch's recordings by cgtree's."""
    sys.path.insert(0, PYTHON)
    import torch._dynamo.backends.cudagraphs as other

    import cgtree.torch
    cgtree.torch.replace_graph_trees()
    other.cudagraphs = lambda model, inputs: cgtree.torch.backend(
        model, inputs, options={"kernels": "eager"})


def rehearsed(call):
    """Returns a boxed function that makes the first call of another one several times, so that its results are those of
    a replay. The writes and draws of earlier calls are undone.
    """
    import torch
    has_begun = False

    def is_same(given, kept):
        try:
            return torch.equal(given, kept)
        except RuntimeError:  # not supported for numbers of this type
            return False

    def rehearse(inputs):
        tensors = [given for given in inputs if isinstance(given, torch.Tensor) and not given.is_meta]
        before, states = [given.detach().clone() for given in tensors], torch.get_rng_state()
        on_device = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
        for _ in range(REHEARSALS):
            call(list(inputs))
            for given, kept in zip(tensors, before):
                if not is_same(given, kept) and 0 not in given.stride():
                    given.detach().copy_(kept)
            torch.set_rng_state(states)
            if on_device is not None:
                torch.cuda.set_rng_state(on_device)

    def run(inputs):
        nonlocal has_begun
        if not has_begun:
            has_begun = True
            with torch.no_grad():
                rehearse(inputs)
        return call(inputs)

    run._boxed_call = True
    return run


def rehearse():
    """Makes each later graph of Inductor run through rehearsed()."""
    import torch._inductor.compile_fx as compile_fx
    original = compile_fx.cudagraphify
    compile_fx.cudagraphify = lambda *args, **known: rehearsed(original(*args, **known))


def cases_of(test):
    return ([case for part in test for case in cases_of(part)]
            if isinstance(test, unittest.TestSuite) else [test])


def looks_inside(case):
    """Returns true if the source of a test, or of a method that it calls, names parts of PyTorch's manager."""
    waiting, seen = [case._testMethodName], set()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        try:
            method = getattr(case, name)
            source = inspect.getsource(inspect.unwrap(getattr(method, "__func__", method)))
        except (AttributeError, OSError, TypeError):
            continue
        if INSIDE.search(source):
            return True
        waiting += set(re.findall(r"self\.(\w+)\(", source)) & set(vars(type(case))) - seen
    return False


class Result(unittest.TestResult):
    """The result of one test."""

    def __init__(self):
        super().__init__()
        self.found, self.why = "passed", ""

    def _set(self, found, why):
        self.found, self.why = found, str(why)[-2000:]

    def _fail(self, test, err):
        why = self._exc_info_to_string(err, test)
        if self.found == "passed" and ", in tearDown" in why:
            self._set("left over", why)
        elif self.found != "failed":
            self._set("failed", why)

    def addError(self, test, err):
        self._fail(test, err)

    def addFailure(self, test, err):
        self._fail(test, err)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self._fail(test, err)

    def addUnexpectedSuccess(self, test):
        self._set("failed", "an unexpected success")

    def addExpectedFailure(self, test, err):
        self._set("passed", "an expected failure")

    def addSkip(self, test, reason):
        self._set("skipped", reason)


def work(options):
    """Runs the tests whose numbers are read from the standard input, and prints a line for each."""
    suite, manager = options.worker.split(",")
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keeps the output of tests apart
    sys.stdout = sys.stderr
    import torch
    if manager == "cgtree":
        replace()
    if suite in REHEARSED:
        rehearse()
    try:
        module = load(options, suite)
    except unittest.SkipTest as error:
        print(READY, json.dumps({"skipped": str(error)}), file=out, flush=True)
        return 0
    cases = {case.id().partition(".")[2]: case
             for case in cases_of(unittest.defaultTestLoader.loadTestsFromModule(module))}
    print(READY, json.dumps({name: looks_inside(case) for name, case in cases.items()}), file=out,
          flush=True)
    for line in sys.stdin:
        case, result, began = cases[line.strip()], Result(), time.monotonic()
        unittest.TestSuite([case]).run(result)
        is_broken = False
        try:
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()
        except RuntimeError as error:
            is_broken, result.why = True, f"{result.why}\n{error}"
            result.found = "failed"
        print(MARK + json.dumps({"result": result.found, "why": result.why,
                                 "seconds": round(time.monotonic() - began, 2)}), file=out, flush=True)
        if is_broken:
            break
    out.flush()
    os._exit(0)  # without the destructors of a device that may have failed


# ---- In the process that hands them out ----


class Worker:
    """A process that runs tests of a suite. `tests`: their names, and whether they look inside."""

    def __init__(self, options, suite, manager):
        command = [sys.executable, os.path.abspath(__file__), f"--tests={options.tests}",
                   f"--worker={suite},{manager}"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE, text=True, bufsize=1,
                                         start_new_session=True)
        self._lines, self._said = queue.Queue(), collections.deque(maxlen=30)
        for stream, put in ((self._process.stdout, self._lines.put), (self._process.stderr, self._said.append)):
            threading.Thread(target=self._read, args=(stream, put), daemon=True).start()
        self.tests = {}

    def _read(self, stream, put):
        for line in stream:
            put(line)
        if stream is self._process.stdout:
            put(None)

    def _line(self, mark, limit):
        """Returns the text after the mark, None at the end of the process, or raises queue.Empty."""
        end = time.monotonic() + limit
        while True:
            line = self._lines.get(timeout=max(0.01, end - time.monotonic()))
            if line is None:
                return None
            if line.startswith(mark):
                return json.loads(line[len(mark):])

    def start(self):
        """Waits until the tests are imported. Returns the reason of a failure, or None."""
        try:
            found = self._line(READY, START_LIMIT)
        except queue.Empty:
            self.kill()
            return f"the imports took more than {START_LIMIT} s"
        if found is None:
            self.kill()
            return f"the imports failed: {self.said()}"
        if "skipped" in found:
            return found["skipped"]
        self.tests = found
        return None

    def run(self, name, limit):
        try:
            self._process.stdin.write(name + "\n")
            found = self._line(MARK, limit)
        except queue.Empty:
            self.kill()
            return {"result": "timed out", "why": f"more than {limit} s", "seconds": limit}
        except BrokenPipeError:
            found = None
        if found is None:
            code = self._process.wait()
            return {"result": "crashed", "why": f"ended with {code}: {self.said()}", "seconds": 0}
        return found

    def said(self):
        time.sleep(0.2)
        return "".join(self._said)[-1500:]

    def ended(self):
        return self._process.poll() is not None

    def kill(self):
        """Ends the process and its children, such as compilers."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()


def last_words(why):
    """Returns the line of a trace that names the exception, or the last one."""
    lines = why.strip().splitlines() or [""]
    named = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Warning|Failed)\b", line)]
    return (named or lines)[-1]


class Run:
    """The tests of one suite with one manager, in several processes."""

    def __init__(self, options, suite, manager, keep, deadline, without=()):
        self.options, self.suite, self.manager, self.without = options, suite, manager, without
        self.keep, self.deadline = keep, deadline
        self.lock, self.waiting = threading.Lock(), None
        self.count, self.done = 0, 0

    def all(self):
        threads = [threading.Thread(target=self._serve) for _ in range(self.options.jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for name in self.waiting or ():
            self._add(name, {"result": "not begun", "why": "", "seconds": 0}, False)

    def _serve(self):
        worker, inside = None, {}
        while self.waiting is None or self.waiting:
            if time.monotonic() > self.deadline:
                break
            if worker is None or worker.ended():
                worker = Worker(self.options, self.suite, self.manager)
                why = worker.start()
                if why is not None:
                    self._failed_to_start(why)
                    return
                inside = worker.tests
                self._begin(list(inside))
            with self.lock:
                if not self.waiting:
                    break
                name = self.waiting.popleft()
            limit = min(self.options.limit, max(5.0, self.deadline + 15 - time.monotonic()))
            self._add(name, worker.run(name, limit), inside[name])
            if worker.ended() or self._has_no_device(worker):
                worker.kill()
                worker = None
        if worker is not None:
            worker.kill()

    @staticmethod
    def _has_no_device(worker):
        time.sleep(0.005)  # an end because of its device would show by now
        return worker.ended()

    def _failed_to_start(self, why):
        with self.lock:
            if self.waiting is None:
                self.waiting = collections.deque()
                print(f"{self.suite} {self.manager}: {why}", flush=True)
                self.keep({"suite": self.suite, "manager": self.manager, "test": "", "inside": False,
                           "result": "not started", "why": why, "seconds": 0})

    def _begin(self, names):
        with self.lock:
            if self.waiting is None:
                chosen = re.compile(self.options.select or SUITES[self.suite][1])
                self.waiting = collections.deque(name for name in names if chosen.search(name)
                                                 and name not in self.without)
                self.count = len(self.waiting)
                print(f"{self.suite} {self.manager}: {self.count} of {len(names)} tests", flush=True)

    def _add(self, name, found, inside):
        with self.lock:
            self.done += 1
            row = {"suite": self.suite, "manager": self.manager, "test": name, "inside": inside, **found}
            self.keep(row)
            if row["result"] not in ("passed", "skipped", "not begun"):
                print(f"[{self.done}/{self.count}] {self.suite} {self.manager} {name}: {row['result']}"
                      f"{' (looks inside)' if inside else ''}  {last_words(row['why'])[:200]}",
                      flush=True)
            elif sys.stderr.isatty():
                print(f"\r[{self.done}/{self.count}] {name[:100]:100}", end="\r", file=sys.stderr)


def differences(rows):
    """Returns {suite: {manager: the tests that only this manager passes}}."""
    results = collections.defaultdict(dict)
    for row in rows:
        results[row["suite"], row["test"]][row["manager"]] = row
    alone = {}
    for (suite, name), found in results.items():
        passed = [manager for manager, row in found.items()
                  if row["result"] in ("passed", "left over")]
        if len(found) == 2 and len(passed) == 1 and not any(
                row["result"] in ("not begun", "skipped") for row in found.values()):
            alone.setdefault(suite, {}).setdefault(passed[0], []).append(name)
    return alone


def sums(rows):
    found = collections.defaultdict(collections.Counter)
    for row in rows:
        found[f"{row['suite']} {row['manager']}"][row["result"]] += 1
    return {key: dict(counter) for key, counter in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests", required=True)
    parser.add_argument("--suite", default="trees,dynamo,inductor")
    parser.add_argument("--manager", default="cgtree,pytorch")
    parser.add_argument("--select", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--limit", type=float, default=90)
    parser.add_argument("--stop-after", type=float, default=float("inf"))
    parser.add_argument("--json", default="")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--worker", default="")
    options = parser.parse_args()
    for given, known in ((options.suite, SUITES), (options.manager, MANAGERS)):
        for name in given.split(","):
            if name not in known:
                parser.error(f"{name} is none of {', '.join(known)}")
    if importlib.util.find_spec("torch") is None:
        print("PyTorch is absent")
        return ABSENT
    if options.worker:
        return work(options)
    rows, deadline, wrong = [], time.monotonic() + options.stop_after, []
    lines = open(options.json + ".lines", "w", encoding="utf-8") if options.json else None

    def keep(row):
        rows.append(row)
        if lines:
            lines.write(json.dumps(row) + "\n")
            lines.flush()

    for suite in options.suite.split(","):
        path = os.path.join(options.tests, SUITES[suite][0])
        if not os.path.exists(path):
            print(f"{path} is absent: --tests is to be the folder test/ of PyTorch's repository")
            return ABSENT
        for manager in options.manager.split(","):
            without = () if options.all else {
                row["test"] for row in rows if row["suite"] == suite and row["result"] in ("passed", "skipped")}
            Run(options, suite, manager, keep, deadline, without).all()
    for key, counts in sums(rows).items():
        print(key, ", ".join(f"{count} {result}" for result, count in sorted(counts.items())))
    inside = {row["test"] for row in rows if row["inside"]}
    alone = differences(rows)
    for suite, found in alone.items():
        for manager, names in found.items():
            print(f"{suite}: {manager} alone passes {len(names)}")
            for name in names:
                print(f"    {name}{' (looks inside)' if name in inside else ''}")
            if manager == "pytorch":
                wrong += [name for name in names if name not in inside]
    if options.json:
        import torch
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"program": "torch_suites_run", "torch": torch.__version__,
                       "command": sys.argv[1:], "sums": sums(rows), "alone": alone, "rows": rows},
                      file, indent=1)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
