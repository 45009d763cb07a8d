#!/usr/bin/env python3
"""Plants subtle faults in the library, one at a time, and reports the tests that find them.

mutants.json lists the faults: a function, text that occurs in it exactly once, its replacement, the effect, and the
test programs that should find it, the likeliest first. Names of programs are paths below tests/ with '_' for '/', such
as cgtree_outputs_test. A name of "groups" stands for the programs of the group that are not named before.

A function has the name that definitions.py gives it: "Attempt::settle", without namespaces, or "Report.lines" in
Python. A class, a member or a constant is permitted, too. All definitions of the name outside tests/ count together, in
any file: overloads, a declaration and its body. Blanks, line breaks and comments in the text do not matter. Keep the
text short: the expression or the statement that changes.

  plant.py --check
      checks that the list is true of the sources
  plant.py --copy /tmp/copy --build 'bazel build {labels}' --run 'bazel test {label}' --out score.json
      scores: {labels} are those of all programs of the mutant, {label} is of one. {tests} and {test}
      are the names, for another build. Both commands run in the copy of the working tree, with
      CGTREE_MUTANT_FILE set to the file that was changed.

results/score.json has the known fates; a mutant that is missing there was not planted yet.

Exit status: 0 all is well; 1 a mutant survived that is not argued to be equivalent; 2 the list or
the command line is wrong; 3 the unchanged sources do not build, or their tests fail.
"""

import argparse
import collections
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import definitions

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIST = pathlib.Path(__file__).with_name("mutants.json")
FIELDS = {"id", "function", "old", "new", "breaks", "tests"}


def read_list(path):
    """Returns (mutants, groups) of a file: the "tests" of each mutant are programs alone."""
    text = json.loads(path.read_text())
    groups = text["groups"]
    mutants = [mutant | {"tests": expand(mutant["tests"], groups)} if "tests" in mutant else mutant
               for mutant in text["mutants"]]
    return mutants, groups


def expand(names, groups):
    """Returns the programs of a list of names of programs and groups, each once."""
    return list(dict.fromkeys(test for name in names for test in groups.get(name, [name])))


def problems(mutants, root, groups, sources):
    """Returns the faults of the list, as sentences."""
    found = []
    for name, tests in groups.items():
        if label_of(name, root):
            found.append(f"group {name}: a test program has this name")
        found += [f"group {name}: there is no test program {test}" for test in tests
                  if not label_of(test, root)]
    for name, count in collections.Counter(m.get("id") for m in mutants).items():
        if count > 1:
            found.append(f"{name}: {count} mutants have this id")
    for mutant in mutants:
        name = mutant.get("id")
        if missing := FIELDS - mutant.keys():
            found.append(f"{name}: without {', '.join(sorted(missing))}")
            continue
        places = sources.places(mutant["function"], mutant["old"])
        if places is None:
            found.append(f"{name}: there is no {mutant['function']}")
        elif len(places) != 1:
            found.append(f"{name}: its old text occurs {len(places)} times in {mutant['function']}")
        if definitions.tokens(mutant["old"]) == definitions.tokens(mutant["new"]):
            found.append(f"{name}: changes nothing")
        for test in mutant["tests"]:
            if not label_of(test, root):
                found.append(f"{name}: there is no test program or group {test}")
    return found + sources.faults


def label_of(test, root):
    """Returns "//tests/FOLDER:NAME" if that has a source or a BUILD.bazel that names it, else None."""
    words = test.split("_")
    for i in range(1, len(words)):  # the folder's name may contain a '_'
        folder, rest = root / "tests" / "_".join(words[:i]), "_".join(words[i:])
        build = folder / "BUILD.bazel"
        if (folder / f"{rest}.cc").exists() or (
                build.exists() and f'"{rest}"' in build.read_text()):
            return f"//{folder.relative_to(root).as_posix()}:{rest}"
    return None


