"""Compiled functions from Python: their promises and their refusals."""

import gc
import json
import random
import sys
import unittest
import weakref

import numpy

sys.path.insert(0, "tests/python")

from support import (  # noqa: E402,F401
    RANDOM, SEED, Foreign, affine, cgtree, floats, from_cai, setUpModule, tensor, values_of)


class CompilePythonTest(unittest.TestCase):
    def setUp(self):
        self.context = cgtree.Context("host")
        self.addCleanup(self.context.close)
        cgtree.set_log_level("off")
        self.addCleanup(cgtree.set_log_level, "warn")

    def test_a_call_tells_what_it_did_and_a_frozen_function_records_nothing(self):
        step = self.context.compile(affine)

        def outcome(count):
            x, w = floats(count), floats(count)
            numpy.testing.assert_array_equal(values_of(step(x, tensor(w))), x * 2 + w)
            return step.last_outcome()

        self.assertIsNone(step.last_outcome())
        for expected in ("warm_up", "record", "replay"):
            self.assertEqual(outcome(8), (expected, ""))
        step.freeze()
        self.assertEqual(step.stats()["frozen"], 1)
        self.assertEqual(outcome(8), ("replay", ""))
        self.assertEqual(outcome(4), ("run_eagerly", "frozen"))
        step.freeze(when="throw")
        with self.assertRaisesRegex(cgtree.CaptureError, "frozen"):
            step(floats(4), tensor(floats(4)))
        self.assertEqual(step.last_outcome(), ("throw", ""))
        step.unfreeze()
        self.assertEqual(outcome(4), ("warm_up", ""))
        for wrong in ("never", "", 1):
            with self.assertRaises((cgtree.InvalidArgument, TypeError)):
                step.freeze(when=wrong)

    def test_inputs_may_be_given_by_name(self):
        step = self.context.compile(affine)
        for call in (lambda x, w: step(x, w=w), lambda x, w: step(w=w, x=x), lambda x, w: step(x, w)):
            for _ in range(3):
                x, w = floats(8), floats(8)
                numpy.testing.assert_array_equal(values_of(call(x, tensor(w))), x * 2 + w)
        self.assertEqual(step.stats()["recordings"], 1)
        self.assertEqual(step.explain(w=tensor(floats(8)), x=floats(8))["outcome"], "replay")
        report = step.inspect(w=tensor(floats(8)), x=floats(8))
        self.assertEqual((report["why_not"], report["failed"], report["suspects"]), ("", None, []))
        self.assertEqual(report["runs"], report["nodes"])
        self.assertIn("have run alone", report["text"])
        for compare in (step.compare_captures, step.compare_runs):
            comparison = compare(floats(8), w=tensor(floats(8)))
            self.assertEqual((comparison["why_not"], comparison["difference"]), ("", ""))
            self.assertGreater(comparison["nodes"], 0)
        out, x, w = tensor(floats(8)), floats(8), floats(8)
        step(x, w=tensor(w), out=out)
        numpy.testing.assert_array_equal(values_of(out), x * 2 + w)
        for wrong, words in ((lambda: step(w=w), "input 'x' is missing"), (lambda: step(x, x=w), "'x' is given twice")):
            with self.assertRaisesRegex(cgtree.InvalidArgument, words):
                wrong()
        with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'z'"):
            step(x, w, z=w)

    def test_an_object_that_has_its_compiled_method_is_collected_after_its_calls(self):
        class Model:
            def __init__(self, context, **options):
                self.weight = numpy.ones(4, "float32")
                self.step = context.compile(self.run, **options)

            def run(self, x):
                return x * self.weight[0]

        class Launches(Model):
            def run(self, x):
                y = cgtree.empty(x.shape, x.dtype)
                cgtree.launch(lambda x, y: values.append(self) and None, x, y)
                return y

        class Breaks(Model):
            def run(self, x):
                cgtree.eager_break(lambda value: values.append(self))
                return affine(x, x)

        values = []
        for kind, options in ((Model, {"framework": "numpy"}), (Launches, {}), (Breaks, {})):
            for calls in (0, 1, 2, 5):
                with self.subTest(kind.__name__, calls=calls):
                    made = kind(self.context, **options)
                    for _ in range(calls):
                        made.step(floats(4))
                    values.clear()
                    gone = weakref.ref(made)
                    gc.collect()
                    if calls:
                        made.step(floats(4))  # the collector has freed no object in use
                    values.clear()
                    del made
                    gc.collect()
                    self.assertIsNone(gone())

    def test_launches_of_an_inner_function_belong_to_the_outer_one(self):
        inner = self.context.compile(lambda x: affine(x, x))
        step = self.context.compile(lambda x: inner(x))
        inner(floats(4))
        for number in range(6):
            if number == 4:
                inner = None  # the recording keeps the function's kernels
            x = floats(4)
            numpy.testing.assert_array_equal(values_of(step(x)), x * 2 + x)
            gc.collect()

    def test_the_cycle_collector_does_not_run_in_a_capture(self):
        seen = []

        def step(x):
            seen.append(gc.isenabled())
            return affine(x, x)

        step = self.context.compile(step)
        for _ in range(3):
            step(floats(4))
        self.assertEqual(seen, [True, False])
        self.assertTrue(gc.isenabled())
        gc.disable()
        self.addCleanup(gc.enable)
        step(floats(5))
        step(floats(5))
        self.assertFalse(gc.isenabled())

    def test_the_python_code_does_not_run_at_replay(self):
        runs = []

        def step(x):
            runs.append(1)
            return x[1:]

        compiled = self.context.compile(step, name="slice")
        for _ in range(5):
            numpy.testing.assert_array_equal(values_of(compiled(tensor([1., 2.]))), [2.])
        self.assertEqual(len(runs), 2)
        self.assertEqual((compiled.name, compiled.__wrapped__), ("slice", step))
        self.assertIs(self.context.compile(step, framework="numpy").__wrapped__, step)

    def test_results_are_none_a_tensor_a_tuple_or_a_list(self):
        x = tensor(floats(4))
        for result, kind in ((lambda x: None, type(None)), (lambda x: x, cgtree.Tensor),
                             (lambda x: (x,), tuple), (lambda x: [x, x], list),
                             (lambda x: (), tuple)):
            compiled = self.context.compile(result)
            self.assertEqual([type(compiled(x)) for _ in range(4)], [kind] * 4)
        for wrong in (lambda x: 1, lambda x: (x, 1), lambda x: numpy.zeros(3)):
            with self.assertRaises((cgtree.InvalidArgument, TypeError)):
                self.context.compile(wrong)(x)

    def test_a_result_of_another_kind_than_before_is_refused(self):
        results = iter([True, False])

        def step(x):
            return x if next(results) else (x,)

        compiled = self.context.compile(step)
        compiled(tensor(floats(4)))
        with self.assertRaisesRegex(cgtree.InvalidArgument, "a tuple, and a tensor before"):
            compiled(tensor(floats(4)))

    def test_exceptions_of_step_functions_reach_the_caller_and_the_next_call_is_right(self):
        class Mine(Exception):
            pass

        raises = [False]

        def step(x):
            y = affine(x, x)
            if raises[0]:
                raise Mine("at work")
            return y

        compiled = self.context.compile(step)
        for call, fails in enumerate([True, False, True, False, False, False]):
            raises[0] = fails
            if fails and call < 3:
                with self.assertRaisesRegex(Mine, "at work"):
                    compiled(tensor(floats(4)))
            else:
                values = floats(4)
                numpy.testing.assert_array_equal(values_of(compiled(tensor(values))), values * 3)
        self.assertEqual(compiled.stats()["failures"], 2)
        gc.collect()

    def test_exceptions_of_launched_functions_reach_the_caller_of_a_replay(self):
        raises = [False]

        def kernel(x, y):
            if raises[0]:
                raise KeyError("in a kernel")
            y[...] = x

        def step(x):
            y = cgtree.empty(x.shape, x.dtype)
            cgtree.numpy.launch(kernel, x, y)
            return y

        compiled = self.context.compile(step)
        for _ in range(3):
            compiled(tensor(floats(4)))
        raises[0] = True
        with self.assertRaisesRegex(KeyError, "in a kernel"):
            compiled(tensor(floats(4)))
        raises[0] = False
        values = floats(4)
        numpy.testing.assert_array_equal(values_of(compiled(tensor(values))), values)

    def test_outputs_go_where_the_caller_wants_them(self):
        compiled = self.context.compile(affine)
        out = numpy.zeros(4, "float32")
        for _ in range(4):
            x, w = floats(4), floats(4)
            compiled(x, w, out=out)
            numpy.testing.assert_array_equal(out, x * 2 + w)
        with self.assertRaises(cgtree.InvalidArgument):
            compiled(x, w, out=numpy.zeros(5, "float32"))
        with self.assertRaises(TypeError):
            compiled(x, w, into=out)

    def test_static_and_mutated_inputs_by_name(self):
        def step(x, total):
            cgtree.numpy.launch(lambda a, b: numpy.add(a, b, out=b), x, total)

        compiled = self.context.compile(step, static=["total"], mutated=["total"])
        total, expected = tensor(numpy.zeros(4, "float32")), numpy.zeros(4, "float32")
        for _ in range(6):
            x = floats(4)
            compiled(x, total)
            expected = x + expected
        numpy.testing.assert_array_equal(values_of(total), expected)
        for wrong in ({"static": ["nothing"]}, {"mutated": [7]}, {"no_such_option": 1},
                      {"framework": "fortran"}, {"on_static_change": "perhaps"}, {"at_limit": "x"}):
            with self.subTest(options=wrong), self.assertRaises(cgtree.InvalidArgument):
                self.context.compile(step, **wrong)

    def test_an_input_that_must_be_contiguous_is_refused_with_gaps(self):
        for which in ("x", [0]):
            compiled = self.context.compile(lambda x: x * 2, framework="numpy", contiguous=which)
            values = floats(4, 2)
            for _ in range(3):
                self.context.mark_step()
                numpy.testing.assert_array_equal(values_of(compiled(tensor(values))), values * 2)
            gaps = from_cai(Foreign(tensor(floats(4, 4)), shape=(4, 2), strides=(16, 4)))
            with self.assertRaisesRegex(cgtree.InvalidArgument, "input 0 'x'.*require_contiguous"):
                compiled(gaps)

    def test_numbers_ride_along(self):
        compiled = self.context.compile(lambda x, a: x * a, framework="numpy")
        for number in (1.5, 2.5, 3.5, 4.5):
            self.context.mark_step()
            x = floats(4)
            found = values_of(compiled(x, cgtree.scalar(number, "float32")))
            numpy.testing.assert_array_equal(found, x * numpy.float32(number))
        self.assertEqual(cgtree.scalar(3).dtype, "int64")
        self.assertEqual(cgtree.scalar(True).dtype, "bool")
        for value, dtype in ((300, "uint8"), (-1, "uint16"), (1 << 31, "int32")):
            with self.assertRaises(cgtree.InvalidArgument):
                cgtree.scalar(value, dtype)

    def test_complex_numbers_and_small_floats_are_moved(self):
        for dtype in ("complex64", "complex128", "float8_e4m3fn"):
            item = cgtree.empty((1,), dtype, "host").itemsize
            with cgtree.Context("host") as context:
                def copy(x):
                    y = cgtree.empty(x.shape, x.dtype)
                    y.copy_from(x)
                    return y

                compiled = context.compile(copy, dynamic={0: {0: "rows"}},
                                           buckets={"rows": [4, 8]},
                                           outputs_dynamic=[{0: "rows"}])
                for rows in (3, 4, 3, 5, 2, 8, 7, 3):
                    context.mark_step()
                    data = RANDOM.bytes(rows * 6 * item)
                    x = cgtree.empty((rows, 6), dtype, "host")
                    raw = cgtree.view(x, x.data_ptr, (len(data),), (1,), "uint8")
                    raw.copy_from(numpy.frombuffer(data, "uint8"))
                    y = compiled(x)
                    self.assertEqual((y.dtype, y.shape, y.tobytes()), (dtype, (rows, 6), data))
                self.assertGreater(compiled.stats()["replays"], 2)

    def test_nothing_is_left_behind(self):
        before = self.context.stats()["live_outputs"]
        compiled = self.context.compile(lambda x: x * 2, framework="numpy")
        for _ in range(20):
            compiled(floats(4))
        gc.collect()
        self.assertEqual(self.context.stats()["live_outputs"], before)


