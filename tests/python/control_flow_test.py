"""Branches and loops from Python: replays decide anew, and what a body raises arrives at the caller."""

import gc
import itertools
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
    """Moves the flags one place to the front, and returns the first one."""
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


def draw_program(depth=0):
    """Work on an array, which loops hand out, and on the numbers that say which way to go, nested."""
    kinds = ["x", "numbers", "draw", "both", "branch", "choose", "result", "loop", "rows"]
    kind = RANDOM.choice(kinds[:9 if depth < 3 else 3])
    parts = {"both": 2, "branch": int(RANDOM.integers(1, 3)), "choose": 3, "result": 1, "loop": 1, "rows": 1}.get(kind, 0)
    return kind, [draw_program(depth + (kind != "both")) for _ in range(parts)], int(RANDOM.integers(1, 5))


def run_program(program, x, numbers, generators, rows):
    """`rows`: None for loops that hand out nothing; of one stream, none runs within another."""
    kind, parts, rounds = program
    hands_out = kind == "rows" and rows is not None
    bodies = [lambda part=part: run_program(part, x, numbers, generators, None if hands_out else rows)
              for part in parts]
    if kind == "x":
        rotate(x)
    elif kind == "numbers":
        rotate(numbers)
    elif kind == "draw":
        generators[rounds % 2].fill_uniform(x[:1])
    elif kind == "both":
        bodies[0]()
        bodies[1]()
    elif kind == "branch":
        cgtree.branch(copy_of(numbers[:1]), *bodies, generators=generators)
    elif kind == "choose":
        cgtree.choose(copy_of(numbers[:1]), bodies, generators=generators)
    elif kind == "result":
        def then():
            y = copy_of(x)
            rotate(y)
            bodies[0]()
            return y, copy_of(numbers)

        y, _ = cgtree.branch(copy_of(numbers[:1]), then, lambda: (x, numbers), generators=generators)
        x.copy_from(y)
    else:
        def body():
            bodies[0]()
            rotate(numbers)
            return (numbers[:1], x) if hands_out else numbers[:1]

        cgtree.loop(rounds, body, generators=generators, rows=rows if hands_out else None)


def expect_of(program, x, numbers, handed):
    """Does the same to lists, with None for what is drawn, and adds to those that are handed out."""
    kind, parts, rounds = program
    hands_out = kind == "rows" and handed is not None
    bodies = [lambda part=part: expect_of(part, x, numbers, None if hands_out else handed)
              for part in parts]
    if kind in ("x", "numbers"):
        moved = x if kind == "x" else numbers
        moved.append(moved.pop(0))
    elif kind == "draw":
        x[0] = None
    elif kind == "both":
        bodies[0]()
        bodies[1]()
    elif kind == "branch":
        way = 0 if numbers[0] else 1
        if way < len(bodies):
            bodies[way]()
    elif kind == "choose":
        if 0 <= numbers[0] < len(bodies):
            bodies[numbers[0]]()
    elif kind == "result":
        if numbers[0]:
            y = x[1:] + x[:1]
            bodies[0]()
            x[:] = y
    else:
        for round in range(rounds):
            bodies[0]()
            numbers.append(numbers.pop(0))
            is_last = not numbers[0] or round == rounds - 1
            if hands_out:
                handed.append((list(x), round, is_last))
            if is_last:
                break


def rows_that_are_there(rows):
    found = []
    while row := rows.next(0):
        found.append((numpy.frombuffer(row[0], "float32").tolist(), *row[2:]))
    return found


