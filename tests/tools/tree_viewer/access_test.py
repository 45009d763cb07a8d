"""The page for keyboards and screen readers: names, roles, headings, order, contrast."""

import sys
import unittest

sys.path.insert(0, "tests/tools/tree_viewer")

from viewed_page import ViewedPage  # noqa: E402

NAMED = {"button", "link", "listbox", "option", "table", "navigation", "region", "searchbox", "textbox",
         "columnheader", "rowheader", "heading", "img", "image", "group", "DisclosureTriangle"}


class AccessTest(ViewedPage):

    @classmethod
    def make_pages(cls):
        cls.run_program("small")
        cls.run_program("hostile")
        cls.run_program("empty")
        cls.serve()

    def tree(self):
        """Returns (role, name, properties) of all nodes that a screen reader sees, in its order."""
        self.value("for (const part of document.querySelectorAll('details')) part.open = true")
        nodes = self.browser.call("Accessibility.getFullAXTree")["nodes"]
        return [(node["role"]["value"], node.get("name", {}).get("value", "").strip(),
                 {item["name"]: item["value"].get("value") for item in node.get("properties", [])})
                for node in nodes if not node["ignored"]]

    def test_everything_that_has_a_role_with_a_name_has_one(self):
        for name in ("small", "hostile", "empty", "later"):
            self.open(name)
            for role, text, properties in self.tree():
                if role in NAMED or properties.get("focusable") and role != "RootWebArea":
                    if (role, properties.get("focusable")) in (("group", None), ("main", True)):
                        continue  # a <details>, and the target of the link to the content
                    self.assertNotEqual(text, "", (name, role, properties))

    def test_headings_skip_no_level(self):
        for name in ("small", "empty", "later"):
            self.open(name)
            levels = [properties["level"] for role, _, properties in self.tree() if role == "heading"]
            self.assertEqual(levels[0], 1)
            self.assertEqual(levels.count(1), 1)
            for above, below in zip(levels, levels[1:]):
                self.assertLessEqual(below, above + 1)

    def test_landmarks_can_be_told_apart_and_hold_all_content(self):
        self.open("later")
        marks = [(role, text) for role, text, _ in self.tree()
                 if role in ("banner", "main", "navigation", "region")]
        self.assertEqual(len(marks), len(set(marks)), marks)
        self.assertLessEqual({"banner", "main", "navigation"}, {role for role, _ in marks})
        self.assertEqual(self.value("""[...document.body.children].filter(item => !item.matches(
            'header, main, nav, section[aria-label], script, .skip-link')).map(item => item.outerHTML)"""), [])

    def test_tables_have_a_caption_and_headings_with_a_scope(self):
        for name in ("small", "later"):
            self.open(name)
            self.assertEqual(self.value("""[...document.querySelectorAll('table')].filter(table =>
                table.caption === null || table.querySelector('th:not([scope])')
                || [...table.rows].some(row => row.cells.length !== table.rows[0].cells.length)
                ).map(table => table.outerHTML.slice(0, 200))"""), [])

    def test_ids_are_there_once_and_references_lead_to_one(self):
        for name in ("small", "hostile", "later"):
            self.open(name)
            ids = self.value("[...document.querySelectorAll('[id]')].map(item => item.id)")
            self.assertEqual(len(ids), len(set(ids)))
            targets = self.value("""[...document.querySelectorAll('[aria-labelledby], a[href]')].map(item =>
                item.getAttribute('aria-labelledby') ?? item.getAttribute('href').slice(1))""")
            self.assertLessEqual(set(targets), set(ids))

    def test_tab_goes_through_the_page_in_its_order_and_shows_where_it_is(self):
        self.open("later")
        last, seen = -1, []
        for _ in range(400):
            self.browser.press("Tab")
            at = self.value("""(() => { const item = document.activeElement;
                if (item === document.body) return null;
                const style = getComputedStyle(item);
                return {index: [...document.querySelectorAll('*')].indexOf(item), tag: item.tagName,
                        shown: style.outlineStyle !== 'none' || style.strokeWidth === '2px'}; })()""")
            if at is None or at["index"] < last:
                break
            self.assertGreater(at["index"], last)
            self.assertTrue(at["shown"], at)
            last = at["index"]
            seen.append(at["tag"])
        self.assertEqual(seen[0], "A", "first the link to the content")
        self.assertLessEqual({"A", "BUTTON", "INPUT", "SUMMARY", "rect"}, set(seen))
        self.assertLess(len(seen), 400)

    def test_text_of_every_part_stands_out_from_its_ground_in_dark_and_light(self):
        """WCAG's contrast, at least 4.5, against the page and against raised surfaces."""
        contrast = """(() => {
          const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
          const luminance = (color) => {
            canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
            const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map(c => c / 255)
                .map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
            return .2126 * r + .7152 * g + .0722 * b;
          };
          const root = getComputedStyle(document.documentElement);
          const grounds = ['--ground', '--raised'].map(name => luminance(root.getPropertyValue(name)));
          return ['.intro', 'nav a', 'caption', 'thead th', 'tbody th', 'td', '.num', '.legend', '.chips a',
                  '.fold summary', '.about', 'figcaption', '.more', '.less', 'body', '.note', '.key', '.live', '.mark',
                  '.failure', 'a', '.static', '.managed']
            .flatMap(name => [...document.querySelectorAll(name)].slice(0, 1).map(item => [name, item]))
            .map(([name, item]) => [name, Math.min(...grounds.map(ground => {
              const ink = luminance(getComputedStyle(item).color);
              return (Math.max(ink, ground) + .05) / (Math.min(ink, ground) + .05); }))]);
        })()"""
        grounds = set()
        for scheme in ("light", "dark"):
            found = {}
            for page in ("small", "later"):
                self.open(page, scheme=scheme)
                found[page] = dict(self.value(contrast))
                for name, value in found[page].items():
                    self.assertGreaterEqual(value, 4.5, (scheme, name))
            self.assertGreaterEqual(len(found["small"] | found["later"]), 22)
            grounds.add(self.value("getComputedStyle(document.body).backgroundColor"))
        self.assertEqual(len(grounds), 2)

    def test_the_parts_can_be_read_without_scripts(self):
        self.open("later", scripts=False)
        root = self.browser.call("DOM.getDocument", depth=-1)["root"]
        page = self.browser.call("DOM.getOuterHTML", nodeId=root["nodeId"])["outerHTML"]
        for text in ("<caption>Slots of the output region</caption>", "<caption>What each function pays</caption>",
                     "<caption>Events by function</caption>", "<caption>Recordings that came</caption>"):
            self.assertIn(text, page)
        self.assertNotIn("<th scope=\"col\"><button", page, "what cannot be pressed is not offered")
        self.assertIn('<div class="tools" hidden="">', page)
        self.assertEqual(page.count('class="node"'), len(self.trees["later"]["nodes"]))


if __name__ == "__main__":
    unittest.main()
