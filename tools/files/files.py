"""Files named by the user of a tool; files that a tool writes are written whole or not at all."""

import argparse
import contextlib
import os
import pathlib
import stat


class CannotWrite(Exception):
    """Names the file, and the reason."""


def user_path(text):
    """Returns a path relative to the caller's folder, which `bazel run` names."""
    if not text:
        raise argparse.ArgumentTypeError("it names no file")
    return pathlib.Path(os.environ.get("BUILD_WORKING_DIRECTORY", ""), text)


def _target(path):
    """Returns the file that a path leads to. Renaming over a link, device or folder would replace it."""
    target = path.resolve()
    if target.is_dir():
        raise CannotWrite(f"cannot write '{path}': it is a folder")
    if target.exists() and not stat.S_ISREG(target.stat().st_mode):
        raise CannotWrite(f"cannot write '{path}': it is not a regular file")
    return target


def write_all(texts, keep):
    """Writes each (path, text): to temporary files beside the targets, then renamed over them.

    No path may be one of the files `keep`, and no two may be the same. Raises CannotWrite; then no target has changed
    unless a rename itself failed.
    """
    with contextlib.ExitStack() as stack:
        done, written = {path.resolve(): path for path in keep}, []
        for path, text in texts:
            try:
                target = _target(path)
                if target in done:
                    raise CannotWrite(f"cannot write '{path}': it is also '{done[target]}'")
                done[target] = path
                temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
                stack.callback(temporary.unlink, missing_ok=True)
                temporary.write_text(text, encoding="utf-8", errors="replace", newline="\n")  # halves of pairs
                written.append((temporary, target))
            except (OSError, RuntimeError) as error:  # RuntimeError: a cycle of links
                raise CannotWrite(f"cannot write '{path}': {_why(error)}") from None
        for temporary, target in written:
            try:
                os.replace(temporary, target)
            except OSError as error:
                raise CannotWrite(f"cannot write '{target}': {_why(error)}") from None


def _why(error):
    return getattr(error, "strerror", None) or str(error)