def without_draws(found, want):
    """The values where the expected ones are known, and None elsewhere."""
    return [None if one is None else other for one, other in zip(want, found, strict=True)]


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
                    z = copy_of(y)  # which ends with the body
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

    def test_a_choice_runs_the_body_with_its_number_or_none(self):
        def step(x, z, index):
            y = copy_of(x)
            cgtree.choose(index, [lambda: y.copy_from(z), lambda: rotate(y)])
            return y

        f = self.context.compile(step)
        indices = [0, 1, 2, -1, 1, 0, 7, 1]

        def call(i):
            x, z = floats(5), floats(5)
            want = {0: z, 1: numpy.roll(x, -1)}.get(indices[i], x)
            numpy.testing.assert_array_equal(
                values_of(f(tensor(x), tensor(z), flags(indices[i]))), want)

        self.call_often(f, call)

    def test_the_last_body_of_a_choice_with_results_is_for_all_other_numbers(self):
        f = self.context.compile(lambda x, z, index: cgtree.choose_results(
            index, bodies=(lambda: copy_of(x), lambda: z)))
        indices = [0, 1, 2, -1, 1, 0, 7, 1]

        def call(i):
            x, z = floats(5), floats(5)
            want = x if indices[i] == 0 else z
            numpy.testing.assert_array_equal(
                values_of(f(tensor(x), tensor(z), flags(indices[i]))), want)

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

    def test_branches_and_loops_nest(self):
        def step(x, z, given):
            y, left = copy_of(x), copy_of(given)

            def body():
                taken = copy_of(left[:1])
                cgtree.branch(taken, lambda: cgtree.choose(
                    taken, [lambda: None, lambda: rotate(y), lambda: y.copy_from(z)]))
                return next_flag(left)

            cgtree.loop(8, body)
            return y

        f = self.context.compile(step)

        def call(i):
            x, z = floats(3), floats(3)
            numbers = [2 if i % 2 else 1, 1, 1 + i % 3, 0, 0]
            want = x
            for number in numbers[:3]:
                want = z if number == 2 else numpy.roll(want, -1) if number == 1 else want
            numpy.testing.assert_array_equal(
                values_of(f(tensor(x), tensor(z), flags(*numbers))), want)

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

    def test_random_programs_do_what_plain_python_and_eager_runs_do(self):
        verified = cgtree.Context("host", verify_every=2)
        self.addCleanup(verified.close)
        generators, rows = [cgtree.Generator(), cgtree.Generator()], cgtree.LoopStream("host", 24, 4096)
        replays = draws = handed_out = 0
        for number in itertools.count():
            if number >= 20 and draws > 0 and handed_out > 0:
                break
            program = ("both", [draw_program(), ("loop", [draw_program(1)], 3)], 0)
            drawn = generators if "draw" in str(program) else ()
            stream = None if number % 4 == 1 else rows  # replays that hand out rows are not verified

            def step(x, numbers):
                y, left = copy_of(x), copy_of(numbers)
                run_program(program, y, left, drawn, stream)
                return y, left

            f = (verified if number % 2 else self.context).compile(step)
            for _ in range(6):
                x, numbers = floats(6), RANDOM.integers(-1, 4, 5).astype("int32")
                seeds = RANDOM.integers(0, 2**40, 2)
                found = []
                for run in (lambda *given: self.run_eagerly(step, *given), f):
                    for generator, seed in zip(generators, seeds):
                        generator.set_seed(int(seed))
                    y = left = None  # so that one recording serves all calls
                    y, left = run(tensor(x), tensor(numbers))
                    found.append((values_of(y).tolist(), values_of(left).tolist(),
                                  rows_that_are_there(rows),
                                  [generator.state() for generator in generators]))
                self.assertEqual(found[0], found[1], program)
                want, want_left, handed = x.tolist(), numbers.tolist(), []
                expect_of(program, want, want_left, None if stream is None else handed)
                got = without_draws(found[1][0], want)
                self.assertEqual((got, found[1][1]), (want, want_left), program)
                self.assertEqual([(without_draws(row, other[0]), *where) for (row, *where), other
                                  in zip(found[1][2], handed, strict=True)], handed, program)
                draws += want.count(None)
                handed_out += len(handed)
            self.assertEqual(f.stats()["recordings"], 1, (program, f.stats()))
            replays += f.stats()["replays"]
        self.assertEqual(replays, 4 * number)
        self.assertGreater(verified.stats()["verified"], 4)
        self.assertEqual(verified.stats()["differed"], 0)

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
                source.fill_uniform(y[-1:])

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

    def test_work_between_begin_and_end_may_branch(self):
        steps = cgtree.Steps(self.context, bindings=["cache", "taken"], mutated=["cache"])
        cache, taken, x = tensor(floats(4)), flags(0), tensor(floats(4))
        runs = 0
        for call in range(6):
            cache.copy_from(floats(4))
            taken.copy_from(numpy.array([call % 2], "int32"))
            want = values_of(x) if call % 2 else numpy.roll(values_of(cache), -1)
            for _ in steps(cache, taken):
                runs += 1
                cgtree.branch(taken, lambda: cache.copy_from(x), lambda: rotate(cache))
            self.context.synchronize()
            numpy.testing.assert_array_equal(values_of(cache), want)
        self.assertEqual(runs, 2)

    def test_outside_of_a_step_it_runs_on_the_current_stream(self):
        x, y = tensor(floats(3)), tensor(floats(3))
        with cgtree.Stream("host") as stream:
            cgtree.branch(flags(1), lambda: y.copy_from(x))
            rounds = cgtree.loop(3, lambda: flags(1))
            stream.synchronize()
        numpy.testing.assert_array_equal(values_of(y), values_of(x))
        self.assertEqual(int(values_of(rounds)), 3)

    # ---- Rows as they come ----

    def sums(self, rows, most):
        """Compiles (x, on) -> rounds: y = x, and then rounds of y += x, which hand out y."""
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

    def test_rows_that_are_lost_are_counted_and_the_rest_is_read(self):
        rows = cgtree.LoopStream("host", 12, 2)
        f = self.sums(rows, 5)
        f(tensor(floats(3)), flags(1))
        with self.assertRaisesRegex(cgtree.InvalidArgument, "3 rows of a LoopStream"):
            rows.next(0)
        self.assertEqual([rows.next(0)[2:] for _ in range(2)], [(3, False), (4, True)])
        self.assertIsNone(rows.next(0))

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

    def test_what_a_body_of_rows_raises_arrives_with_its_type(self):
        rows = cgtree.LoopStream("host", 12, 8)

        def body():
            raise Own("boom")

        f = self.context.compile(lambda x: (cgtree.loop(2, body, rows=rows), x)[1])
        with self.assertRaisesRegex(Own, "^boom$") as raised:
            f(tensor(floats(3)))
        self.assertEqual(raised.exception.__notes__, ["in the body of loop()"])

    # ---- What bodies raise ----

    def test_what_a_body_raises_arrives_with_its_type_and_leaves_no_trace(self):
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
        for _ in range(2):  # to warm up, and to record
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

    def test_a_step_whose_body_has_raised_where_it_was_captured_is_recorded_later(self):
        errors = [Own("once")]

        def body():
            if cgtree.current_stream().is_capturing and errors:
                raise errors.pop()

        def step(x, taken):
            cgtree.branch(taken, lambda: None, body)
            return copy_of(x)

        f = self.context.compile(step)
        for _ in range(5):
            x = floats(3)
            numpy.testing.assert_array_equal(values_of(f(tensor(x), flags(1))), x)
        self.assertEqual(f.stats()["recordings"], 1)
        self.assertEqual(f.stats()["replays"], 2)
        self.assertEqual(errors, [])

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

    def test_a_body_may_not_keep_draw_or_break(self):
        generator = cgtree.Generator(7)
        kept = []
        bodies = {"keeps 1 of the tensors": lambda x: kept.append(copy_of(x)),
                  "uses a generator": lambda x: generator.fill_uniform(x),
                  "calls eager_break": lambda x: cgtree.eager_break(lambda value: None)}
        for what, body in bodies.items():
            f = self.context.compile(
                lambda x, taken: (cgtree.branch(taken, lambda: body(x)), copy_of(x))[1])
            with self.subTest(what), self.assertRaisesRegex(cgtree.InvalidArgument, what):
                f(tensor(floats(3)), flags(1))
            kept.clear()

    def test_what_is_wrong_is_named(self):
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
        self.assertIn("otherwise() of branch() returned a tensor, and another body a tuple",
                      f.explain(tensor(floats(3)), flags(1))["text"])


if __name__ == "__main__":
    unittest.main()
