#!/usr/bin/env python3
"""Prints a header with its comments as Doxygen reads them: docs/Doxyfile calls it for each header.

A comment above a declaration begins with /// and a comment behind it with ///<. The comment at the head of a file
belongs to the file. Code in a comment follows an empty line, three columns or more behind the slashes. Declarations in
`detail`, and specialisations of other libraries' templates, become empty lines.
"""

import argparse
import pathlib
import re
import sys

COMMENT = re.compile(r"^(\s*)//(?!/)(.*)$")
BAR = re.compile(r"^\s*// ----")
NUMBERED = re.compile(r"^ +(\d+\. )")
HIDDEN = re.compile(r"^namespace detail \{$.*?^\}  // namespace detail$|^template <>\n\w+ fmt::.*?^\};$",
                    re.MULTILINE | re.DOTALL)
TEXT = re.compile(r'"(?:\\.|[^"\\])*"')


def behind(line):
    """Returns the column of a comment behind code, or None."""
    at = TEXT.sub(lambda found: "x" * len(found.group()), line).find("//")
    return at if at > 0 and line[:at].strip() else None


def filtered(text):
    lines, column = [], None  # column: of the comment behind the code of the line before
    is_code, last = False, ""
    text = HIDDEN.sub(lambda found: "\n" * found.group().count("\n"), text)
    for number, line in enumerate(text.splitlines()):
        at = behind(line)
        comment = COMMENT.match(line)
        if BAR.match(line) or line.lstrip().startswith("#"):
            column = None
        elif comment:
            indent, said = comment.groups()
            mark = "///<" if column == len(indent) else "///"
            is_code = said.startswith("   ") and (is_code or last == "") and not NUMBERED.match(said)
            last = said
            said = NUMBERED.sub(r"  \1", said)
            line = f"{indent}{mark}{'  ' if is_code else ''}{said}"
            if number == 0:
                lines.append("/// @file")
        else:
            column = at
            if at is not None:
                line = f"{line[:at]}///<{line[at + 2:]}"
        lines.append(line)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("header", type=pathlib.Path)
    header = parser.parse_args().header
    if not header.is_file():
        parser.error(f"{header} is no file: name a header")
    sys.stdout.write(filtered(header.read_text(encoding="utf-8")))
