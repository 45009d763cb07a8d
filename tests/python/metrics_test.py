"""Metrics from Python: the page, read by parsers of other projects if they are installed."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import unittest

import numpy

sys.path.insert(0, "tests/python")

from support import cgtree, floats, setUpModule  # noqa: E402,F401

try:
    from prometheus_client.parser import text_string_to_metric_families
except ImportError:
    text_string_to_metric_families = None


def exercise(context, calls=5):
    """Makes calls of several outcomes, with a dynamic axis and a name that must be escaped."""
    step = context.compile(lambda x: x * 2, name='a "name"\\ with\nall', framework="numpy",
                           dynamic={0: {0: "n"}}, outputs_dynamic=[{0: "n"}],
                           buckets={"n": [4, 8]})
    plain = context.compile(lambda x: x + 1, name="plain", framework="numpy")
    for _ in range(calls):
        step(floats(3))
        plain(floats(4))
    return step


class MetricsPythonTest(unittest.TestCase):
    def setUp(self):
        self.context = cgtree.Context("host", name="decode", verify_every=2)
        self.other = cgtree.Context("host")
        self.addCleanup(self.context.close)
        self.addCleanup(self.other.close)
        self.step = exercise(self.context)
        self.page = cgtree.metrics_text(self.context, self.other)

    def test_one_page_has_all_contexts(self):
        self.assertIn('cgtree_context_info{context="decode",device="host:0"} 1\n', self.page)
        self.assertIn('cgtree_context_info{context="host:0",device="host:0"} 1\n', self.page)
        self.assertIn('cgtree_calls_total{context="decode",function="plain",outcome="record"} 1\n',
                      self.context.metrics_text())
        self.assertIn("cgtree_live_outputs", cgtree.metrics_text())

    def test_contexts_that_cannot_be_told_apart_are_refused(self):
        with self.assertRaisesRegex(cgtree.InvalidArgument, 'both named "decode"'):
            cgtree.metrics_text(self.context, self.context)
        for wrong in (None, 3, "decode"):
            with self.assertRaisesRegex(cgtree.InvalidArgument, "argument 0 is no Context"):
                cgtree.metrics_text(wrong)
        self.other.close()
        with self.assertRaisesRegex(cgtree.InvalidArgument, "closed"):
            cgtree.metrics_text(self.other)

    def test_another_thread_reads_while_calls_go_on(self):
        pages = []
        reader = threading.Thread(
            target=lambda: pages.extend(self.context.metrics_text() for _ in range(50)))
        reader.start()
        exercise(self.context, 50)
        reader.join()
        counts = [int(re.search(r'"plain",outcome="replay"} (\d+)', page)[1]) for page in pages]
        self.assertEqual(counts, sorted(counts))

    @unittest.skipIf(text_string_to_metric_families is None,
                     "python3-prometheus-client is not installed")
    def test_the_parser_of_prometheus_client_reads_the_same(self):
        families = {family.name: family for family in text_string_to_metric_families(self.page)}
        calls = {(sample.labels["function"], sample.labels["outcome"]): sample.value
                 for sample in families["cgtree_calls"].samples
                 if sample.labels["context"] == "decode"}
        stats = self.step.stats()
        name = 'a "name"\\ with\nall'
        self.assertEqual(calls[name, "replay"], stats["replays"])
        self.assertEqual(calls[name, "warm_up"], stats["warm_ups"])
        self.assertEqual(families["cgtree_record_seconds"].type, "histogram")
        ratio, = families["cgtree_padded_ratio"].samples
        self.assertAlmostEqual(ratio.value, 4 / 3)
        self.assertEqual(ratio.labels, {"context": "decode", "function": name, "axis": "n"})

    @unittest.skipUnless(shutil.which("promtool"), "promtool (Debian's prometheus) is not installed")
    def test_promtool_finds_nothing_wrong(self):
        checked = subprocess.run(["promtool", "check", "metrics"], input=self.page, text=True,
                                 capture_output=True, check=False)
        self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, ""))

    def test_the_dashboard_and_the_page_of_docs_name_metrics_that_exist(self):
        families = set(re.findall(r"# TYPE (\S+)", self.page))
        series = families | {f"cgtree_{what}_seconds_{end}"
                             for what in ("record", "replay_device", "scope_device")
                             for end in ("bucket", "sum", "count")}
        dashboard = json.loads(pathlib.Path("docs/grafana.json").read_text())
        queries = [target["expr"] for panel in dashboard["panels"]
                   for target in panel.get("targets", [])]
        queries += [variable["query"] for variable in dashboard["templating"]["list"]
                    if variable["type"] == "query"]
        named = set(re.findall(r"\bcgtree_\w+", " ".join(queries)))
        self.assertEqual(named - series, set())
        self.assertGreater(len(named), 10)
        documented = re.findall(r"^\| `(cgtree_\w+)", pathlib.Path("docs/metrics.md").read_text(),
                                re.MULTILINE)
        self.assertEqual(sorted(documented), sorted(families))


if __name__ == "__main__":
    unittest.main()
