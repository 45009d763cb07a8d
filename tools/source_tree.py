"""The repository's own files, for the checks that read all of them."""

import os
import pathlib

CXX = {".h", ".c", ".cc", ".cu", ".cuh", ".inl"}
# Not ours: outputs, environments and what a tool left behind.
SKIPPED_DIRECTORIES = {"build", "results", "__pycache__"}
KEPT_HIDDEN_DIRECTORIES = {".ci"}


def _is_ours(name):
    if name.startswith("."):
        return name in KEPT_HIDDEN_DIRECTORIES
    return name not in SKIPPED_DIRECTORIES


def files(root):
    """Paths of regular files relative to `root`, sorted. Symbolic links (bazel-*) are left out."""
    found = []
    for directory, directories, names in os.walk(root):
        directories[:] = [name for name in directories if _is_ours(name)]
        for name in names:
            path = pathlib.Path(directory, name)
            if not path.is_symlink():
                found.append(path.relative_to(root))
    return sorted(found)


def real_root():
    """The source tree itself, from a test's runfiles: WORKSPACE there is a link to the real one.

    A test that reads the tree this way sees packages it does not depend on, and so new ones too;
    in return it must be tagged "external" (run again each time) and "local".
    """
    return pathlib.Path(os.path.realpath("WORKSPACE")).parent
