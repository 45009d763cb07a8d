"""cgtree-check: finds stale pointers and lost calls in the CUDA graphs of a program.

    cgtree-check run [--json FILE] [--fail-on=stale,...] PROGRAM [ARGUMENTS]

runs a program with libcgtree_check.so. Each process that uses CUDA prints what was found in it at its end.
"""

import argparse
import contextlib
import errno
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

FAULTS = ("freed", "reused", "unmapped", "refused", "legacy", "pageable", "allocating")
REMARKS = ("recaptured", "leaked", "unlaunched")
GROUPS = {"any": FAULTS, "stale": ("freed", "reused", "unmapped")}
# Exit statuses, beside those of the program.
FOUND = 66
NOT_WATCHED = 67
CANNOT_RUN = 127

HERE = pathlib.Path(__file__).resolve().parent
STATUSES = f"""
The exit status is the program's, or 128 and the number of the signal that ended it. With --fail-on, of a program
that succeeds, it is {FOUND} if there is a finding of these kinds, and {NOT_WATCHED} if nothing could be watched. SIGUSR1 to
the program prints a report while it runs."""


def write(text):
    """Writes on standard error, which may be closed, or a pipe without a reader: the program's status stays."""
    with contextlib.suppress(OSError):
        os.write(2, text.encode(errors="replace"))


def say(line):
    write(f"cgtree-check: {line}\n")


def kinds(text):
    """The kinds of findings that a list with commas names."""
    found = set()
    for word in text.split(","):
        if word not in (*GROUPS, *FAULTS, *REMARKS):
            raise argparse.ArgumentTypeError(f"{word} is none of {', '.join((*GROUPS, *FAULTS, *REMARKS))}")
        found.update(GROUPS.get(word, (word,)))
    return found


def environment(library, folder):
    """The program's: the linker loads the library, and Python the hooks."""
    if set(str(library)) & set(" :"):  # which separate libraries
        link = pathlib.Path(folder, library.name)
        link.symlink_to(library)
        library = link

    def joined(*words):
        return ":".join(str(word) for word in words if word)

    # Nearest to the driver: another library that stands before it, or that must be the first, goes on as without this.
    return {**os.environ, "LD_PRELOAD": joined(os.environ.get("LD_PRELOAD"), library), "CGTREE_CHECK_DIR": folder,
            "PYTHONPATH": joined(HERE / "hooks", os.environ.get("PYTHONPATH"))}


def is_in_foreground():
    """True if a terminal sends its signals to this process, and to the program."""
    try:
        with open("/dev/tty", "rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def run_program(words, environ=None):
    """Runs it, and passes on the signals that this process gets. Returns its status as a shell has it."""
    program, early = None, []

    def pass_on(number, _):
        if program is None:
            early.append(number)
        else:
            program.send_signal(number)

    def unless_sent_to_both(number, frame):
        if not is_in_foreground():
            pass_on(number, frame)

    # Before the program starts, which may be signalled at once. The terminal sends the last two to both. A signal that
    # is ignored, as by nohup, is ignored by the program, too.
    handlers = dict.fromkeys((signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2), pass_on)
    handlers.update(dict.fromkeys((signal.SIGINT, signal.SIGQUIT), unless_sent_to_both))
    for number, handler in handlers.items():
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)
    # The kernel keeps no status of children where this is ignored.
    is_ignored = signal.signal(signal.SIGCHLD, signal.SIG_DFL) == signal.SIG_IGN
    ignore = (lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)) if is_ignored else None
    def start(words):  # open files are passed on: a shell's <(...) is one
        return subprocess.Popen(words, env=environ, close_fds=False, preexec_fn=ignore)

    try:
        program = start(words)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            say(f"{words[0]}: {error.strerror}")
            return CANNOT_RUN
        program = start(["/bin/sh", shutil.which(words[0]) or words[0], *words[1:]])  # a script without #!, as execvp()
    for number in early:
        program.send_signal(number)
    # A wait without a limit may begin just behind a signal, whose handler would run at its end alone. One with a limit polls.
    while program.returncode is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(timeout=60)
    status = program.returncode
    if status < 0:
        say(f"the program was ended by signal {-status}")
    return status if status >= 0 else 128 - status


def write_whole(path, text):
    """Readers see all of the file, or none of it: that of another launcher, if two write it. A device stays."""
    part = path if path.exists() and not path.is_file() else path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    if part != path:
        part.replace(path)


def read_json(text):
    with contextlib.suppress(ValueError):
        return json.loads(text)
    return None


def read_reports(folder):
    """The reports of all processes. One that was killed, or has left by _exit(), has left its findings."""
    reports = []
    for path in sorted(pathlib.Path(folder).glob("*.json*")):
        if path.suffix == ".json":
            reports.append(read_json(path.read_text(encoding="utf-8", errors="replace")))
        elif path.suffix == ".jsonl" and not path.with_suffix(".json").exists():
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            findings = [finding for finding in map(read_json, lines) if finding is not None]
            reports.append({"pid": int(path.stem.partition(".")[0]), "has_ended_early": True, "findings": findings})
    return [report for report in reports if report is not None]


def print_early(report):
    """Prints the findings of a process that could not do so itself."""
    say(f"process {report['pid']} has ended without a report; findings until then: {len(report['findings'])}")
    for finding in report["findings"]:
        write(f"{finding['kind']}:\n{finding['text']}")


def run(options):
    library = options.library.resolve()
    reports = []
    if not library.exists():
        say(f"{library} is not there; the program runs on without it")
        status = run_program(options.program)
    else:
        folder = tempfile.mkdtemp(prefix="cgtree-check-")
        try:
            status = run_program(options.program, environment(library, folder))
            reports = read_reports(folder)
        finally:  # a process that the program left may still write
            shutil.rmtree(folder, ignore_errors=True)
        if not reports:
            say("nothing was watched: no process has used CUDA, or the library has said why")
    for report in reports:
        if report.get("has_ended_early"):
            print_early(report)
    if options.json:
        try:
            write_whole(options.json, json.dumps({"processes": reports}, indent=1) + "\n")
        except OSError as error:
            say(f"{options.json}: {error.strerror}")
    if status != 0 or options.fail_on is None:
        return status
    if not reports:
        return NOT_WATCHED
    has_found = any(finding["kind"] in options.fail_on for report in reports for finding in report["findings"])
    return FOUND if has_found else 0


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="cgtree-check", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("run", help="runs a program and prints what was found", epilog=STATUSES,
                                  usage="cgtree-check run [--json FILE] [--fail-on=KIND,...] PROGRAM [ARGUMENTS]",
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--json", type=pathlib.Path, metavar="FILE", help="gets the reports of all processes")
    command.add_argument("--fail-on", type=kinds, metavar="KIND,...",
                         help="any (of the faults), stale (freed, reused, unmapped), or kinds of the table")
    command.add_argument("--library", type=pathlib.Path, default=HERE / "libcgtree_check.so",
                         help="libcgtree_check.so; the default is beside this package")
    command.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.program = options.program[1:] if options.program[:1] == ["--"] else options.program
    if not options.program:
        command.error("name a program")
    return run(options)
