"""Every public function and type has an example in its docstring, and each example runs as shown.
"""

import doctest
import sys
import unittest

sys.path.insert(0, "tests/python")

from support import cgtree  # noqa: E402

PUBLIC = {name: getattr(cgtree, name) for name in cgtree.__all__}


def is_error(value):
    return isinstance(value, type) and issubclass(value, BaseException)


class DocstringsTest(unittest.TestCase):
    def test_all_that_is_public_says_what_it_does(self):
        for name, value in PUBLIC.items():
            self.assertGreater(len(value.__doc__ or ""), 20, name)

    def test_each_example_does_what_it_says(self):
        runner = doctest.DocTestRunner(verbose=False)
        for name, value in PUBLIC.items():
            if is_error(value):
                continue
            with self.subTest(name):
                test = doctest.DocTestParser().get_doctest(value.__doc__, {"cgtree": cgtree}, name,
                                                           None, None)
                self.assertTrue(test.examples, f"{name} has no example")
                said = []
                self.assertEqual(runner.run(test, out=said.append).failed, 0, "".join(said))


if __name__ == "__main__":
    unittest.main()
