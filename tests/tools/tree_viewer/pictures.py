"""Makes the pictures of docs/tree_viewer.md, in dark and light: pictures.py FOLDER, run like the tests."""

import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, "tests/tools/tree_viewer")

import chromium  # noqa: E402

PROGRAM = pathlib.Path("tools/tree_viewer/tree_viewer").resolve()
SNAPSHOTS = pathlib.Path("tests/tools/tree_viewer/snapshots").resolve()
# By name: the width of the window, the element to show, and a script to run before.
PICTURES = {
    "memory": (1040, "#memory", "document.querySelector('rect.held[role=option]').focus()"),
    "axes": (1040, ".axis", "document.querySelector('.axis .scroll').style.maxHeight = 'none'"),
    "events": (1260, "#events .drawn", ""),
}


def main(target):
    with tempfile.TemporaryDirectory() as name, chromium.Browser() as browser:
        folder = pathlib.Path(name)
        subprocess.run([SNAPSHOTS, "serving", folder], check=True)
        page = folder / "page.html"
        subprocess.run([PROGRAM, f"--snapshot={folder}/later.json", f"--events={folder}/events.jsonl",
                        f"--html={page}"], check=True)
        for scheme in ("light", "dark"):
            for picture, (width, selector, before) in PICTURES.items():
                browser.open(page, scheme=scheme, width=width)
                browser.evaluate(before)
                browser.screenshot(target / f"tree_viewer_{picture}_{scheme}.png", selector, margin=12)


if __name__ == "__main__":
    main(pathlib.Path(os.environ.get("BUILD_WORKING_DIRECTORY", ""), sys.argv[1]))
