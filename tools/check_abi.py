#!/usr/bin/env python3
"""Checks that programs compiled with the last release's C header run with the present library.

usage: tools/check_abi.py [--update]

bindings/c/abi.txt has the functions, types, fields and enumerators of that release; each must be unchanged. Fields may
be added at the end of structs that state their size, and functions and enumerators anywhere. Prints the differences,
and exits with 1 if a program would notice one. Needs gcc and abidw (abigail-tools).

  --update   writes bindings/c/abi.txt: after a release, or with a new CGT_ABI_VERSION
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).absolute().parents[1]
BASE = ROOT / "bindings/c/abi.txt"
HEADER = ROOT / "bindings/c/c_api.h"
VERSION = re.compile(r"#define CGT_ABI_VERSION (\d+)")


def read_debug_information(header):
    """Returns abidw's description of a library with the header's functions, which are empty."""
    functions = re.sub(r"(CGT_API\b[^;{]*);", r"\1 { __builtin_trap(); }", re.sub(r"//.*", "", header))
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/functions.so"
        # By default enumerations that no function uses would be left out.
        subprocess.run(["gcc", "-std=c99", "-g", "-fno-eliminate-unused-debug-types", "-shared", "-fPIC", "-x", "c", "-",
                        "-o", library], input=functions, text=True, check=True)
        text = subprocess.run(["abidw", "--load-all-types", "--no-show-locs", library], text=True, check=True,
                              stdout=subprocess.PIPE).stdout
    return xml.etree.ElementTree.fromstring(text)


class Types:
    """Spells types by the number that abidw gives them."""

    def __init__(self, corpus):
        self.elements = {element.get("id"): element for element in corpus.iter() if element.get("id")}

    def function(self, element, middle=""):
        parameters = ", ".join("..." if each.get("is-variadic") else self.name(each.get("type-id"))
                               for each in element.findall("parameter"))
        return f"{self.name(element.find('return').get('type-id'))} {middle}({parameters or 'void'})"

    def name(self, number):
        element = self.elements[number]
        if element.tag == "pointer-type-def":
            pointed = self.elements[element.get("type-id")]
            if pointed.tag == "function-type":
                return self.function(pointed, "(*)")
            return f"{self.name(element.get('type-id'))}*"
        if element.tag == "qualified-type-def":
            return f"{self.name(element.get('type-id'))} const"
        if element.tag == "array-type-def":
            return f"{self.name(element.get('type-id'))}[{element.find('subrange').get('length')}]"
        return element.get("name")


def describe(header):
    """Returns {name: description} of a text of bindings/c/c_api.h."""
    corpus = read_debug_information(header)
    types = Types(corpus)
    found = {"abi version": VERSION.search(header).group(1)}
    for element in corpus.iter():
        name = element.get("name", "")
        if element.tag == "enumerator":
            found[f"enumerator {name}"] = element.get("value")
        elif not name.startswith("cgt_"):
            continue
        elif element.tag == "function-decl":
            found[f"function {name}"] = types.function(element)
        elif element.tag == "typedef-decl" and types.name(element.get("type-id")) != name:
            found[f"type {name}"] = types.name(element.get("type-id"))
        elif element.tag == "class-decl" and element.get("size-in-bits"):
            found[f"struct {name}"] = f"{element.get('size-in-bits')} bits"
            for member in element.findall("data-member"):
                field = member.find("var-decl")
                found[f"field {name}.{field.get('name')}"] = (
                    f"{types.name(field.get('type-id'))} at bit {member.get('layout-offset-in-bits')}")
    return found


def bits(text):
    """Returns the size of a struct, or the offset of a field."""
    return int(re.findall(r"\d+", text)[-1])


def differences(base, now):
    """Yields the changes from `base` to `now` that a program would notice."""
    if base["abi version"] != now["abi version"]:
        return  # the loader refuses the library
    sized = {what.partition(" ")[2].removesuffix(".struct_size") for what in base if what.endswith(".struct_size")}
    for what, was in base.items():
        kind, _, name = what.partition(" ")
        if what not in now:
            yield f"{what}: was {was}, and is gone"
        elif kind == "struct" and name in sized:
            if bits(now[what]) < bits(was):
                yield f"{what}: was {was}, and is {now[what]}"
        elif now[what] != was:
            yield f"{what}: was {was}, and is {now[what]}"
    for what in now.keys() - base.keys():
        kind, _, name = what.partition(" ")
        struct = f"struct {name.partition('.')[0]}"
        # An earlier program does not initialize the padding at the end of its struct.
        if kind == "field" and struct in base and bits(now[what]) < bits(base[struct]):
            yield f"{what}: is {now[what]}, inside of what was {struct}: {base[struct]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    now = describe(HEADER.read_text(encoding="utf-8"))
    if options.update:
        BASE.write_text("".join(f"{what}: {how}\n" for what, how in sorted(now.items())), encoding="utf-8")
        return 0
    base = dict(line.split(": ", 1) for line in BASE.read_text(encoding="utf-8").splitlines())
    found = sorted(differences(base, now))
    for line in found:
        print(line)
    if found:
        print("raise CGT_ABI_VERSION, the soname and exports.map with it, or leave this as it was")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
