"""Writes the types of the options of contexts and compiled functions, from extensions/watch/option_table.h.

usage: stubs.py TABLE OUT
"""

import re
import sys

TYPES = {"Count": "int", "Time": "float", "Text": "str", "Flag": "bool", "Inverse": "bool",
         "Number": "float"}
# Python makes these options itself, from arguments of compile().
MADE = ("inputs", "outputs", "axes", "keys", "buckets")


def rows(table, name):
    """Returns the rows of one list of the table, as tuples of their columns."""
    body = re.search(rf"#define {name}\(.*?\)((?:.*\\\n)*.*\n)", table).group(1)
    return [tuple(column.strip() for column in row.split(","))
            for row in re.findall(r"(?:FIRST|X)\(([^()]*)\)", body)]


def options(table, name):
    """Returns (name, type) of the options that Python users pass by name."""
    found = []
    for kind, _, python, _ in rows(table, name):
        if kind == "Choice":
            found.append((python, enumeration(python)))
        elif kind in TYPES:
            found.append((python, TYPES[kind]))
        elif kind == "Nested" and python not in MADE:
            raise ValueError(f"{name}: no Python type is known for the option {python}")
    return found


def enumeration(option):
    """Returns the name of the type of an option: AtLimit for at_limit."""
    return "AxisPolicy" if option == "policy" else option.title().replace("_", "")


def stubs(table):
    lines = ['"""Types of options, made from extensions/watch/option_table.h."""', "",
             "from typing import Literal, TypedDict", ""]
    choices = {}
    for name in re.findall(r"#define (CGTREE_\w+)\(X\)", table):
        for enum, _, python, _ in rows(table, name):
            choices.setdefault(enum, []).append(f'"{python}"')
    for enum, names in choices.items():
        if "::" not in enum:
            lines.append(f"{enum} = Literal[{', '.join(names)}]")
    for title, lists in (("ContextOptions", ("CONTEXT", "WATCH", "VERIFY", "AUDIT")),
                         ("CompileOptions", ("COMPILE",))):
        lines += ["", f"class {title}(TypedDict, total=False):"]
        lines += [f"    {option}: {kind} | None" for name in lists
                  for option, kind in options(table, f"CGTREE_{name}_OPTIONS")]
    return "\n".join(lines) + "\n"


def main():
    table, out = sys.argv[1:]
    with open(table, encoding="utf-8") as file:
        text = stubs(file.read())
    with open(out, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main()
