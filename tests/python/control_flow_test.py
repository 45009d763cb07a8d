"""Branches and loops from Python: replays decide again, and an exception of a body reaches the caller."""

import gc
import signal
import sys
import threading
import time
import unittest

import numpy

sys.path.insert(0, "tests/python")

from support import RANDOM, SEED, Foreign, cgtree, floats, setUpModule, tensor, values_of  # noqa: E402,F401


def flags(*values):
    return tensor(numpy.array(values, "int32"))


def copy_of(x):
    y = cgtree.empty(x.shape, x.dtype)
    y.copy_from(x)
    return y


def next_flag(all_flags):
    """Shifts the flags by one place, and returns the first one."""
    others = copy_of(all_flags[1:])
    all_flags[:-1].copy_from(others)
    return all_flags[:1]


def rotate(x):
    """x = x[1:] + x[:1]"""
    first, others = copy_of(x[:1]), copy_of(x[1:])
    x[:-1].copy_from(others)
    x[-1:].copy_from(first)


class Own(Exception):
    pass


class ControlFlowTest(unittest.TestCase):
    def setUp(self):
        self.context = cgtree.Context("host")
        self.addCleanup(self.context.close)
        cgtree.set_log_level("off")
        self.addCleanup(cgtree.set_log_level, "warn")

    def call_often(self, f, call):
        for i in range(8):
            call(i)
        self.assertEqual(f.stats()["recordings"], 1, f.stats())
        self.assertEqual(f.stats()["replays"], 6, f.stats())

    def test_a_branch_takes_the_way_that_each_replay_is_given(self):
        def step(x, z, taken):
            y = copy_of(x)
            cgtree.branch(taken, lambda: y.copy_from(z), otherwise=lambda: rotate(y))
            cgtree.branch(taken, lambda: rotate(y))
            return y

        f = self.context.compile(step)

        def call(i):
            x, z = floats(5), floats(5)
            y = values_of(f(tensor(x), tensor(z), flags(i % 2)))
            numpy.testing.assert_array_equal(y, numpy.roll(z if i % 2 else x, -1))

        self.call_often(f, call)

    def test_a_branch_returns_what_its_bodies_return(self):
        forms = {"tensor": lambda x, y: x, "tuple": lambda x, y: (x, y), "list": lambda x, y: [y, x],
                 "none": lambda x, y: None}
        for form, make in forms.items():
            def step(x, taken):
                y = copy_of(x)

                def then():
                    z = copy_of(y)  # freed at the end of the body
                    rotate(z)
                    return make(z, y)

                found = cgtree.branch(taken, then, lambda: make(y, y))
                if found is None:
                    return y
                return (*found,) if isinstance(found, list) else found

            f = self.context.compile(step)

            def call(i):
                x = floats(4)
                z = numpy.roll(x, -1) if i % 2 else x
                found = f(tensor(x), flags(i % 2))
                want = {"tensor": z, "tuple": (z, x), "list": (x, z), "none": x}[form]
                for one, other in zip(found if isinstance(want, tuple) else (found,),
                                      want if isinstance(want, tuple) else (want,), strict=True):
                    numpy.testing.assert_array_equal(values_of(one), other)

            with self.subTest(form):
                self.call_often(f, call)

    def test_a_choice_runs_the_body_with_its_number(self):
        """With results, the last body is for all other numbers; without results, no body runs for them."""
        def step(x, z, index):
            y = copy_of(x)
            cgtree.choose(index, [lambda: y.copy_from(z), lambda: rotate(y)])
            return y, cgtree.choose_results(index, bodies=(lambda: copy_of(x), lambda: z))

        f = self.context.compile(step)
        indices = [0, 1, 2, -1, 1, 0, 7, 1]

        def call(i):
            x, z = floats(5), floats(5)
            y, chosen = f(tensor(x), tensor(z), flags(indices[i]))
            want = {0: z, 1: numpy.roll(x, -1)}.get(indices[i], x)
            numpy.testing.assert_array_equal(values_of(y), want)
            numpy.testing.assert_array_equal(values_of(chosen), z if indices[i] else x)

        self.call_often(f, call)

    def test_a_loop_runs_until_its_flag_is_zero_or_its_limit_is_reached(self):
        def step(x, given):
            y, left = copy_of(x), copy_of(given)

            def body():
                rotate(y)
                return next_flag(left)

            return y, cgtree.loop(4, body)

        f = self.context.compile(step)

        def call(i):
            x, ones = floats(7), i % 6
            y, rounds = f(tensor(x), flags(0, *[i + 1] * ones, *[0] * (7 - ones)))
            self.assertEqual(int(values_of(rounds)), min(ones + 1, 4))
            numpy.testing.assert_array_equal(values_of(y), numpy.roll(x, -min(ones + 1, 4)))

        self.call_often(f, call)

    def test_functions_of_python_run_in_bodies_on_the_host_device(self):
        runs = []

        def step(x, n):
            y, flag = copy_of(x), cgtree.empty((), "int32")

            def body():
                z = cgtree.empty(x.shape)
                cgtree.numpy.launch(lambda a, b: numpy.multiply(a, 2, out=b), y, z)
                cgtree.numpy.launch(lambda a, b: runs.append(numpy.add(a, 1, out=b)[0]), z, y)
                cgtree.numpy.launch(lambda a, b: numpy.greater(a[0], 20, out=b), n, flag)
                cgtree.branch(flag, lambda: cgtree.launch(lambda k: None, n), lambda: (
                    cgtree.numpy.launch(lambda a: a.__iadd__(10), n)))
                cgtree.numpy.launch(lambda a, b: numpy.less(a[0], 20, out=b), n, flag)
                return flag

            return y, cgtree.loop(9, body)

        f = self.context.compile(step)

        def call(i):
            x, n = floats(3), numpy.array([i % 3 * 10], "int32")
            rounds = 2 - i % 3 if i % 3 < 2 else 1
            runs.clear()
            y, count = f(tensor(x), tensor(n))
            want = x
            for _ in range(rounds):
                want = want * 2 + 1
            numpy.testing.assert_array_equal(values_of(y), want)
            self.assertEqual((int(values_of(count)), len(runs)), (rounds, rounds))
            del y, count

        self.call_often(f, call)

    def test_a_function_that_raises_in_a_body_raises_from_the_replay(self):
        raises = []

        def fail(x):
            if raises:
                raise Own("in a replay")

        def step(x, taken):
            cgtree.branch(taken, lambda: cgtree.launch(fail, x))
            return copy_of(x)

        f = self.context.compile(step)
        for _ in range(3):
            f(tensor(floats(3)), flags(1))
        raises.append(True)
        f(tensor(floats(3)), flags(0))
        with self.assertRaisesRegex(Own, "in a replay"):
            f(tensor(floats(3)), flags(1))
        self.assertEqual(f.stats()["replays"], 3)

    def test_the_audit_sees_the_memory_of_functions_in_bodies(self):
        kept = tensor(floats(3))

        def step(x, taken):
            cgtree.branch(taken, lambda: cgtree.numpy.launch(
                lambda a, b: numpy.add(a, b, out=b), kept, x))
            return copy_of(x)

        f = self.context.compile(step)
        for _ in range(3):
            f(tensor(floats(3)), flags(1))
        self.assertEqual(self.context.invalidate(kept.data_ptr, 4), 1)
        with cgtree.Stream("host"), self.assertRaisesRegex(cgtree.InvalidArgument, "64 tensors"):
            f = self.context.compile(lambda x, taken: (cgtree.branch(
                taken, lambda: cgtree.launch(lambda *all: None, *[x] * 64)), copy_of(x))[1])
            f(tensor(floats(3)), flags(1))

    def run_eagerly(self, step, *arguments):
        with cgtree.Stream("host") as stream:
            results = step(*arguments)
            stream.synchronize()
        return results

    # ---- Random numbers ----

    def test_each_round_draws_anew_and_replays_draw_what_eager_calls_draw(self):
        generator, other = cgtree.Generator(), cgtree.Generator()
        seed = int(RANDOM.integers(0, 2**40))

        def step(x, given):
            y, left = copy_of(x), copy_of(given)

            def draw(source):
                rotate(y)
                source.uniform(out=y[-1:])

            def body():
                draw(generator)
                cgtree.branch(left[:1], lambda: draw(other), generators=[other])
                cgtree.choose(left[:1], [lambda: draw(other), lambda: None], generators=(other,))
                return next_flag(left)

            rounds = cgtree.loop(4, body, generators=(generator, other))
            z = cgtree.choose_results(left[:1], [lambda: generator.uniform((2,)), lambda: x[:2]],
                                      generators=[generator])
            return y, rounds, z

        f = self.context.compile(step)
        seen, draws = set(), 0

        def call(i):
            nonlocal draws
            x, numbers = numpy.full(12, -1, "float32"), [i % 2, 1, i % 3, 0, 0]
            results = []
            for run in (lambda *given: self.run_eagerly(step, *given), f):
                generator.set_seed(seed + 2 * i)
                other.set_seed(seed + 2 * i + 1)
                results.append([values_of(one).tolist() for one in run(tensor(x), flags(*numbers))])
            self.assertEqual(results[0], results[1])
            drawn = [value for value in results[0][0] + results[0][2] if value != -1]
            self.assertEqual(len(drawn), 2 * results[0][1] + 2)
            seen.update(drawn)
            draws += len(drawn)

        self.call_often(f, call)
        self.assertGreater(len(seen), draws - 3)  # of 24 bits, some may be drawn twice

    # ---- Rows as they come ----

    def sums(self, rows, most):
        """Compiles (x, on) -> rounds: y = x, and then rounds of y += x that hand out y."""
        def step(x, on):
            y = copy_of(x)

            def body():
                cgtree.numpy.launch(lambda a, b: numpy.add(a, b, out=b), x, y)
                return on, y

            return cgtree.loop(most, body, rows=rows)

        return self.context.compile(step)

    def test_each_round_of_each_run_hands_out_its_row_once(self):
        rows = cgtree.LoopStream("host", row_bytes=12, rows=8)
        f = self.sums(rows, 3)

        def call(i):
            self.assertIsNone(rows.next(timeout=0))
            x, count = RANDOM.integers(-9, 9, 3).astype("float32"), 1 + i % 2 * 2
            self.assertEqual(int(values_of(f(tensor(x), flags(i % 2)))), count)
            for round in range(count):
                row, *where = rows.next(5)
                self.assertEqual(row, ((round + 2) * x).tobytes())
                self.assertEqual(where, [i + 1, round, round + 1 == count])
            self.assertIsNone(rows.next(0.001))

        self.call_often(f, call)

    def test_a_loop_that_is_stopped_ends_with_its_first_round(self):
        rows = cgtree.LoopStream("host", 12, 8)
        f = self.sums(rows, 4)

        def call(i):
            if i % 2:
                rows.stop()
            self.assertEqual(int(values_of(f(tensor(floats(3)), flags(1)))), 1 if i % 2 else 4)
            while not rows.next(5)[3]:
                pass

        self.call_often(f, call)

    def test_rows_may_be_arrays_of_other_libraries_and_drawn(self):
        rows = cgtree.LoopStream("host", 8, 8)
        generator = cgtree.Generator()
        on, row = flags(1), floats(2)
        there = tensor(row)

        def step(x):
            cgtree.loop(2, lambda: (Foreign(on), Foreign(there)), rows=rows)
            return cgtree.loop(2, lambda: [on, generator.uniform((2,))], rows=rows,
                               generators=[generator])

        f = self.context.compile(step)
        seen = []
        for _ in range(5):
            generator.set_seed(SEED)
            f(flags(1))
            seen.append([rows.next(5)[0] for _ in range(4)])
        self.assertEqual(seen[1:], seen[:1] * 4)
        self.assertEqual(seen[0][:2], [row.tobytes()] * 2)
        self.assertEqual(len(set(seen[0])), 3)
        self.assertEqual(f.stats()["replays"], 3, f.stats())

    def test_other_threads_run_while_a_row_is_awaited(self):
        rows = cgtree.LoopStream("host", 12, 8)
        f = self.sums(rows, 1)
        x = floats(3)
        producer = threading.Timer(0.15, lambda: f(tensor(x), flags(1)))
        producer.start()
        self.assertEqual(rows.next()[0], (x + x).tobytes())
        producer.join()

    def test_ctrl_c_ends_a_wait_and_no_row_is_lost(self):
        rows = cgtree.LoopStream("host", 12, 8)
        f = self.sums(rows, 1)
        interrupt = threading.Timer(0.15, lambda: signal.raise_signal(signal.SIGINT))
        interrupt.start()
        begin = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            rows.next(timeout=20)
        self.assertLess(time.monotonic() - begin, 15)
        interrupt.join()
        x = floats(3)
        f(tensor(x), flags(1))
        self.assertEqual(rows.next(5)[0], (x + x).tobytes())

    def test_a_recording_outlives_the_stream_of_its_rows(self):
        held = [cgtree.LoopStream("host", 12, 8)]
        f = self.context.compile(lambda x, on: cgtree.loop(2, lambda: (on, x), rows=held[0]))
        for _ in range(3):
            f(tensor(floats(3)), flags(1))
        held.clear()
        gc.collect()
        self.assertEqual(int(values_of(f(tensor(floats(3)), flags(1)))), 2)
        self.assertEqual(f.stats()["replays"], 2)

    def test_exceptions_of_bodies_with_rows_keep_their_type(self):
        rows = cgtree.LoopStream("host", 12, 8)

        def body():
            raise Own("boom")

        f = self.context.compile(lambda x: (cgtree.loop(2, body, rows=rows), x)[1])
        with self.assertRaisesRegex(Own, "^boom$") as raised:
            f(tensor(floats(3)))
        self.assertEqual(raised.exception.__notes__, ["in the body of loop()"])

    # ---- Exceptions of bodies ----

    def test_exceptions_of_bodies_keep_their_type_and_leave_no_trace(self):
        raises = True

        def step(x, taken):
            def body():
                y = copy_of(x)
                rotate(y)
                if raises:
                    raise Own("boom")
                return y

            return cgtree.branch(taken, body, lambda: x)

        f = self.context.compile(step)
        x = floats(4)
        for _ in range(2):  # the warm-up, and the recording
            raises = True
            with self.assertRaisesRegex(Own, "^boom$") as raised:
                f(tensor(x), flags(1))
            self.assertEqual(raised.exception.__notes__, ["in then() of branch()"])
            raises = False
            numpy.testing.assert_array_equal(values_of(f(tensor(x), flags(1))), numpy.roll(x, -1))
        numpy.testing.assert_array_equal(values_of(f(tensor(x), flags(0))), x)
        self.assertEqual(f.stats()["replays"], 1, f.stats())
        self.assertEqual(f.stats()["failures"], 2)
        gc.collect()
        self.assertEqual(self.context.stats()["live_outputs"], 0)

    def test_a_step_may_catch_what_its_body_raises(self):
        for call in ("branch", "choose", "choose_results", "loop"):
            def body():
                raise Own("boom")

            def step(x, taken):
                try:
                    if call == "branch":
                        cgtree.branch(taken, body)
                    elif call == "loop":
                        cgtree.loop(3, body)
                    else:
                        getattr(cgtree, call)(taken, [body, body])
                except Own as error:
                    self.assertEqual(str(error), "boom")
                return copy_of(x)

            f = self.context.compile(step)
            with self.subTest(call):
                x = floats(3)
                for _ in range(3):
                    numpy.testing.assert_array_equal(values_of(f(tensor(x), flags(1))), x)
                self.assertEqual(f.stats()["recordings"], 0)

    def test_reading_back_in_a_body_keeps_the_step_from_being_recorded(self):
        def step(x, taken):
            def body():
                values_of(x)
                return taken

            cgtree.loop(2, body)
            return copy_of(x)

        f = self.context.compile(step)
        for _ in range(3):
            f(tensor(floats(3)), flags(0))
        self.assertEqual(f.stats()["skips"]["capture_failed"], 2)
        self.assertIn("the body of loop()", f.explain(tensor(floats(3)), flags(0))["text"])

    def test_wrong_arguments_are_named(self):
        x, yes, rows = tensor(floats(3)), flags(1), cgtree.LoopStream("host", 4, 4)
        invalid = cgtree.InvalidArgument
        cases = [
            (invalid, "the predicate of branch.* is float32", lambda: cgtree.branch(x, list)),
            (invalid, "then.* of branch.* is missing", lambda: cgtree.branch(yes, None)),
            (TypeError, "then.* of branch.*: expected a function", lambda: cgtree.branch(yes, 3)),
            (TypeError, "body is of type NoneType: expected a function", lambda: cgtree.loop(3, None)),
            (invalid, "needs otherwise", lambda: cgtree.branch(yes, lambda: x)),
            (invalid, "choose_results", lambda: cgtree.choose(yes, [lambda: x, lambda: x])),
            (invalid, "without bodies", lambda: cgtree.choose(yes, [])),
            (invalid, "body 1 of choose.* is missing", lambda: cgtree.choose(yes, [list, None])),
            (invalid, "then.* of branch.* returned .*int", lambda: cgtree.branch(yes, int, int)),
            (invalid, "at most 0 rounds", lambda: cgtree.loop(0, lambda: yes)),
            (invalid, "what the body of loop.* returns is float32",
             lambda: cgtree.loop(3, lambda: x)),
            (TypeError, "generators: expected a cgtree.Generator, not .*int",
             lambda: cgtree.branch(yes, list, generators=[7])),
            (TypeError, "not iterable", lambda: cgtree.choose(yes, [list], generators=7)),
            (TypeError, "positional", lambda: cgtree.loop(3, lambda: yes, None)),
            (TypeError, "expected a cgtree.LoopStream", lambda: cgtree.loop(3, lambda: yes, rows=x)),
            (invalid, "two tensors: the flag and the row",
             lambda: cgtree.loop(3, lambda: yes, rows=rows)),
            (invalid, "two tensors: the flag and the row",
             lambda: cgtree.loop(3, lambda: [yes, x, x], rows=rows)),
            (invalid, "at most the 4 of its LoopStream",
             lambda: cgtree.loop(3, lambda: (yes, x), rows=rows)),
            (invalid, "4 rows of 6 bytes", lambda: cgtree.LoopStream("host", 6, 4)),
            (invalid, "timeout is -1", lambda: rows.next(-1)),
        ]
        with cgtree.Stream("host"):
            for error, text, call in cases:
                with self.subTest(text), self.assertRaisesRegex(error, text):
                    call()

    def test_bodies_that_return_in_another_form_keep_the_step_from_being_recorded(self):
        f = self.context.compile(lambda x, taken: cgtree.branch(taken, lambda: (x,), lambda: x))
        for _ in range(3):
            f(tensor(floats(3)), flags(1))
        self.assertEqual(f.stats()["skips"]["capture_failed"], 2)
        self.assertIn("otherwise() of branch() returned a tensor, and a tuple before",
                      f.explain(tensor(floats(3)), flags(1))["text"])


if __name__ == "__main__":
    unittest.main()