def copy_tree(root, copy):
    """Copies the files of the tree that git tracks or would track, except unchanged ones."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=root, text=True,
                            capture_output=True, check=True).stdout.splitlines()
    for name in listed:
        source, target = root / name, copy / name
        if not source.is_file():
            continue
        if target.exists() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


class Planter:
    """Builds and tests in a copy of the tree."""

    def __init__(self, options, sources):
        self.sources = sources
        self.copy = options.copy
        self.build_command = options.build
        self.run_command = options.run
        self.timeout = options.timeout

    def shell(self, command, file, timeout):
        environment = os.environ | {"CGTREE_MUTANT_FILE": file}
        process = subprocess.Popen(command, shell=True, cwd=self.copy, env=environment, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   errors="replace", start_new_session=True)
        try:
            output, _ = process.communicate(timeout=timeout)
            return process.returncode, output
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            return None, "timed out"

    def builds(self, tests, file):
        command = self.build_command.replace("{tests}", " ".join(tests)).replace(
            "{labels}", " ".join(label_of(test, ROOT) for test in tests))
        status, output = self.shell(command, file, None)
        return status == 0, output

    def killer(self, tests, file):
        """Returns the first program that fails and its first failure, or None."""
        for test in tests:
            command = self.run_command.replace("{test}", test).replace(
                "{label}", label_of(test, ROOT))
            status, output = self.shell(command, file, self.timeout)
            if status != 0:
                failed = [line for line in output.splitlines() if line.startswith("[  FAILED  ]")]
                return test, failed[0] if failed else f"status {status}"
        return None, ""

    def score(self, mutant):
        """Returns the mutant's fate as a dict."""
        [(name, start, end)] = self.sources.places(mutant["function"], mutant["old"])
        file, path, text = name.as_posix(), self.copy / name, self.sources.texts[name]
        begin = time.monotonic()
        try:
            path.write_text(text[:start] + mutant["new"] + text[end:])
            is_built, output = self.builds(mutant["tests"], file)
            if not is_built:
                return {"fate": "does not build", "how": output[-400:]}
            test, how = self.killer(mutant["tests"], file)
        finally:
            path.write_text(text)
        fate = "killed" if test else "equivalent" if "equivalent" in mutant else "survived"
        return {"fate": fate, "by": test, "how": how,
                "seconds": round(time.monotonic() - begin, 1)}


def fail(status, lines):
    print("\n".join(lines), file=sys.stderr)
    sys.exit(status)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", type=pathlib.Path, default=LIST, help="default: mutants.json")
    parser.add_argument("--check", action="store_true", help="check the list and stop")
    parser.add_argument("--copy", type=pathlib.Path, help="where to copy the tree to")
    parser.add_argument("--build", help="the command that builds {labels}, or {tests}")
    parser.add_argument("--run", help="the command that runs {label}, or {test}")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one program")
    parser.add_argument("--only", default="", help="the ids to plant, with commas between them")
    parser.add_argument("--out", type=pathlib.Path, help="the score, as JSON; what it has is kept")
    parser.add_argument("--no-baseline", action="store_true",
                        help="do not build and run the programs without a mutant first")
    options = parser.parse_args()
    mutants, groups = read_list(options.list)
    sources = definitions.Sources(ROOT)
    if found := problems(mutants, ROOT, groups, sources):
        fail(2, found)
    if options.check:
        print(f"{len(mutants)} mutants, each true of the sources")
        return
    if not (options.copy and options.build and options.run):
        parser.error("--copy, --build and --run are needed, or --check")
    if wanted := set(filter(None, options.only.split(","))):
        mutants = [m for m in mutants if m["id"] in wanted]
        if unknown := wanted - {m["id"] for m in mutants}:
            fail(2, [f"there is no mutant {name}" for name in sorted(unknown)])
    copy_tree(ROOT, options.copy)
    planter = Planter(options, sources)
    if not options.no_baseline:
        tests = sorted({test for mutant in mutants for test in mutant["tests"]})
        is_built, output = planter.builds(tests, "")
        test, how = planter.killer(tests, "") if is_built else ("the build", output[-2000:])
        if test:
            fail(3, [f"{test} fails without a mutant: {how}"])
    scores = {}
    if options.out and options.out.exists():
        scores = json.loads(options.out.read_text())
    for mutant in mutants:
        scores[mutant["id"]] = score = planter.score(mutant)
        print(f"{mutant['id']}: {score['fate']} {score.get('by') or ''} {score['how'][:100]}",
              flush=True)
        if options.out:
            options.out.write_text(json.dumps(scores, indent=1) + "\n")
    fates = collections.Counter(scores[m["id"]]["fate"] for m in mutants)
    print(", ".join(f"{count} {fate}" for fate, count in sorted(fates.items())))
    if fates.keys() - {"killed", "equivalent"}:
        sys.exit(1)


if __name__ == "__main__":
    main()
