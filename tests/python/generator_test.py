"""Random numbers from Python: equal to Philox in NumPy, and the same eagerly and at replay."""

import sys
import threading
import unittest

import numpy

sys.path.insert(0, "tests/python")

from support import RANDOM, cgtree, setUpModule, tensor, values_of  # noqa: E402,F401

MASK = numpy.uint64(0xFFFFFFFF)


def philox(seed, offset, blocks):
    """`blocks` blocks of four 32-bit words, from block `offset` of the seed's sequence."""
    number = numpy.array([(offset + i) % (1 << 64) for i in range(blocks)], "uint64")
    words = [number & MASK, number >> numpy.uint64(32), number * numpy.uint64(0),
             number * numpy.uint64(0)]
    keys = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        products = [words[0] * numpy.uint64(0xD2511F53), words[2] * numpy.uint64(0xCD9E8D57)]
        words = [(products[1] >> numpy.uint64(32)) ^ words[1] ^ numpy.uint64(keys[0]),
                 products[1] & MASK,
                 (products[0] >> numpy.uint64(32)) ^ words[3] ^ numpy.uint64(keys[1]),
                 products[0] & MASK]
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return numpy.stack(words, axis=1).reshape(-1)


def uniform(seed, offset, count):
    words = philox(seed, offset, (count + 3) // 4)[:count]
    return (words >> numpy.uint64(8)).astype("float32") * numpy.float32(2.0 ** -24)


class GeneratorPythonTest(unittest.TestCase):
    def setUp(self):
        self.seed = int(RANDOM.integers(0, 1 << 63))
        self.generator = cgtree.Generator(self.seed)

    def test_uniform_numbers_are_philoxs(self):
        drawn = values_of(self.generator.uniform((3, 7), device="host"))
        self.assertEqual(drawn.dtype, "float32")
        numpy.testing.assert_array_equal(drawn.reshape(-1), uniform(self.seed, 0, 21))
        self.assertEqual(self.generator.state(), (self.seed, 6, None))
        place = cgtree.empty((5,), device="host")
        self.generator.fill_uniform(place)
        numpy.testing.assert_array_equal(values_of(place), uniform(self.seed, 6, 5))

    def test_integers_are_philoxs_and_in_their_range(self):
        drawn = values_of(self.generator.integers(-5, 90, (101,), device="host"))
        words = philox(self.seed, 0, 51)[:202].reshape(-1, 2)
        expected = [((int(high) << 32 | int(low)) * 95 >> 64) - 5 for low, high in words]
        numpy.testing.assert_array_equal(drawn, expected)
        place = cgtree.empty((64,), "int64", "host")
        self.generator.fill_integers(place, -(1 << 63), (1 << 63) - 1)
        self.assertGreater(len(set(values_of(place).tolist())), 60)

    def test_normal_numbers_have_mean_and_deviation(self):
        drawn = values_of(self.generator.normal((100000,), mean=3, deviation=0.5, device="host"))
        self.assertLess(abs(drawn.mean() - 3), 0.02)
        self.assertLess(abs(drawn.std() - 0.5), 0.02)
        words = philox(self.seed, 0, 2).astype("float64")
        radius = numpy.sqrt(-2 * numpy.log((words[0] + 1) * 2.0 ** -32))
        angle = 2 * numpy.pi * (int(words[1]) >> 8) * 2.0 ** -24
        numpy.testing.assert_allclose(drawn[:2], [3 + 0.5 * radius * numpy.cos(angle),
                                                  3 + 0.5 * radius * numpy.sin(angle)], rtol=1e-4)
        place = cgtree.empty((8,), device="host")
        self.generator.fill_normal(place, deviation=0)
        numpy.testing.assert_array_equal(values_of(place), numpy.zeros(8))

    def test_seeds_and_states_go_back(self):
        first = values_of(self.generator.uniform((8,), device="host"))
        state = self.generator.state()
        second = values_of(self.generator.uniform((8,), device="host"))
        self.generator.set_state(state)
        numpy.testing.assert_array_equal(
            values_of(self.generator.uniform((8,), device="host")), second)
        self.generator.set_seed(self.seed)
        numpy.testing.assert_array_equal(
            values_of(self.generator.uniform((8,), device="host")), first)
        self.generator.set_seed(7)
        self.assertEqual((self.generator.seed, self.generator.state()), (7, (7, 0, None)))
        self.assertEqual(repr(self.generator), "cgtree.Generator(seed=7, offset=0)")

    def test_replays_draw_as_eager_calls(self):
        eager = cgtree.Generator(self.seed)
        cases = (lambda g, x: (g.uniform((6,)), g.normal((5,), mean=1)),
                 lambda g, x: (g.integers(0, 1000, (7,)), g.uniform(x.shape)))
        with cgtree.Context("host") as context:
            for case in cases:
                step = context.compile(lambda x, case=case: case(self.generator, x))
                plain = context.compile(lambda x, case=case: case(eager, x), enabled=False)
                for call in range(8):
                    context.mark_step()
                    x = tensor(numpy.zeros(4, "float32"))
                    found = [values_of(y) for y in step(x)]
                    for y, expected in zip(found, plain(x)):
                        numpy.testing.assert_array_equal(y, values_of(expected))
                    if call == 4:  # obeyed by the next replay
                        self.generator.set_seed(11)
                        eager.set_seed(11)
                self.assertEqual(step.stats()["replays"], 6)

    def test_a_call_that_raises_gives_back_what_it_drew(self):
        def step(x):
            self.generator.uniform((64,))
            raise KeyError("late")

        with cgtree.Context("host") as context:
            cgtree.set_log_level("off")
            self.addCleanup(cgtree.set_log_level, "warn")
            with self.assertRaises(KeyError):
                context.compile(step)(tensor(numpy.zeros(4, "float32")))
        self.assertEqual(self.generator.state()[1], 0)

    def test_states_of_a_recording_stay_in_it(self):
        states = []

        def step(x):
            states.append(self.generator.state())
            first = self.generator.uniform((4,))
            self.generator.set_state(states[-1])
            second = self.generator.uniform((4,))
            return first, second

        with cgtree.Context("host") as context:
            compiled = context.compile(step)
            for _ in range(4):
                context.mark_step()
                first, second = compiled(tensor(numpy.zeros(4, "float32")))
                numpy.testing.assert_array_equal(values_of(first), values_of(second))
            self.assertEqual([state[2] is None for state in states], [True, False])
            with self.assertRaisesRegex(cgtree.InvalidArgument, "recorded"):
                self.generator.set_state(states[1])

    def test_threads_never_draw_the_same(self):
        drawn = []

        def work():
            for _ in range(50):
                drawn.append(self.generator.integers(0, 1 << 62, (4,), device="host"))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len({int(value) for made in drawn for value in values_of(made)}), 800)

    def test_what_is_refused_draws_nothing(self):
        fixed = cgtree.as_tensor(numpy.frombuffer(bytes(16), "float32"))
        made = cgtree.empty((4, 4), device="host")
        for use in (lambda: self.generator.fill_uniform(made.transpose()),
                    lambda: self.generator.fill_uniform(cgtree.empty((4,), "int32", "host")),
                    lambda: self.generator.fill_uniform(fixed),
                    lambda: self.generator.integers(3, 3, (4,), device="host"),
                    lambda: self.generator.integers(3, shape=(4,)), self.generator.uniform,
                    lambda: self.generator.uniform((-1,), device="host"),
                    lambda: self.generator.set_seed(-1), lambda: self.generator.set_seed(1 << 64),
                    lambda: cgtree.Generator(-1), self.generator.fill_normal,
                    lambda: self.generator.set_state((1, 2)),
                    lambda: self.generator.set_state((1, 2, 3))):
            with self.assertRaises(cgtree.InvalidArgument):
                use()
        for use in (lambda: self.generator.fill_uniform(numpy.zeros(4, "float32")),
                    lambda: self.generator.uniform((4,), seed=3),
                    lambda: self.generator.normal((4,), mean="x"),
                    lambda: cgtree.Generator("seed"), lambda: self.generator.set_state((None,) * 3),
                    lambda: self.generator.uniform((4,), "host"),
                    lambda: self.generator.uniform((4,), shape=(4,))):
            with self.assertRaises(TypeError):
                use()
        self.assertEqual(self.generator.state(), (self.seed, 0, None))


if __name__ == "__main__":
    unittest.main()
