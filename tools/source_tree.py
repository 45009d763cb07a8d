"""The repository's own files, for the checks that read all of them."""

import os
import pathlib
import re

CXX = {".h", ".hpp", ".c", ".cc", ".cu", ".cuh", ".inl"}
# Folders that are not part of the sources: outputs, environments, caches.
SKIPPED_DIRECTORIES = {"build", "results", "__pycache__"}
KEPT_HIDDEN_DIRECTORIES = {".ci"}


def _is_ours(name):
    if name.startswith("."):
        return name in KEPT_HIDDEN_DIRECTORIES
    return name not in SKIPPED_DIRECTORIES


def files(root):
    """Returns the sorted paths of files relative to `root`, without symbolic links (bazel-*)."""
    found = []
    for directory, directories, names in os.walk(root):
        directories[:] = [name for name in directories if _is_ours(name)]
        for name in names:
            path = pathlib.Path(directory, name)
            if not path.is_symlink():
                found.append(path.relative_to(root))
    return sorted(found)


# Public structs of options, and their fields.
STRUCT = re.compile(r"^struct (\w+(?:Options|Limits)) \{\n(.*?)^\};", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r"^  (?!using\b|static\b|friend\b|struct\b|enum\b)[^\n;{}()=]*?(?:<[^;=]*>)?[ >*&](\w+)"
                   r"(?:\s*(?:=[^;]*|\{[^;]*\}))?;", re.MULTILINE)


def option_structs(text):
    """Yields (struct, its fields) of a header."""
    text = re.sub(r"//.*", "", text)
    for match in STRUCT.finditer(text):
        body = re.sub(r"\{\n.*?^  \}", "{}", match.group(2), flags=re.MULTILINE | re.DOTALL)
        yield match.group(1), [field.group(1) for field in FIELD.finditer(body)]


# Strict mode of the host device: tests of this tree include it, and it is not installed.
NOT_INSTALLED = {"simulator/strict_memory.h"}


def documented_headers(root):
    """Returns the headers that users may include: pages of docs/ include them, or name their path."""
    path = r"((?:base|interop|allocator|cgtree|extensions|simulator|targets|caching|bindings)/[\w/]+\.(?:h|hpp))"
    found = set()
    for page in [root / "README.md", *(root / "docs").glob("*.md")]:
        text = page.read_text(encoding="utf-8")
        found.update(re.findall(f'#include "{path}"', text), re.findall(f"`{path}`", text))
    return found - NOT_INSTALLED


def real_root():
    """Returns the source tree itself, to which WORKSPACE in a test's runfiles is a link.

    A test that reads the tree in this way sees packages that it does not depend on, including new
    ones.
    It must be tagged "external", which runs it each time, and "local".
    """
    return pathlib.Path(os.path.realpath("WORKSPACE")).parent
