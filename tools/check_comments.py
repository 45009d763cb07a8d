#!/usr/bin/env python3
"""Finds public names without a comment, which the API reference would show without a description.

usage: tools/check_comments.py [--fields] [HEADER...]

Reads the public headers, or the given ones, and prints a line for each type, function, constant and
macro without a comment above or behind it; with --fields also for members of structs and for
enumerators. Exit status: 0 no name was found, 1 some were.

A name has a comment if the line above its declaration is a comment, or if a comment stands behind
it; "The next three ..." is for three names of one kind. These need no comment, because their kind
says it all:
constructors that copy, move or take no arguments, destructors, assignment, defaulted or deleted
functions, overloads of the function above, specialisations, forward declarations, and definitions
of members outside of their class. Names in `detail` are not public, nor are private members.
"""

import argparse
import dataclasses
import pathlib
import re
import sys

import source_tree
from doxygen_filter import behind

ROOT = pathlib.Path(__file__).resolve().parents[1]
TOKEN = re.compile(r'\w+|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|::|\S')
MACRO = re.compile(r"^\s*#\s*define\s+(\w+)")
UNDEFINED = re.compile(r"^\s*#\s*undef\s+(\w+)", re.MULTILINE)
NEXT = re.compile(r"^\s*// The next (\w+) ")
NUMBERS = {word: number for number, word in enumerate(
    ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"), start=2)}
NO_NAMES = {"alignas", "decltype", "explicit", "noexcept", "requires", "__attribute__"}
TYPES = {"class", "struct", "union", "enum"}
HEADERS = ["cgtree/*.h", "cgtree/values/*.h", "bindings/c/c_api.h", "bindings/c/*.hpp", "bindings/torch/*.h",
           "allocator/pool/segment_source.h", "interop/device/graph_api.h",
           "interop/tensor/dtype.h", "interop/tensor/shape.h"]
INCLUDE = re.compile(r'^#include "(.*)"$', re.MULTILINE)
PAIRS = {"(": ")", "[": "]", "{": "}"}


@dataclasses.dataclass(frozen=True)
class Name:
    line: int
    kind: str  # "type", "function", "constant", "field", "enumerator", "macro"
    name: str
    is_commented: bool


@dataclasses.dataclass(frozen=True)
class Token:
    text: str
    line: int


@dataclasses.dataclass
class Scope:
    prefix: str = ""      # "Context::"
    type: str = ""        # the class's name, for a class
    is_public: bool = True
    is_hidden: bool = False  # a specialisation, or in `detail`

    def shows(self):
        return self.is_public and not self.is_hidden


class Header:
    """Finds the names of one header, which clang-format has formatted."""

    def __init__(self, text):
        self.names = []
        self.above = set()   # lines that are a comment
        self.behind = set()  # lines with a comment behind code
        self.column = None   # of the comment behind the code of the line before
        self.counts = {}     # for lines "The next three": 3
        self.left = {}       # the number of further names of a kind that the last such comment describes
        code = []
        in_macro = False
        removed = set(UNDEFINED.findall(text))
        for number, line in enumerate(text.splitlines(), start=1):
            line = self._without_comment(number, line)
            macro = MACRO.match(line)
            if macro and not in_macro and not macro.group(1).endswith("_H_"):
                if macro.group(1) not in removed:
                    self._add(number, number, "macro", macro.group(1))
                removed.add(macro.group(1))  # another definition for another compiler is the same macro
            is_directive = in_macro or line.lstrip().startswith("#")
            in_macro = is_directive and line.rstrip().endswith("\\")
            code.append("" if is_directive else line)
        self.tokens = [Token(match.group(), number) for number, line in enumerate(code, start=1)
                       for match in TOKEN.finditer(line)]
        self.at = 0
        self.previous = ""  # the last function
        self._scope(Scope())

    def _without_comment(self, number, line):
        said = line.lstrip()
        if said.startswith("//"):
            goes_on = self.column == len(line) - len(said)
            if not said.startswith("// ----") and not goes_on:
                self.above.add(number)
                if match := NEXT.match(line):
                    self.counts[number] = NUMBERS.get(match.group(1), 1)
            return ""
        self.column = behind(line)
        if self.column is None:
            return line
        self.behind.add(number)
        return line[:self.column]

    def _add(self, first, last, kind, name):
        if first - 1 in self.above:
            top = first - 1
            while top - 1 in self.above:
                top -= 1
            self.left[kind] = self.counts.get(top, 1)
        left = self.left.get(kind, 0)
        is_commented = left > 0 or not self.behind.isdisjoint(range(first, last + 1))
        self.left[kind] = left - 1
        self.names.append(Name(first, kind, name, is_commented))

    # ---- Tokens -----------------------------------------------------------------------------------

    def _peek(self, ahead=0):
        at = self.at + ahead
        return self.tokens[at].text if at < len(self.tokens) else ""

    def _skip(self):
        """Skips a bracket and everything up to its partner."""
        depth = 0
        while self.at < len(self.tokens):
            text = self._peek()
            depth += (text in PAIRS) - (text in PAIRS.values())
            self.at += 1
            if depth == 0:
                return

    def _skip_angles(self):
        """Skips <...> of a template."""
        depth = 0
        while self.at < len(self.tokens):
            text = self._peek()
            if text in PAIRS:
                self._skip()
                continue
            depth += (text == "<") - (text == ">")
            self.at += 1
            if depth == 0:
                return

    # ---- Declarations -----------------------------------------------------------------------------

    def _scope(self, scope):
        """Reads declarations up to the } that ends the scope."""
        while self.at < len(self.tokens):
            text = self._peek()
            if text == "}":
                self.at += 1
                return
            if text == ";":
                self.at += 1
            elif text in ("public", "private", "protected") and self._peek(1) == ":":
                scope.is_public = text == "public"
                self.at += 2
            elif text in ("namespace", "inline") and "namespace" in (text, self._peek(1)):
                self._namespace(scope)
            elif text == "extern" and self._peek(1).startswith('"') and self._peek(2) == "{":
                self.at += 3
                self._scope(scope)
            elif text.isupper() and "_" in text and self._peek(1) == "(":
                self.at += 1  # a macro invocation
                self._skip()
            else:
                self._declaration(scope)

    def _namespace(self, scope):
        words = []
        while self._peek() not in ("{", ";"):
            words.append(self._peek())
            self.at += 1
        self.at += 1
        if "=" not in words:
            is_hidden = scope.is_hidden or words[-1] in ("detail", "namespace")
            self._scope(Scope(scope.prefix, is_hidden=is_hidden))

    def _declaration(self, scope):
        first = self.tokens[self.at].line
        is_special = False  # template <>
        while self._peek() == "template":
            self.at += 1
            is_special = self._peek(1) == ">"
            self._skip_angles()
        words, is_value, is_body = [], False, False
        while self.at < len(self.tokens):
            text = self._peek()
            last = self.tokens[self.at].line
            if text == ";":
                self.at += 1
                break
            if text == "}":
                break
            if text == "{":
                if words and words[-1] == "requires":
                    self._skip()
                    continue
                if self._type_of(words) and not is_value:
                    self._type(scope, first, last, words, is_special)
                    return
                if is_value or self._is_initializer(words):
                    self._skip()
                    words.append("{}")
                    continue
                self._skip()
                is_body = True
                break
            if text in ("(", "["):
                begin = self.at
                self._skip()
                words.append("".join(token.text + " " for token in self.tokens[begin:self.at]))
                continue
            if text == "<" and words and re.fullmatch(r"\w+", words[-1]) and not is_value:
                begin = self.at
                self._skip_angles()
                words.append("".join(token.text + " " for token in self.tokens[begin:self.at]))
                continue
            is_value = is_value or text == "="
            words.append(text)
            self.at += 1
            if text == "operator" and self._peek() != "(":
                words.append(self._operator())
        if not is_special:
            self._plain(scope, first, last, words, is_body)

    def _operator(self):
        """Returns the tokens between `operator` and its parameters."""
        what = ""
        while self._peek() not in ("(", ""):
            what += self._peek()
            self.at += 1
        return what

    @staticmethod
    def _type_of(words):
        """Returns the position in a head of the type that is defined, or None."""
        for i, word in enumerate(words):
            if word in TYPES:
                return i + 1
            if word.startswith("("):
                return None
        return None

    @staticmethod
    def _is_initializer(words):
        """Returns whether a { after the head initializes a variable, or a member in a
        constructor."""
        if not any(word.startswith("(") for word in words):
            return True
        return ":" in words and re.fullmatch(r"\w+|<.*", words[-1]) is not None

    def _type(self, scope, first, last, words, is_special):
        """Reads the body of a class or an enumeration; self.at is its {."""
        at = self._type_of(words)
        names = [word for word in words[at:] if word not in ("class", "final", "alignas")]
        names = names[:names.index(":")] if ":" in names else names
        while "::" in names:  # a member defined outside of its class
            names = names[names.index("::") + 1:]
        name = names[0] if names and re.fullmatch(r"\w+", names[0]) else ""
        is_partial = len(names) > 1 and names[1].startswith("<")
        shows = scope.shows() and not is_special
        if shows and name and not is_partial:
            self._add(first, last, "type", scope.prefix + name)
        prefix = f"{scope.prefix}{name}::" if name and "typedef" not in words else scope.prefix
        if words[at - 1] == "enum":
            self._enumerators(prefix, shows)
        else:
            self.at += 1
            self._scope(Scope(prefix, name, words[at - 1] != "class",
                              scope.is_hidden or not scope.is_public or is_special))
        while self.at < len(self.tokens) and self._peek() != ";":
            self.at += 1

    def _enumerators(self, prefix, shows):
        self.at += 1
        while self._peek() != "}":
            token = self.tokens[self.at]
            last = token.line
            while self._peek() not in (",", "}"):
                last = self.tokens[self.at].line
                if self._peek() in PAIRS:
                    self._skip()
                else:
                    self.at += 1
            self.at += self._peek() == ","
            if shows:
                self._add(token.line, last, "enumerator", prefix + token.text)
        self.at += 1

    def _plain(self, scope, first, last, words, is_body):
        """Adds a function, a variable or an alias."""
        if not words or not scope.shows() or words[0] in ("friend", "static_assert"):
            return
        if words[0] == "using":
            if "=" in words:
                self._add(first, last, "type", scope.prefix + words[1])
            return
        if words[0] in TYPES and len(words) == 2:
            return  # a forward declaration
        head = words[:words.index("=")] if "=" in words and "operator" not in words else words
        call = next((i for i, word in enumerate(head) if word.startswith("(") and i > 0
                     and head[i - 1] not in NO_NAMES), None)
        if words[0] == "typedef":
            name = re.search(r"\( \* (\w+) \)", " ".join(words))
            self._add(first, last, "type", scope.prefix + (name.group(1) if name else words[-1]))
        elif call is not None and (pointer := re.fullmatch(r"\( \* (\w+) \) ", head[call])):
            self._add(first, last, "field", scope.prefix + pointer.group(1))
        elif call is not None:
            self._function(scope, first, last, words, call)
        else:
            name = next((word for word in reversed(head) if re.fullmatch(r"[A-Za-z_]\w*", word)), "")
            is_constant = "constexpr" in head or not scope.type
            self._add(first, last, "constant" if is_constant else "field", scope.prefix + name)

    def _function(self, scope, first, last, words, call):
        name = words[call - 1]
        if "::" in words[call - 2:call - 1]:
            return
        if "operator" in words[:call + 1]:
            at = words.index("operator")
            what = "".join(words[at + 1:max(call, at + 2)]).replace(" ", "")
            name = f"operator {what}" if what[0].isalpha() else f"operator{what}"
        parameters = words[call]
        is_own = name == scope.type
        if (words[-2:] in (["=", "default"], ["=", "delete"]) or name == "operator="
                or "~" in words[:call] or "->" in words and is_own
                or is_own and (parameters == "( ) " or f"{scope.type} &" in parameters)):
            return
        self._add(first, last, "function", scope.prefix + name)
        if name == self.previous:
            self.names[-1] = dataclasses.replace(self.names[-1], is_commented=True)
        self.previous = name


def missing(text, with_fields):
    """Returns the names of a header's text that have no comment."""
    return [one for one in Header(text).names if not one.is_commented
            and (with_fields or one.kind not in ("field", "enumerator"))]


def public_headers(root):
    """Returns the headers whose names must all have comments: those that programs use."""
    found = {path for pattern in HEADERS for path in root.glob(pattern)}
    found.update(root / name for name in source_tree.documented_headers(root))
    every = (root / "cgtree/cgtree.h").read_text(encoding="utf-8")
    found.update(root / name for name in INCLUDE.findall(every))
    return sorted(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fields", action="store_true", help="members and enumerators, too")
    parser.add_argument("headers", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    headers = options.headers or public_headers(ROOT)
    for header in headers:
        if not header.is_file():
            parser.error(f"{header} is no file: name headers")
    count = 0
    for header in headers:
        shown = header.resolve()
        shown = shown.relative_to(ROOT) if shown.is_relative_to(ROOT) else header
        for one in missing(header.read_text(encoding="utf-8"), options.fields):
            print(f"{shown}:{one.line}: {one.kind} {one.name}")
            count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
