"""The maps of the pools in a real browser: slots, segments, and the recordings that write each slot."""

import os
import random
import sys
import unittest

sys.path.insert(0, "tests/tools/tree_viewer")

import random_snapshots  # noqa: E402
from viewed_page import ViewedPage  # noqa: E402

SEED = int(os.environ.get("CGTREE_SEED", random.randrange(2**32)))
ON = ("[...document.querySelectorAll('.chips a.on')].filter(chip => chip.closest('.region') === REGION)"
      ".map(chip => Number(chip.dataset.node))")


def overlaps(slot, item):
    return (slot["address"] < item["address"] + item["bytes"]
            and item["address"] < slot["address"] + slot["bytes"])


def writers(tree, slot):
    return sorted(node["id"] for node in tree["nodes"]
                  if any(overlaps(slot, item) for item in node["footprint"]))


class MemoryPageTest(ViewedPage):

    @classmethod
    def make_pages(cls):
        print(f"seed {SEED}")
        cls.view("random", random_snapshots.make(SEED, slots=120, recordings=25))
        cls.view("many", random_snapshots.make(SEED, slots=10_000, recordings=200))
        cls.serve()

    def piece(self, slot):
        return f"""[...document.querySelectorAll('rect.slot[role=option]')].find(piece =>
            piece.getAttribute('aria-label').startsWith('slot {slot["slot"]},'))"""

    def test_each_slot_is_drawn_once_and_says_what_it_is(self):
        for name in ("random", "later"):
            self.open(name)
            labels = self.value("[...document.querySelectorAll('rect.slot[role=option]')]"
                                ".map(piece => piece.getAttribute('aria-label'))")
            slots = self.trees[name]["slots"]
            self.assertEqual(sorted(int(label.split(",")[0].split()[1]) for label in labels),
                             sorted(slot["slot"] for slot in slots))
            by_number = {slot["slot"]: slot for slot in slots}
            for label in labels:
                slot = by_number[int(label.split(",")[0].split()[1])]
                with self.subTest(label=label):
                    if slot["live"] and not slot["workspace"]:
                        self.assertIn(f"held: output {slot['holds']['output']} of "
                                      f"{slot['holds']['function']},", label)
                    else:
                        self.assertIn("workspace" if slot["live"] else "free", label)
                    by = len(writers(self.trees[name], slot))
                    self.assertIn(f"written by {by} recording{'' if by == 1 else 's'}", label)

    def test_segments_are_to_scale_and_slots_lie_where_they_are_in_them(self):
        self.open("random")
        for name, pool in self.trees["random"]["pools"].items():
            segments = pool["segments"]
            if not segments:
                continue
            drawn = self.value(f"""[...[...document.querySelectorAll('.region')]
                .find(region => region.textContent.startsWith('{name.capitalize()}'))
                .querySelectorAll('svg.strip')].map(strip => strip.getBoundingClientRect().width)""")
            self.assertEqual(len(drawn), len(segments))
            largest = max(item["bytes"] for item in segments)
            for width, item in zip(drawn, sorted(segments, key=lambda item: item["address"])):
                self.assertAlmostEqual(width, max(item["bytes"] / largest * max(drawn), 3), delta=1)
        slots = self.value("""[...document.querySelectorAll('rect.slot[role=option]')].map(piece => {
            const [box, strip] = [piece, piece.ownerSVGElement].map(item => item.getBoundingClientRect());
            return [piece.getAttribute('aria-label').split(/[ ,]/)[1], (box.x - strip.x) / strip.width,
                    strip.width]; })""")
        tree = self.trees["random"]
        by_number = {str(slot["slot"]): slot for slot in tree["slots"]}
        for number, part, width in slots:
            slot = by_number[number]
            segment = next(item for item in tree["pools"][slot["region"]]["segments"]
                           if overlaps(slot, item))
            expected = (slot["address"] - segment["address"]) / segment["bytes"]
            self.assertAlmostEqual(part, expected, delta=2 / width)

    def test_a_slot_that_has_the_focus_shows_the_recordings_that_write_it(self):
        self.open("random")
        tree = self.trees["random"]
        for slot in random.Random(SEED).sample(tree["slots"], 20):
            with self.subTest(slot=slot):
                shown = self.value(f"""(() => {{ const piece = {self.piece(slot)}; piece.focus();
                    const REGION = piece.closest('.region'); return {ON}; }})()""")
                self.assertEqual(shown, writers(tree, slot))

    def test_a_recording_that_has_the_focus_shows_the_slots_that_it_writes(self):
        self.open("random")
        tree = self.trees["random"]
        for node in random.Random(SEED).sample(tree["nodes"], 10):
            with self.subTest(node=node["id"]):
                shown = self.value(f"""[...document.querySelectorAll('.region')].flatMap(region => {{
                    const chip = region.querySelector('.chips a[data-node="{node["id"]}"]');
                    if (chip === null) return [];
                    chip.focus();
                    return [...region.querySelectorAll('rect.slot.on')].map(piece =>
                        Number(piece.getAttribute('aria-label').split(/[ ,]/)[1]));
                  }})""")
                self.assertEqual(sorted(shown), sorted(
                    slot["slot"] for slot in tree["slots"] if node["id"] in writers(tree, slot)))

    def test_arrow_keys_walk_a_segment_and_tab_leaves_it(self):
        self.open("random")
        at = "[...document.querySelector('[role=listbox]').children].indexOf(document.activeElement)"
        count = self.value("document.querySelector('[role=listbox]').children.length")
        self.value("document.querySelector('[role=listbox] [tabindex=\"0\"]').focus()")
        self.assertEqual(self.value(at), 0)
        for key, expected in [("ArrowRight", min(1, count - 1)), ("End", count - 1),
                              ("ArrowRight", count - 1), ("ArrowLeft", max(0, count - 2)), ("Home", 0)]:
            self.browser.press(key)
            self.assertEqual(self.value(at), expected, key)
            self.assertEqual(self.value(
                "document.querySelectorAll('[role=listbox]')[0].querySelectorAll('[tabindex=\"0\"]').length"),
                1, "one piece is in the tab order")
        self.browser.press("Tab")
        self.assertEqual(self.value(at), -1)

    def test_the_table_says_of_each_slot_what_the_map_shows(self):
        self.open("random")
        tree = self.trees["random"]
        for region in sorted({slot["region"] for slot in tree["slots"]}):
            rows = self.cells(f"Slots of the {region} region")
            slots = {str(slot["slot"]): slot for slot in tree["slots"] if slot["region"] == region}
            self.assertEqual(sorted(row[0] for row in rows), sorted(slots))
            for row in rows:
                expected = writers(tree, slots[row[0]])
                names = ", ".join(f"#{i}" for i in expected[:8])
                more = f" and {len(expected) - 8} more" if len(expected) > 8 else ""
                self.assertEqual(row[4], names + more or "no recording")

    def test_zoom_goes_to_what_is_used_and_back_to_scale(self):
        self.open("later")
        width = "document.querySelector('svg.strip').getBoundingClientRect().width"
        scale = self.value(width)
        self.value("document.querySelector('[data-zoom=\"2\"]').click()")
        self.assertAlmostEqual(self.value(width), 2 * scale, delta=1)
        self.value("document.querySelector('[data-zoom=\"1\"]').click()")
        self.assertAlmostEqual(self.value(width), scale, delta=1)

    def test_a_workspace_and_blocks_of_eager_calls_are_told_from_outputs(self):
        self.open("later")
        label = "document.querySelector('rect.workspace[role=option]').getAttribute('aria-label')"
        self.assertIn("workspace that a warm-up of decode left", self.value(label))
        self.assertGreater(self.value("document.querySelectorAll('rect.block[role=option]').length"), 0)

    def test_ten_thousand_slots_stay_usable(self):
        self.open("many")
        self.assertEqual(self.value("document.querySelectorAll('rect.slot[role=option]').length"), 10_000)
        spent = self.value("""(() => { const begin = performance.now();
            document.querySelector('.chips a').focus(); document.body.offsetHeight;
            document.querySelector('[role=option]').focus(); document.body.offsetHeight;
            return performance.now() - begin; })()""")
        self.assertLess(spent, 5000, "milliseconds, on a loaded machine; usually 300")


if __name__ == "__main__":
    unittest.main()
