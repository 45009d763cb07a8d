"""Finds definitions by name in C++, CUDA and Python sources, without a compiler.

A definition is a function with its signature, a class, a variable, or a declaration that ends with ';'. Its name is
qualified by classes and never by namespaces: "Footprint::ends_behind" inside its class and after it, "kFields" for a
constant, "_Adviser._on_causes" in Python. A name has no template arguments, and all operators of a class have the name
"Flag::operator". Definitions inside a function are a part of it.
"""

import ast
import collections
import io
import pathlib
import re
import sys
import tokenize

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import source_tree  # noqa: E402

COMMENT_OR_STRING = re.compile(
    r"""(?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)
    | R"(\w*)\(.*?\)\2" | "(?:\\.|[^"\\\n])*" | (?<!\w)(?:u8|[uUL])?'(?:\\.|[^'\\\n])+'""",
    re.DOTALL | re.VERBOSE)
DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)
BRACKET = re.compile(r"[()\[\]{}]")
OPENING = re.compile(r"[(\[{]")
END = re.compile(r"[(\[{;]|\b(?:public|private|protected)\s*:")
CLOSING = {"(": ")", "[": "]", "{": "}"}
# Words before parentheses that are not names of functions.
ATTRIBUTES = re.compile(r"(?:\b(?:alignas|decltype|explicit|noexcept|requires)|__\w+__)\s*\(\)")


def filled(match, mark=" "):
    """Returns a match with each character replaced by a mark, on the same number of lines."""
    return re.sub(r"[^\n]", mark, match[0])


def without_comments(text, is_python):
    """Returns the text with comments replaced by blanks."""
    if not is_python:
        return COMMENT_OR_STRING.sub(lambda match: filled(match) if match["comment"] else match[0], text)
    lines = text.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            (row, column), line = token.start, lines[token.start[0] - 1]
            lines[row - 1] = line[:column] + " " * len(token.string) + line[column + len(token.string):]
    return "".join(lines)


def definitions(text, is_python):
    """Yields (name, begin, end) of each definition of a text without comments.

    Throws ValueError if brackets do not match.
    """
    return python_definitions(text) if is_python else Cxx(text).scan(0, len(text), "")


def python_definitions(text):
    lines = [0, *(match.end() for match in re.finditer("\n", text)), len(text)]

    def walk(nodes, scope):
        for node in nodes:
            names, first = [], node.lineno
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                names = [node.name]
                first = min([first, *(decorator.lineno for decorator in node.decorator_list)])
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                targets = getattr(node, "targets", None) or [node.target]
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            for name in names:
                yield scope + name, lines[first - 1], lines[node.end_lineno]
            if isinstance(node, ast.ClassDef):
                yield from walk(node.body, f"{scope}{node.name}.")

    yield from walk(ast.parse(text).body, "")


class Cxx:
    """A text of C++ or CUDA without comments, and the partners of its brackets."""

    def __init__(self, text):
        bare = COMMENT_OR_STRING.sub(lambda match: filled(match, '"'), text)
        self.text = DIRECTIVE.sub(filled, bare)
        self.partners = {}
        opened = []
        for match in BRACKET.finditer(self.text):
            if match[0] in CLOSING:
                opened.append(match.start())
            elif opened and CLOSING[self.text[opened[-1]]] == match[0]:
                self.partners[opened.pop()] = match.start()
            else:
                opened.append(match.start())
                break
        if opened:
            raise ValueError(f"no partner of {self.text[opened[-1]]} in line {1 + text.count(chr(10), 0, opened[-1])}")

    def scan(self, begin, end, scope):
        """Yields the definitions of a range outside of functions."""
        at = start = begin
        while match := END.search(self.text, at, end):
            at, name = match.end(), ""
            head = self.head(start, match.start())
            if match[0] in CLOSING:
                at = self.partners[match.start()] + 1
                kind, name = kind_of(head) if match[0] == "{" else ("part", "")
                if kind == "part":
                    continue
                if kind == "scope":
                    yield from self.scan(match.end(), at - 1, f"{scope}{name}::" if name else scope)
            elif match[0] == ";":
                name = declared(head)
            if name:
                yield scope + name, at - len(self.text[start:at].lstrip()), at
            start = at

    def head(self, begin, end):
        """Returns a range without template arguments, and without anything between brackets."""
        parts, at = [], begin
        while match := OPENING.search(self.text, at, end):
            parts.append(self.text[at:match.end()])
            at = self.partners[match.start()]
        text = "".join([*parts, self.text[at:end]])
        text = re.sub(r"\boperator\s*(?:\(\)|[^(]*)(?=\()", "operator", text)
        is_changed = True
        while is_changed:
            text, is_changed = re.subn(r"<[^<>]*>", "", text)
        return ATTRIBUTES.sub(" ", text.replace("[[]]", " ").replace("[]", " "))


def kind_of(head):
    """Returns (kind, name) of a '{' after `head`: it begins a "scope", a "function", or a "part" of a statement."""
    if re.match(r'\s*(?:inline\s+)?namespace\b|\s*extern\s*"+\s*$', head):
        return "scope", ""
    is_member = re.search(r"\(\).*[^:]:(?!:)", head, re.DOTALL) and re.search(r"\w\s*$", head)
    if "=" in head or is_member:
        return "part", ""
    if "()" in head:
        return "function", declared(head)
    if match := re.search(r"\b(?:enum\s+class|class|struct|union|enum)\b\s*([\w:]*)", head):
        return "scope", match[1]
    return "part", ""


def declared(head):
    """Returns the name that a head declares, or "" if it has none."""
    match = re.search(r"(\w[\w:]*~?\w*|~\w+)\s*\(\)(?!\s*\()", head)
    if match is None or "=" in head[:match.start()]:
        match = re.search(r"([\w:]+)\s*(?::\s*\w+\s*)?(?:\{\}\s*)?$", head.split("=")[0])
    return match[1].strip(":") if match else ""


def tokens(text):
    """Returns the words and marks of a text, without its blanks."""
    return re.findall(r"\w+|\S", text)


def pattern_of(text):
    """Returns a pattern of the text's tokens, with any blanks and line breaks between them."""
    parts, last = [], ""
    for token in tokens(text):
        is_word = re.match(r"\w", token)
        between = r"\s*" if parts else r"\b" if is_word else ""
        parts.append((r"\s+" if is_word and re.match(r"\w", last) else between) + re.escape(token))
        last = token
    return re.compile("".join(parts) + (r"\b" if re.match(r"\w", last) else ""))


class Sources:
    """The sources below a folder, except those of tests, and their definitions."""

    def __init__(self, root):
        self.texts = {}
        self.faults = []  # a sentence for each file whose definitions cannot be found
        self._codes = {}
        self._places = collections.defaultdict(list)
        for path in source_tree.files(root):
            if path.suffix in source_tree.CXX | {".py"} and path.parts[0] != "tests":
                self._read(path, (root / path).read_text(encoding="utf-8"))

    def _read(self, path, text):
        is_python = path.suffix == ".py"
        self.texts[path] = text
        try:
            code = self._codes[path] = without_comments(text, is_python)
            for name, begin, end in definitions(code, is_python):
                self._places[name].append((path, begin, end))
        except (ValueError, SyntaxError, tokenize.TokenError) as error:
            self.faults.append(f"{path}: {error}")

    def places(self, name, old):
        """Returns the places of `old` in definitions of that name, as (path, begin, end); None without any."""
        if name not in self._places:
            return None
        pattern = pattern_of(old)
        return sorted({(path, *match.span()) for path, begin, end in self._places[name]
                       for match in pattern.finditer(self._codes[path], begin, end)})
