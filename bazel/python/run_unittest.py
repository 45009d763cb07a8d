"""Runs one unittest file, and writes its cases to $XML_OUTPUT_FILE so that each of them counts.

usage: run_unittest.py FILE [unittest option]...    in the workspace root, which becomes importable
"""

import importlib.util
import os
import sys
import unittest
import xml.etree.ElementTree as ElementTree


class XmlResult(unittest.TextTestResult):
    """Keeps one testcase element for each case."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.suites = ElementTree.Element("testsuites")
        self.suite = ElementTree.SubElement(self.suites, "testsuite", name="python")

    def startTest(self, test):
        super().startTest(test)
        suite, _, name = test.id().rpartition(".")
        self.case = ElementTree.SubElement(self.suite, "testcase", classname=suite, name=name)

    def _note(self, tag, message):
        if len(self.suite) == 0:  # setUpClass or setUpModule failed: no case had started
            self.case = ElementTree.SubElement(self.suite, "testcase", name="set up")
        ElementTree.SubElement(self.case, tag, message=message)

    def addError(self, test, err):
        super().addError(test, err)
        self._note("error", str(err[1]))

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._note("failure", str(err[1]))

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._note("failure", f"{subtest}: {err[1]}")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._note("skipped", reason)

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self._note("failure", "unexpected success")


class XmlRunner(unittest.TextTestRunner):
    resultclass = XmlResult

    def run(self, test):
        result = super().run(test)
        path = os.environ.get("XML_OUTPUT_FILE")
        if path:
            ElementTree.ElementTree(result.suites).write(path, encoding="utf-8")
        if result.testsRun == 0:
            sys.exit("no test case found")
        return result


def write_skipped(name, reason):
    print(f"{name} is skipped: {reason}")
    if path := os.environ.get("XML_OUTPUT_FILE"):
        suites = ElementTree.Element("testsuites")
        suite = ElementTree.SubElement(suites, "testsuite", name="python")
        case = ElementTree.SubElement(suite, "testcase", classname=name, name="all")
        ElementTree.SubElement(case, "skipped", message=reason)
        ElementTree.ElementTree(suites).write(path, encoding="utf-8")


def main():
    path = sys.argv.pop(1)
    sys.path.insert(0, os.getcwd())
    spec = importlib.util.spec_from_file_location(os.path.basename(path)[: -len(".py")], path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except unittest.SkipTest as reason:  # nothing of the file can run here
        write_skipped(spec.name, str(reason))
        return
    unittest.main(module=module, testRunner=XmlRunner)


if __name__ == "__main__":
    main()
