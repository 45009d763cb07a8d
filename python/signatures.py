"""Writes the signatures and docstrings of the extension's entries as rows of C++, from the types in cgtree/_cgtree.pyi.

usage: signatures.py STUB OUT     a row: see Signature in python/extension/object.h
"""

import ast
import json
import sys

SELF = ("self", "cls")


def text_of(call, node):
    """Returns call(names, defaults) -> result, without the types of arguments."""
    arguments = ast.parse("def f(): pass").body[0].args
    for field, values in ast.iter_fields(node.args):
        setattr(arguments, field, values)
    for argument in ast.walk(arguments):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    names = [name for name in ast.unparse(arguments).split(", ") if name not in SELF]
    result = "" if node.returns is None else ast.unparse(node.returns)
    return f"{call}({', '.join(names)})" + (f" -> {result}" if result not in ("", "None") else "")


def row(name, node, doc, call):
    """Returns the row of a function, or of a class with __init__."""
    plain = [item.arg for item in node.args.args if item.arg not in SELF]
    names = plain + [item.arg for item in node.args.kwonlyargs]
    needed = len(plain) - len(node.args.defaults)
    whole = text_of(call, node) + (f"\n\n{doc}" if doc else "")
    flags = [str(rest is not None).lower() for rest in (node.args.vararg, node.args.kwarg)]
    return (f"{{{json.dumps(name)}, {json.dumps(whole)}, {len(names)}, {needed}, {len(plain)}, "
            f"{', '.join(flags)}, {{{', '.join(map(json.dumps, names))}}}}},")


def plain_row(name, doc):
    return f"{{{json.dumps(name)}, {json.dumps(doc or '')}}},"


def rows_of(nodes, prefix=""):
    seen = set()  # of an overloaded function the first form counts
    for node in nodes:
        name = prefix + getattr(node, "name", "")
        if name in seen:
            continue
        seen.add(name)
        doc = ast.get_docstring(node) if isinstance(node, (ast.ClassDef, ast.FunctionDef)) else None
        if isinstance(node, ast.ClassDef):
            made = [item for item in node.body if getattr(item, "name", "") == "__init__"]
            yield row(name, made[0], doc, name) if made else plain_row(name, doc)
            yield from rows_of([item for item in node.body if item not in made], f"{name}.")
        elif isinstance(node, ast.FunctionDef):
            is_property = any(ast.unparse(item) == "property" for item in node.decorator_list)
            yield plain_row(name, doc) if is_property else row(name, node, doc, node.name)


def main():
    stub, out = sys.argv[1:]
    with open(stub, encoding="utf-8") as file:
        rows = list(rows_of(ast.parse(file.read()).body))
    with open(out, "w", encoding="utf-8") as file:
        file.write("// Made by python/signatures.py from python/cgtree/_cgtree.pyi.\n" + "\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
