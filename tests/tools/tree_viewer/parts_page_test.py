"""Costs, axes, foreign memory, events and changes in a real browser, for a small server."""

import collections
import json
import sys
import unittest

sys.path.insert(0, "tests/tools/tree_viewer")

from viewed_page import ViewedPage, text_of  # noqa: E402


def number(text):
    return int(text.split()[0].replace(",", ""))


class PartsPageTest(ViewedPage):

    @classmethod
    def make_pages(cls):
        cls.serve()
        lines = (cls.folder / "events.jsonl").read_text().splitlines()
        cls.events = [event for event in map(json.loads, lines) if event["event"] != "counters"]
        cls.run_program("hostile")
        # Hostile names in every part that shows names.
        tree = cls.trees["hostile"]
        for i, function in enumerate(tree["functions"]):
            function["axes"] = [{"axis": function["name"], "of_key": True, "policy": "exact",
                                 "sizes": [[3, 4]], "uncounted": 0}]
            tree["nodes"][i]["audit"]["foreign"] = [
                {"kernel": function["name"], "place": function["name"], "address": 1, "memory_address": 0,
                 "memory_bytes": 0, "nodes": 1, "what": function["name"]}]
        lines = [{"event": function["name"], "time_us": i, "context": function["name"], "process": 7,
                  "function": function["name"], "what": function["name"]} for i, function in enumerate(tree["functions"])]
        (cls.folder / "<b>.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (cls.folder / "<i>.json").write_text(json.dumps({**tree, "nodes": [], "current": 0}))
        cls.view("hostile", tree, f"--events={cls.folder}/<b>.jsonl", f"--compare={cls.folder}/<i>.json")

    def listed(self, caption):
        """Returns the ids of the recordings in a table; an empty table is absent."""
        if caption not in self.value(text_of("caption")):
            return set()
        return {int(row[0].split("#")[1]) for row in self.cells(caption)}

    def test_navigation_leads_to_every_part_in_the_order_of_the_page(self):
        self.open("later")
        parts = self.value("[...document.querySelectorAll('main > section')].map(part => '#' + part.id)")
        self.assertEqual(parts, ["#changes", "#why-calls-did-not-replay", "#recordings", "#memory", "#costs", "#axes",
                                 "#foreign-pointers", "#events", "#functions"])
        self.assertEqual(self.value("[...document.querySelectorAll('nav a')].map(link => link.hash)"), parts)

    def test_each_function_pays_what_its_recordings_cost(self):
        self.open("later")
        nodes = collections.defaultdict(list)
        for node in self.trees["later"]["nodes"]:
            nodes[node["function"]].append(node)
        rows = {row[0]: row for row in self.cells("What each function pays")}
        self.assertEqual(set(rows), set(nodes), "functions without recordings pay nothing")
        for name, row in rows.items():
            self.assertEqual(number(row[1]), len(nodes[name]))
            self.assertEqual(number(row[3]), sum(node["replays"] for node in nodes[name]))

    def test_the_least_worth_its_memory_is_first_until_another_order_is_asked_for(self):
        self.open("later")
        keys = """(column) => [...document.querySelectorAll('#costs table')[0].tBodies[0].rows]
            .map(row => Number(row.cells[column].dataset.v))"""
        worth = self.value(f"({keys})(8)")
        self.assertEqual(worth, sorted(worth, reverse=True))
        head = "document.querySelectorAll('#costs table')[0].tHead.rows[0].cells[2]"
        self.value(f"{head}.querySelector('button').click()")
        times = self.value(f"({keys})(2)")
        self.assertEqual(times, sorted(times, reverse=True))
        self.assertEqual(self.value(f"{head}.getAttribute('aria-sort')"), "descending")
        self.value(f"{head}.querySelector('button').click()")
        self.assertEqual(self.value(f"({keys})(2)"), times[::-1])

    def test_an_axis_says_what_is_padded_now_and_what_other_lists_would_pad(self):
        self.open("later")
        function = next(f for f in self.trees["later"]["functions"] if f["name"] == "prefill")
        (axis,) = function["axes"]
        rows = {row[0]: row for row in self.cells("What other lists would pad: prefill: axis 'length'")}
        actual = padded = eager = 0
        for size, count in axis["sizes"]:
            to = next((bucket for bucket in axis["buckets"] if bucket >= size), None)
            eager += count * (to is None)
            actual += size * count * (to is not None)
            padded += (to or 0) * count
        self.assertEqual(rows["as it is"][2:4], [f"{100 * (padded / actual - 1):.1f} %", str(eager)])
        self.assertIn("cheapest, 4 buckets", rows)
        self.assertLess(float(rows["cheapest, 4 buckets"][2].split()[0]), 100 * (padded / actual - 1))
        for size, calls, waste, replays, _ in self.cells("Sizes that the step function sees"):
            if not size.isdigit():
                continue
            below = max([bucket for bucket in axis["buckets"] if bucket < int(size)], default=0)
            those = [pair for pair in axis["sizes"] if below < pair[0] <= int(size)]
            self.assertEqual(number(calls), sum(count for _, count in those))
            actual = sum(size * count for size, count in those)
            self.assertEqual(waste, f"{100 * (int(size) * number(calls) / actual - 1):.1f} %")
            self.assertEqual(number(replays), sum(
                node["replays"] for node in self.trees["later"]["nodes"]
                if node["function"] == "prefill" and node["padded"]["length"] == int(size)))
        came = self.cells("Sizes of prefill: axis 'length' as they came")
        self.assertEqual([[int(row[0]), number(row[1])] for row in came], axis["sizes"])

    def test_foreign_memory_is_listed_once_with_the_recordings_that_refer_to_it(self):
        self.open("later")
        (row,) = self.cells("Foreign pointers")
        foreign = [node for node in self.trees["later"]["nodes"] if node["audit"]["foreign"]]
        self.assertGreater(len(foreign), 1)
        self.assertEqual(row[0], hex(foreign[0]["audit"]["foreign"][0]["memory_address"]))
        self.assertEqual(row[1:4], ["64 KiB", "'axpy'", "parameter 1"])
        for node in foreign[:8]:
            self.assertIn(f"sample #{node['id']}", row[5])

    def test_events_are_counted_by_function_and_drawn(self):
        self.open("later")
        counts = collections.Counter((event.get("function", "(context)"), event["event"]) for event in self.events)
        heads = self.value("""[...document.querySelectorAll('#events table')[0].tHead.rows[0].cells]
                              .map(cell => cell.textContent.replaceAll(' ', '_'))""")
        for row in self.cells("Events by function"):
            self.assertEqual([number(cell) for cell in row[1:]],
                             [counts[row[0], kind] for kind in heads[1:]])
        drawn = self.value("""[...document.querySelectorAll('.timeline :is(.ev, .ev-replay) title')]
                              .map(title => title.textContent)""")
        total = collections.Counter()
        for title in drawn:
            kind, count = title.split(": ")
            total[kind.replace(" ", "_")] += number(count)
        self.assertEqual(total, collections.Counter(event["event"] for event in self.events))

    def test_changes_say_what_came_went_and_grew(self):
        self.open("later")
        before, after = (self.trees[name] for name in ("earlier", "later"))
        old, new = ({node["id"] for node in tree["nodes"]} for tree in (before, after))
        for caption, ids in (("Recordings that came", new - old), ("Recordings that went", old - new)):
            self.assertEqual(self.listed(caption), ids)
        self.assertGreater(len(new - old), 0)
        self.assertGreater(len(old - new), 0)
        totals = {name: (int(was), int(change)) for name, was, change in self.value(
            """[...document.querySelector('#changes table').tBodies[0].rows].map(row =>
               [row.cells[0].textContent, row.cells[1].dataset.v, row.cells[2].dataset.v])""")}
        for name, of in [("Recordings", lambda tree: len(tree["nodes"])),
                         ("Held bytes", lambda tree: tree["live_bytes"]),
                         ("Graph memory", lambda tree: sum(node["estimated_graph_bytes"] for node in tree["nodes"])),
                         *((f"Pool {pool}", lambda tree, pool=pool: tree["pools"][pool]["reserved_bytes"]["current"])
                           for pool in after["pools"])]:
            self.assertEqual(totals[name], (of(before), of(after) - of(before)), name)
        replays = {node["id"]: node["replays"] for node in before["nodes"]}
        idle = {node["id"] for node in after["nodes"] if replays.get(node["id"]) == node["replays"]}
        busy = {node["id"] for node in after["nodes"] if replays.get(node["id"], node["replays"]) != node["replays"]}
        self.assertGreater(len(busy), 0)
        self.assertEqual(self.listed("Recordings that were not replayed in between"), idle)
        rows = {row[0]: row for row in self.cells("Functions that changed")}
        for was, now in zip(before["functions"], after["functions"]):
            self.assertEqual(rows[now["name"]][1].split(),
                             [f"{now['calls']}", f"+{now['calls'] - was['calls']}"])
        pays = {row[0]: row for row in self.cells("What each function pays")}
        for name, row in pays.items():
            self.assertTrue(rows[name][6].startswith(pays[name][7]), "own memory is what it is in Costs")

    def test_names_are_text_in_every_part(self):
        self.open("hostile")
        self.assertEqual(self.value("document.title"), "hostile.json · cgtree")
        self.assertEqual(self.value("document.querySelectorAll('main :is(img, b b, i b, i i)').length"), 0)
        names = [function["name"] for function in self.trees["hostile"]["functions"]]
        text = self.value("document.querySelector('main').textContent")
        for name in names:
            for part in (f"{name}: key '{name}'", f"What other lists would pad: {name}"):
                self.assertIn(part, text)
        self.assertIn("<b>.jsonl", text)
        self.assertIn("Compared with <i>.json", text)

    def test_nothing_is_wider_than_the_window(self):
        for name in ("later", "hostile"):
            for width in (1280, 400):
                self.open(name, width=width)
                self.value("for (const part of document.querySelectorAll('details')) part.open = true")
                self.assertLessEqual(self.value("document.documentElement.scrollWidth"), width, name)


if __name__ == "__main__":
    unittest.main()
