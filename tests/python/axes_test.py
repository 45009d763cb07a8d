"""Dynamic axes from Python: policies, true lengths, precapture, and buckets from observed sizes."""

import copy
import pickle
import sys
import unittest

import numpy

sys.path.insert(0, "tests/python")

from support import cgtree, floats, setUpModule, tensor, values_of  # noqa: E402,F401


class AxisPythonTest(unittest.TestCase):
    def test_an_axis_is_a_value(self):
        axis = cgtree.Axis("batch", "buckets", sizes=(2, 4), above_largest="throw")
        self.assertEqual(axis, cgtree.Axis("batch", "buckets", (2, 4), above_largest="throw"))
        self.assertNotEqual(axis, cgtree.Axis("batch", "buckets", (2, 4)))
        self.assertNotEqual(axis, "batch")
        self.assertEqual(len({axis, copy.copy(axis), pickle.loads(pickle.dumps(axis))}), 1)
        self.assertEqual(eval(repr(axis), {"Axis": cgtree.Axis}), axis)
        with self.assertRaisesRegex(AttributeError, "sizes"):
            axis.sizes = (8,)
        self.assertEqual(axis.options()["sizes"], [2, 4])


def scaled(x):
    """A step function: x * key["k"], plus 1 for the adapter "en"."""
    key = cgtree.current_key()
    y = cgtree.empty(x.shape)

    def node(x, y):
        y[...] = x * key["k"] + (key.get("adapter") == "en")

    cgtree.numpy.launch(node, x, y)
    return y