class FlatCallPythonTest(unittest.TestCase):
    """Calls with a list of objects of one type, here cgtree.Tensor, and without Python in replays."""

    def setUp(self):
        self.context = cgtree.Context("host")
        self.addCleanup(self.context.close)
        self.finished = []

    def flat(self, function, *expected, apart=()):
        def finish(outputs, inputs):
            self.finished.append((outputs, inputs))
            return outputs

        def recover(error, inputs):
            if isinstance(error, KeyError):
                return ["recovered", list(inputs)]
            raise error

        step = self.context.compile(function)
        return step, cgtree._cgtree.FlatCall(step, cgtree.Tensor, cgtree.Tensor, None, expected,
                                             apart, finish, recover)

    def test_a_replay_returns_what_is_made_given_and_known_and_clears_the_list(self):
        rows = (tensor(floats(8, 3)), False)
        step, flat = self.flat(lambda x, w: affine(x, w), rows, rows, (5, None))
        flat.set_results([(1, 0), (0, 0), (2, "known"), (4, 1)])
        for number in range(20):
            x, w = floats(8, 3), floats(8, 3)
            given = [tensor(x), tensor(w), 5]
            first = given[0]
            results = flat.call(given)
            self.assertEqual(given, [])
            if number < 2:
                self.assertEqual(len(self.finished), number + 1)
                y = results[0]
            else:
                self.assertEqual(len(results), 4)
                self.assertIs(results[0], first)
                self.assertIs(results[3], results[1])
                self.assertEqual(results[2], "known")
                y = results[1]
            numpy.testing.assert_array_equal(values_of(y), x * 2 + w)
            y.copy_from(numpy.full((8, 3), 77, "float32"))
            del y, results
            self.finished = [None] * len(self.finished)
        self.assertEqual(step.stats()["replays"], 18)
        self.assertEqual(self.context.stats()["live_outputs"], 0)

    def test_a_call_with_other_inputs_is_not_made(self):
        line = (tensor(floats(4)), False)
        step, flat = self.flat(lambda x: affine(x, x), line, (1, None), (0.0, None))
        self.assertEqual(len(flat.call([tensor(floats(4)), 1, 0.0])), 1)
        for other in ([tensor(floats(5)), 1, 0.0], [tensor(floats(4)), 2, 0.0],
                      [tensor(floats(4)), True, 0.0], [tensor(floats(4)), 1, -0.0],
                      [tensor(floats(4)), 1.0, 0.0], [tensor(floats(4)), 1], [],
                      [floats(4), 1, 0.0], [None, 1, 0.0]):
            given = list(other)
            self.assertIs(flat.call(given), NotImplemented)
            self.assertTrue(all(a is b for a, b in zip(given, other, strict=True)))
        self.assertEqual(step.stats()["calls"], 1)

    def test_an_output_that_is_an_input_is_managed(self):
        line = (tensor(floats(4)), False)
        _, flat = self.flat(lambda x: affine(x, x), line)
        flat.set_results([(0, 0)])
        x = floats(4)
        y = flat.call([tensor(x)])[0]
        for _ in range(8):
            x, y = x * 3, flat.call([y])[0]
            numpy.testing.assert_array_equal(values_of(y), x * 3)
        nodes = json.loads(self.context.snapshot_json())["nodes"]
        self.assertIn("managed", str(nodes))

    def test_inputs_that_come_from_several_places_by_turns_are_read_where_they_are(self):
        line = (tensor(floats(4)), False)
        held, places = [], [tensor(floats(4)) for _ in range(4)]
        chosen = random.Random(SEED)

        def step(x, w):
            if not held:
                held.append(w)  # is another tensor for later calls
            return affine(x, w)

        _, flat = self.flat(step, line, (tensor(floats(4)), True))
        flat.set_results([(0, 0)])
        weight = floats(4)
        w = tensor(weight)
        for number in range(60):
            if number == 30:
                weight = weight + 1
                w = tensor(weight)
            x, values = chosen.choice(places), floats(4)
            x.copy_from(values)
            numpy.testing.assert_array_equal(values_of(flat.call([x, w])[0]), values * 2 + weight)

    def test_tensors_that_must_be_apart_are_refused_where_they_overlap(self):
        line = (tensor(floats(4)), False)
        step, flat = self.flat(lambda x, y: affine(x, y), line, line, apart=((0, 1, 0),))
        whole = tensor(floats(7))
        flat.call([whole[:4], tensor(floats(4))])
        given = [whole[:4], whole[3:]]
        with self.assertRaisesRegex(cgtree.WrongValue, "share memory with tensor 1"):
            flat.call(given)
        self.assertEqual(len(given), 2)
        self.assertEqual(step.stats()["calls"], 1)
        with self.assertRaisesRegex(cgtree.InvalidArgument, "no tensors 0 and 2"):
            self.flat(lambda x, y: x, line, line, apart=((0, 2, 0),))

    def test_after_an_error_the_list_is_as_before(self):
        def fail(_):
            raise ValueError("no")

        _, flat = self.flat(fail, (tensor(floats(4)), False))
        given = [tensor(floats(4))]
        first = given[0]
        with self.assertRaisesRegex(ValueError, "no"):
            flat.call(given)
        self.assertIs(given[0], first)
        self.assertEqual(len(given), 1)

    def test_what_recovers_answers_for_a_call_that_fails(self):
        def fail(_):
            raise KeyError("no")

        _, flat = self.flat(fail, (tensor(floats(4)), False))
        recent, x = cgtree._cgtree.RecentCalls(), tensor(floats(4))
        recent.set_calls([flat])
        recent.set_path(None, (1, (), ()))
        for call in (lambda: flat.call([x]), lambda: recent.call([x]),
                     lambda: recent.call_with_arguments(x)):
            recovered, inputs = call()
            self.assertEqual(recovered, "recovered")
            self.assertIs(inputs[0], x)

    def test_arguments_come_and_results_go_by_the_path(self):
        line = (tensor(floats(4)), False)
        _, flat = self.flat(lambda x, w: (affine(x, w), affine(w, x)), line, line)
        flat.set_results([(0, 0), (0, 1)])
        recent, other = cgtree._cgtree.RecentCalls(), []
        recent.set_calls([flat])

        def slow(*arguments):
            other.append(arguments)
            return "slow"

        with self.assertRaises(cgtree.InvalidArgument):
            recent.call_with_arguments()
        recent.set_path(slow, None)
        self.assertEqual(recent.call_with_arguments(1, 2), "slow")
        recent.set_path(slow, (2, (1, 0), (1, -1, 0)))
        for call in range(6):
            x, w = floats(4), floats(4)
            second, none, first = recent.call_with_arguments(tensor(x), tensor(w))
            numpy.testing.assert_array_equal(values_of(first), w * 2 + x)
            numpy.testing.assert_array_equal(values_of(second), x * 2 + w)
            self.assertIsNone(none)
            del first, second
        self.assertEqual(other, [(1, 2)])
        self.assertEqual(recent.call_with_arguments(3), "slow")
        self.assertEqual(recent.call_with_arguments(tensor(floats(5)), 2), "slow")
        for wrong in ((1, (1,), ()), (1, (), (-2,)), (-1, (), ())):
            with self.assertRaises(cgtree.InvalidArgument):
                recent.set_path(slow, wrong)
        with self.assertRaises(TypeError):
            recent.set_calls([3])

    def test_wrong_parts_are_refused(self):
        step = self.context.compile(lambda x: x)
        make = cgtree._cgtree.FlatCall
        with self.assertRaisesRegex(cgtree.InvalidArgument, "'compiled' is missing"):
            make()
        for wrong in ((3, cgtree.Tensor, int, None, (), (), None, None),
                      (step, 3, int, None, (), (), None, None),
                      (step, cgtree.Tensor, int, None, (1,), (), None, None)):
            with self.assertRaises(TypeError):
                make(*wrong)
        with self.assertRaisesRegex(cgtree.InvalidArgument, "expected has 1 items: expected 2"):
            make(step, cgtree.Tensor, int, None, ((1,),), (), None, None)
        with self.assertRaises(cgtree.NotSupported):
            make(step, int, int, None, (), (), None, None)
        with self.assertRaises(cgtree.InvalidArgument):
            make(step, cgtree.Tensor, cgtree.Tensor, None, (), (), None, None).call((1,))
        def raises(error, _):
            raise error

        unbound = cgtree.compile(lambda x: x)
        with self.assertRaises(cgtree.InvalidArgument):
            make(unbound, cgtree.Tensor, cgtree.Tensor, None, (), (), None, raises).call([])


if __name__ == "__main__":
    unittest.main()
