"""The tree in a real browser: its content after the scripts ran, folds, links and the filter."""

import json
import sys
import unittest

sys.path.insert(0, "tests/tools/tree_viewer")

from viewed_page import ViewedPage, text_of  # noqa: E402

OPEN = "[...document.querySelectorAll('.node details')].map(details => details.open)"
VISIBLE = "[...document.querySelectorAll('.node')].filter(row => row.checkVisibility()).length"


class PageTest(ViewedPage):

    @classmethod
    def make_pages(cls):
        for name in ("small", "large", "hostile", "empty"):
            cls.run_program(name)

    def test_every_recording_has_a_row_whose_place_is_its_place_in_the_tree(self):
        for name in ("small", "large"):
            self.open(name)
            nodes = self.trees[name]["nodes"]
            self.assertEqual(sorted(self.value("[...document.querySelectorAll('.node')].map(row => row.id)")),
                             sorted(f"node-{node['id']}" for node in nodes))
            self.assertEqual(self.value(VISIBLE), len(nodes))
            # The rows of a subtree follow its head, so a row's parent is the nearest row above
            # whose subtree includes this row.
            parents = self.value("""
                [...document.querySelectorAll('.node')].map((row, i, rows) => {
                  const above = rows.slice(0, i).reverse().find((head, k) =>
                      k < Number(head.dataset.subtree));
                  return [row.id.slice(5), above ? above.id.slice(5) : '0'].map(Number);
                })""")
            self.assertEqual(sorted(parents),
                             sorted([node["id"], node["parent"]] for node in nodes))
            for parent in {node["parent"] for node in nodes}:
                siblings = [node for node, above in parents if above == parent]
                self.assertEqual(siblings, sorted(siblings), "in the order they were recorded in")

    def test_a_sibling_says_why_it_is_there_before_it_is_opened(self):
        self.open("small")
        change = self.trees["small"]["nodes"][2]["cause"]["changes"][0]
        note = self.value("document.querySelector('#node-3 .note').innerText")
        self.assertEqual(note, f"instead of #2: static input 1: {change['recorded']} recorded, "
                               f"{change['given']} given")

    def test_details_are_shut_until_asked_for_and_shut_again(self):
        self.open("small")
        self.assertEqual(self.value(OPEN), [False] * 4)
        self.value("document.querySelector('#node-2 summary').click()")
        self.assertEqual(self.value("document.querySelector('#node-2 details').open"), True)
        self.assertEqual(self.value(OPEN).count(True), 1)
        self.value("document.querySelector('[data-open=all]').click()")
        self.assertEqual(self.value(OPEN), [True] * 4)
        self.value("document.querySelector('[data-open=none]').click()")
        self.assertEqual(self.value(OPEN), [False] * 4)

    def test_opened_it_shows_costs_inputs_and_outputs(self):
        self.open("small", fragment="#node-1")
        node = self.trees["small"]["nodes"][0]
        facts = dict(zip(self.value(text_of("#node-1 dt")), self.value(text_of("#node-1 dd"))))
        self.assertEqual(facts["Footprint"], f"{node['footprint_bytes']} B of the pool")
        self.assertEqual(facts["Graph"], "3 nodes, 3 kernels, about 118.8 KiB")
        cells = self.value(text_of("#node-1 .body section:nth-of-type(2) td"))
        self.assertEqual(cells, ["0", "copied", "float32", "{64}", hex(node["inputs"][0]["address"]),
                                 "1", "static", "float32", "{64}", hex(node["inputs"][1]["address"])])
        outputs = self.value(text_of("#node-1 .body section:nth-of-type(3) td"))
        self.assertEqual(outputs[1:], ["slot", "float32", "{64}",
                                       hex(node["outputs"][0]["address"]), "256 B", "free"])

    def test_memory_that_a_recording_refers_to_says_whose_it_is(self):
        self.open("small", fragment="#node-1")
        audit = self.trees["small"]["nodes"][0]["audit"]
        self.assertEqual(self.value(text_of("#node-1 .body section:nth-of-type(4) td:last-child")),
                         [f"{item['words']} word{'s' * (item['words'] != 1)}"
                          for item in audit["memory"]])

    def test_an_output_that_is_held_says_whose_it_is(self):
        self.open("small", fragment="#node-4")
        self.assertEqual(self.value("document.querySelector('#node-4 .line .live').innerText"), "1 held")
        self.assertEqual(
            self.value(text_of("#node-4 .body section:nth-of-type(3) td:last-child"))[-1],
            "held output 0 of encode")

    def test_a_fold_hides_what_follows_and_nothing_else(self):
        self.open("small")
        self.value("document.querySelector('#node-2 > .dot').click()")
        hidden = "[...document.querySelectorAll('.node[hidden]')].map(row => row.id)"
        self.assertEqual(self.value(hidden), ["node-4"])
        self.value("document.querySelector('#node-1 > .dot').click()")
        self.assertEqual(self.value(VISIBLE), 1)
        self.value("document.querySelector('#node-1 > .dot').click()")
        self.assertEqual(self.value(hidden), ["node-4"], "a fold within a fold is kept")
        self.assertEqual(self.value(
            "document.querySelector('#node-2 > .dot').getAttribute('aria-expanded')"), "false")

    def test_a_link_to_a_folded_row_unfolds_and_opens_it(self):
        self.open("small")
        self.value("document.querySelector('#node-1 > .dot').click()")
        self.value("new Promise(done => { addEventListener('hashchange', () => done());"
                   "location.hash = '#node-4'; })")
        self.assertEqual(self.value(VISIBLE), 4)
        self.assertEqual(self.value("document.querySelector('#node-4 details').open"), True)

    def test_the_filter_dims_what_does_not_match(self):
        self.open("small")
        for wanted, dimmed in (("DECO", 2), ("#2", 3), ("none of them", 4), ("", 0)):
            self.value(f"""{{const box = document.querySelector('[type=search]');
                box.value = {json.dumps(wanted)}; box.dispatchEvent(new Event('input'));}}""")
            self.assertEqual(self.value("document.querySelectorAll('.dim').length"), dimmed, wanted)

    def test_functions_say_why_they_were_skipped(self):
        self.open("small")
        text = self.value("document.querySelector('#functions').innerText")
        self.assertIn("capture_failed 1", text)
        self.assertIn("capture of 'sync' failed", text)

    def test_names_are_text_whatever_they_hold(self):
        self.open("hostile")
        self.assertEqual(self.value("document.title"), "hostile.json · cgtree")
        self.assertEqual(self.value(
            "document.querySelectorAll('img, main script:not([type=\"application/json\"])').length"), 0)
        names = self.value("[...document.querySelectorAll('.line b')].map(name => name.textContent)")
        self.assertEqual(names, [node["function"] for node in self.trees["hostile"]["nodes"]])

    def test_an_empty_tree_says_so(self):
        self.open("empty")
        self.assertIn("Nothing is recorded yet", self.value("document.body.innerText"))
        self.assertEqual(self.value("document.querySelector('.tools').hidden"), True)


if __name__ == "__main__":
    unittest.main()
