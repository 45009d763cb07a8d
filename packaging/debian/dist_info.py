"""Writes the metadata of the Python package, with the entry point that torch.compile() looks for.

usage: dist_info.py FOLDER
"""

import pathlib
import re
import sys
import tomllib

project = tomllib.loads(pathlib.Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
init = pathlib.Path("python/cgtree/__init__.py").read_text(encoding="utf-8")
version = re.search('^__version__ = "(.*)"', init, re.MULTILINE).group(1)
folder = pathlib.Path(sys.argv[1], f"{project['name']}-{version}.dist-info")
folder.mkdir(parents=True)
(folder / "METADATA").write_text(f"""Metadata-Version: 2.1
Name: {project['name']}
Version: {version}
Summary: {project['description']}
License: {project['license']}
Requires-Python: {project['requires-python']}
""", encoding="utf-8")
(folder / "INSTALLER").write_text("debian\n", encoding="utf-8")
(folder / "entry_points.txt").write_text("".join(
    f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in points.items())
    for group, points in project["entry-points"].items()), encoding="utf-8")