class AxesPythonTest(unittest.TestCase):
    def setUp(self):
        self.context = cgtree.Context("host")
        self.addCleanup(self.context.close)
        cgtree.set_log_level("off")
        self.addCleanup(cgtree.set_log_level, "warn")

    def compile(self, function=lambda x: x * 2, axes=(), **options):
        return self.context.compile(function, framework="numpy", axes=axes,
                                    dynamic={0: {0: "batch"}},
                                    outputs_dynamic=[{0: "batch"}], **options)

    def call(self, compiled, *sizes):
        for size in sizes:
            self.context.mark_step()
            x = floats(size, 2)
            numpy.testing.assert_array_equal(values_of(compiled(x)), x * 2)
        return compiled.stats()

    def test_each_policy_with_its_fields(self):
        for options, sizes, recordings, skips, evictions in (
                ({"max_sizes": 2}, [1, 1, 2, 2, 3, 3, 1, 2], 2, 2, 0),
                ({"max_sizes": 1, "at_max_sizes": "next_larger"}, [4, 4, 3, 2, 4], 1, 0, 0),
                ({"max_sizes": 1, "at_max_sizes": "evict"}, [4, 4, 3, 3, 4], 2, 0, 2),
                ({"policy": "allow_list", "sizes": [2, 4]}, [2, 2, 3, 3, 4, 4], 2, 2, 0),
                ({"policy": "skip"}, [2, 2, 2, 3, 2], 1, 2, 0),
                ({"policy": "buckets", "sizes": (2, 4)}, [2, 2, 5, 5], 1, 2, 0),
                ({"policy": "multiples", "multiple_of": 4, "largest": 8}, [1, 4, 3, 9], 1, 1, 0),
                ({"policy": "powers_of_two"}, [4, 3, 1, 5], 1, 1, 0)):
            with self.subTest(options):
                waste = {"max_waste": 1.5} if options.get("policy") == "powers_of_two" else {}
                stats = self.call(self.compile(axes=[cgtree.Axis("batch", **options)], **waste), *sizes)
                self.assertEqual((stats["recordings"], sum(stats["skips"].values()), stats["evictions"]),
                                 (recordings, skips, evictions))
        compiled = self.compile(axes=[cgtree.Axis("batch", "buckets", (2, 4), above_largest="throw")])
        with self.assertRaisesRegex(cgtree.InvalidArgument, "batch"):
            compiled(floats(5, 2))

    def test_zeros_that_were_not_chosen_are_no_slots(self):
        def step(slots, cache):
            cgtree.numpy.launch(lambda slots, cache: cache.__setitem__(slots, 1), slots, cache)

        for padding, skips in ((None, {"unsafe_padding": 4}), ({"slots": "last"}, {})):
            cache = tensor(numpy.zeros(6, "float32"))
            with cgtree.Context("host") as context:
                compiled = context.compile(step, static=("cache",), mutated=("cache",), padding=padding,
                                           dynamic={"slots": {0: "n"}}, buckets={"n": [4]})
                for _ in range(4):
                    compiled(tensor(numpy.array([3, 1, 2], "int32")), cache)
                self.assertEqual(values_of(cache).tolist(), [0, 1, 1, 1, 0, 0])
                self.assertEqual(compiled.stats()["skips"], skips)

    def test_calls_with_other_keys_share_no_recording(self):
        compiled = self.context.compile(scaled)
        for _ in range(3):
            for key in ({"k": 2}, {"k": 3}, {"k": 3, "adapter": "en"}):
                self.context.mark_step()
                x = floats(4)
                expected = x * key["k"] + ("adapter" in key)
                numpy.testing.assert_array_equal(values_of(compiled(x, key=key)), expected)
                y = numpy.zeros_like(x)
                compiled(x, key=key, out=y)
                self.context.synchronize()
                numpy.testing.assert_array_equal(y, expected)
        self.assertEqual(compiled.stats()["recordings"], 6)
        self.assertEqual(compiled.explain(floats(4), key={"k": 2})["outcome"], "replay")
        self.assertEqual(compiled.explain(floats(4), key={"k": 9})["outcome"], "warm_up")
        for key in ([], {1: 2}, {"k": 1.5}, {"a b": 1}, {"a": "x" * 200}):
            with self.assertRaises((cgtree.InvalidArgument, TypeError)):
                compiled(floats(4), key=key)
        with self.assertRaises(cgtree.InvalidArgument):
            cgtree.current_key()

    def test_sizes_are_not_learned(self):
        with self.assertRaisesRegex(cgtree.InvalidArgument, "'k' has the policy 'learned'"):
            self.context.compile(scaled, keys=[cgtree.Axis("k", "learned")])

    def test_integers_of_the_key_are_rounded_up(self):
        compiled = self.context.compile(
            scaled, keys=[cgtree.Axis("k", "powers_of_two", largest=4)])
        report = compiled.precapture(lambda sizes: floats(2),
                                     key={"adapter": ["en", "de"], "k": None})
        self.assertEqual([entry["sizes"] for entry in report["entries"]][:2],
                         [{"adapter": "en", "k": 4}, {"adapter": "de", "k": 4}])
        self.assertEqual(len(report["entries"]), 6)
        for k in (1, 3, 2, 5):
            self.context.mark_step()
            x = floats(2)
            seen = {3: 4}.get(k, k)
            y = compiled(x, key={"adapter": "de", "k": k})
            numpy.testing.assert_array_equal(values_of(y), x * seen)
        self.assertEqual(compiled.stats()["skips"], {"above_largest_bucket": 1})
        self.assertEqual(compiled.suggest_all_buckets(4), {"k": [1, 2, 3, 5]})
        with self.assertRaises(cgtree.InvalidArgument):
            compiled(floats(2))

    def test_axes_that_cannot_be(self):
        for axis in (cgtree.Axis("batch", "perhaps"), cgtree.Axis("batch", "buckets", (4, 2)),
                     cgtree.Axis("batch", "buckets", (0,)), cgtree.Axis("batch", "allow_list"),
                     cgtree.Axis("batch", at_max_sizes="x"), cgtree.Axis("batch", max_sizes=-1),
                     cgtree.Axis("batch", above_largest=""), "batch", {"name": "batch"}):
            with self.subTest(axis=axis), self.assertRaises(cgtree.InvalidArgument):
                self.compile(axes=[axis])
        with self.assertRaises(cgtree.InvalidArgument):
            self.compile(buckets=[("batch", [2, 4])])

    def test_the_true_length_is_right_at_each_replay(self):
        def step(x):
            mean = cgtree.empty((2,), x.dtype)
            cgtree.numpy.launch(lambda a, n, out: numpy.divide(a.sum(axis=0), n, out=out),
                                x, cgtree.axis_length("batch"), mean)
            return mean

        compiled = self.context.compile(step, dynamic={0: {0: "batch"}}, buckets={"batch": [8]})
        for size in (3, 5, 8, 1, 7, 2):
            self.context.mark_step()
            x = floats(size, 2)
            numpy.testing.assert_allclose(values_of(compiled(tensor(x))), x.mean(axis=0),
                                          rtol=1e-5)
        self.assertEqual(compiled.stats()["replays"], 4)
        with self.assertRaises(cgtree.InvalidArgument):
            cgtree.axis_length("batch")

    def test_precapture_records_before_calls_come(self):
        compiled = self.compile(buckets={"batch": [2, 4, 8]}, while_missing="run_eagerly")
        told = []
        report = compiled.precapture(lambda sizes: floats(sizes["batch"], 2), progress=told.append)
        self.assertEqual([(entry["sizes"], entry["outcome"], entry["why"])
                          for entry in report["entries"]],
                         [({"batch": size}, "recorded", "") for size in (8, 4, 2)])
        self.assertEqual(told, report["entries"])
        self.assertGreater(report["seconds"], 0)
        self.assertIn("batch = 8: recorded", report["text"])
        self.assertEqual(compiled.histogram("batch"), {})
        before = compiled.stats()
        stats = self.call(compiled, 1, 3, 8, 2)
        self.assertEqual(stats["replays"] - before["replays"], 4)
        again = compiled.precapture(lambda sizes: [floats(sizes["batch"], 2)],
                                    sizes={"batch": [4]}, max_time=float("inf"))
        self.assertEqual([entry["outcome"] for entry in again["entries"]], ["already_there"])

    def test_memory_of_precapture_is_predicted(self):
        compiled = self.compile(buckets={"batch": [2, 4, 8]})
        make = lambda sizes: floats(sizes["batch"], 2)  # noqa: E731
        predicted = compiled.predict_memory(make)
        self.assertEqual([entry["outcome"] for entry in predicted["entries"]], ["predicted"] * 3)
        self.assertEqual(compiled.stats()["recordings"], 0)
        report = compiled.precapture(make)
        self.assertEqual(report["bytes"], predicted["bytes"])
        self.assertEqual(report["graph_bytes"], predicted["graph_bytes"])
        self.assertGreater(predicted["graph_bytes"], 0)
        with self.assertRaisesRegex(TypeError, "make_inputs is of type int: expected a function"):
            compiled.predict_memory(1)

    def test_precapture_records_once_more_for_each_output_that_is_held(self):
        for held in (0, 1, 2):
            compiled = self.compile(buckets={"batch": [2, 4]})
            compiled.precapture(lambda sizes: floats(sizes["batch"], 2), held_outputs=held)
            self.assertEqual(compiled.stats()["recordings"], 2 * (held + 1))

    def test_precapture_within_limits_and_what_it_raises(self):
        compiled = self.compile(buckets={"batch": [2, 4]})
        make = lambda sizes: floats(sizes["batch"], 2)  # noqa: E731
        report = compiled.precapture(make, max_time=0)
        self.assertEqual([entry["outcome"] for entry in report["entries"]], ["left_out"] * 2)
        self.assertIn("max_time", report["entries"][0]["why"])

        class Mine(Exception):
            pass

        def fail(_):
            raise Mine("on the way")

        for arguments, options in (((fail,), {}), ((make,), {"progress": fail})):
            with self.assertRaisesRegex(Mine, "on the way"):
                compiled.precapture(*arguments, **options)
        for arguments, options in (((), {}), ((make,), {"max_time": -1}),
                                   ((make,), {"max_time": float("nan")}),
                                   ((make,), {"sizes": {"length": [1]}}),
                                   ((make,), {"sizes": [2]})):
            with self.subTest(options=options), self.assertRaises(cgtree.InvalidArgument):
                compiled.precapture(*arguments, **options)
        for arguments, options in (((make,), {"budget": 1}), ((1,), {}), ((make,), {"progress": 1})):
            with self.subTest(options=options), self.assertRaises(TypeError):
                compiled.precapture(*arguments, **options)
        with self.assertRaisesRegex(cgtree.InvalidArgument, "neither buckets nor"):
            self.compile().precapture(make)
        self.call(compiled, 1, 1, 1, 3)

    def test_buckets_from_what_was_seen(self):
        compiled = self.compile()
        self.call(compiled, 1, 1, 1, 6, 7, 8)
        counts = compiled.histogram("batch")
        self.assertEqual(counts, {1: 3, 6: 1, 7: 1, 8: 1})
        for most, cost, want in ((1, None, [8]), (2, None, [1, 8]), (3, lambda size: 1, [8])):
            self.assertEqual(compiled.suggest_buckets("batch", most, cost), want)
            self.assertEqual(cgtree.suggest_buckets(counts, most, cost=cost), want)
        with self.assertRaises(ZeroDivisionError):
            compiled.suggest_buckets("batch", 2, lambda size: 1 / 0)
        for use in (lambda: compiled.suggest_buckets("length", 2), lambda: compiled.suggest_buckets("batch", 0),
                    lambda: compiled.suggest_buckets("batch"), lambda: cgtree.suggest_buckets({-1: 1}, 2),
                    lambda: cgtree.suggest_buckets(3, 1), lambda: cgtree.suggest_buckets({1: -1}, 2),
                    lambda: cgtree.suggest_buckets(counts, 2, lambda size: -size)):
            with self.assertRaises(cgtree.InvalidArgument):
                use()


if __name__ == "__main__":
    unittest.main()
