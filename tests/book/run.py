#!/usr/bin/env python3
"""Runs the commands that the documents show, and compares what they print.

    tests/book/run.py [--show] [--systemd] [FILE]...     default: README.md, docs/book/*.md and docs/DEBUGGING.md

A block of ```console is a session. `$ ` begins a command, what follows is its output, and the comment
`<!-- not run: REASON -->` before a block skips it; `<!-- needs: gdb -->` does where there is none. A block that needs systemd is
run with --systemd, and then no other is. Words are compared, and numbers are not: of a process, a time and a size
only that they are there. But `unsettled 0` must be so, and a number alone on its line as well; a number that a command takes from earlier output
(`kill -KILL 5818`) is replaced by the one that was printed there. A line `…` stands for any lines. A command whose output
is another is tried again for some seconds, since servers need a moment; a `kill`, or one that printed a number alone, is not.

Ends with "N passed, N failed, N skipped". Each file gets a folder of its own for groups, and where root runs it a network of
its own, so that the ports of the documents are free. --show prints what was printed.
"""

import glob
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.path.join(os.environ.get("TARGET") or os.path.join(ROOT, "target"), "release")
# A race that is recorded until it fails takes a quarter of a minute, and more where others are at work.
COMMAND_S = 300
AGAIN_S = 10
NUMBER = re.compile(r"(?:0x[0-9a-f]+|\d[\d.:,TZ-]*)(?: (?:B|KiB|MiB|GiB|us|ms|s)\b)?")
KEPT = re.compile(r"unsettled(?: |\":)\d+$")
SKIP = re.compile(r"<!-- not run: (.+) -->")
NEEDS = re.compile(r"<!-- needs: (\S+) -->")
SYSTEMD = "it needs systemd"
APART = "--in-a-network-of-its-own"


class Session:
    """A shell that goes on from command to command."""

    def __init__(self, systemd):
        self.folder = tempfile.mkdtemp(prefix="understudy-book-")
        state = os.path.join(self.folder, "state")
        os.mkdir(state, 0o700)
        path = f"{BIN}:{os.environ['PATH']}:/usr/sbin"
        environment = dict(os.environ, UNDERSTUDY_DIR=state, PATH=path, LC_ALL="C.UTF-8", NO_COLOR="1", TERM="dumb")
        if systemd:
            # Its groups are where they are without being asked.
            del environment["UNDERSTUDY_DIR"]
        self.shell = subprocess.Popen(["bash", "--noprofile", "--norc"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=self.folder, env=environment, start_new_session=True)
        self.environment, self.started, self.printed = environment, 0, {}
        # README's commands begin at the top of the tree, and leave nothing there.
        os.mkdir(os.path.join(self.folder, "target"))
        os.symlink(BIN, os.path.join(self.folder, "target/release"))
        if os.path.isdir(os.path.join(ROOT, "bench/race")):
            shutil.copytree(os.path.join(ROOT, "bench/race"), os.path.join(self.folder, "bench/race"))
        # Root asks nobody.
        if not os.geteuid():
            as_user = 'setpriv --reuid "$2" --regid "$2" --clear-groups "${@:3}"'
            self.run(f'sudo() {{ if [ "$1" = -u ]; then {as_user}; else "$@"; fi; }}')

    def close(self):
        """Ends what this session has started: its groups by name, and its own shell."""
        try:
            names = os.listdir(self.environment["UNDERSTUDY_DIR"])
        except (FileNotFoundError, KeyError):
            names = []
        for name in names:
            subprocess.run(["understudy", "stop", name, "--timeout", "5"], env=self.environment, capture_output=True, check=False)
        # All that it left in the background is in the group of processes that it leads.
        os.killpg(self.shell.pid, signal.SIGKILL)
        self.shell.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, command):
        """What a command prints; None when it does not end."""
        self.started += 1
        end = f"end-of-command-{self.started}"
        if command.rstrip().endswith("&"):
            command = command.rstrip()[:-1] + " </dev/null >>background.log 2>&1 &"
        else:
            command = f"{{ {command}\n}} </dev/null"
        self.shell.stdin.write(f"{command}\necho {end}\n".encode())
        self.shell.stdin.flush()
        out, limit = b"", time.monotonic() + COMMAND_S
        while end.encode() not in out:
            left = limit - time.monotonic()
            if left <= 0 or not select.select([self.shell.stdout], [], [], left)[0]:
                return None
            part = os.read(self.shell.stdout.fileno(), 65536)
            if not part:
                return None
            out += part
        return out.decode(errors="replace").split(end)[0]

    def agrees(self, expected, found):
        """Whether it is the same but for numbers, which are remembered."""
        wanted, got = lines_of(expected), lines_of(found)
        pattern = "\n".join("(?:.*\n)*?.*" if line == "…" else shape(line) for line in wanted)
        if not re.fullmatch(pattern, "\n".join(got)):
            return False
        # Up to any lines, each has its own.
        known = wanted.index("…") if "…" in wanted else len(wanted)
        for before, now in zip(wanted[:known], got):
            self.printed.update(zip(numbers_of(before), numbers_of(now)))
        return True

    def step(self, command, expected, show):
        """None if the output is the same, else what it was."""
        command = re.sub(r"\b\d{3,}\b", lambda number: self.printed.get(number.group(), number.group()), command)
        limit = time.monotonic() + AGAIN_S
        while True:
            found = self.run(command)
            if found is None:
                return f"it did not end in {COMMAND_S} s"
            # A count that is asked for again may be another.
            is_last = command.startswith("kill ") or found.strip().isdigit() or time.monotonic() > limit
            agrees = command.rstrip().endswith("&") or self.agrees(expected, found)
            if show and (agrees or is_last):
                print(f"$ {command}\n{found}", end="")
            if agrees or is_last:
                return None if agrees else found
            time.sleep(0.2)


def lines_of(text):
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return [line for line in lines if line]


def numbers_of(line):
    """Each number of a line at its place: two lines that agree have as many."""
    return [number.strip(".:,-") for number in NUMBER.findall(line)]


def shape(line):
    """A pattern for a line: any number where there is one among words."""
    if line.isdigit():
        return line
    parts, at = [], 0
    for number in NUMBER.finditer(line):
        if KEPT.search(line[: number.end()].rstrip(",")):
            continue
        parts.append(re.escape(line[at : number.start()]))
        parts.append(NUMBER.pattern)
        at = number.end()
    return "".join(parts) + re.escape(line[at:])


def blocks(text):
    """(line, reason for which it is not run, [(command, output)])"""
    found, inside, reason = [], None, None
    for number, line in enumerate(text.splitlines(), 1):
        if inside is not None:
            if line.startswith("```"):
                found.append(inside)
                inside, reason = None, None
            elif inside[2] and inside[2][-1][0].endswith("\\") and not inside[2][-1][1]:
                inside[2][-1][0] += "\n" + line
            elif line.startswith("$ "):
                inside[2].append([re.sub(r"\s{2,}# .*", "", line[2:]), ""])
            elif line.startswith("> ") and inside[2] and not inside[2][-1][1]:
                inside[2][-1][0] += "\n" + line[2:]
            elif inside[2]:
                inside[2][-1][1] += line + "\n"
        elif line.startswith("```console"):
            inside = (number, reason, [])
        elif SKIP.match(line):
            reason = SKIP.match(line).group(1)
        elif NEEDS.match(line):
            needed = NEEDS.match(line).group(1)
            reason = None if shutil.which(needed) else f"there is no {needed}"
        elif line.strip():
            reason = None
    return found


def check(path, show, systemd):
    """(passed, failed, skipped) of one document."""
    counts = [0, 0, 0]
    name = os.path.relpath(path, ROOT)
    with open(path, encoding="utf-8") as file:
        all_blocks = blocks(file.read())
    session = Session(systemd)
    try:
        for line, reason, steps in all_blocks:
            if systemd:
                if not (reason or "").startswith(SYSTEMD):
                    continue
            elif reason:
                print(f"skip  {name}:{line}: {reason}")
                counts[2] += 1
                continue
            for command, expected in steps:
                # Whoever runs this has built it: there would be nothing to do.
                found = None if command == "make build" else session.step(command, expected, show)
                if found is not None:
                    print(f"FAIL  {name}:{line}: $ {command}\n--- the document says\n{expected}--- it printed\n{found}")
                    counts[1] += 1
                    break
            else:
                print(f"pass  {name}:{line}: {len(steps)} commands")
                counts[0] += 1
    finally:
        session.close()
    return counts


def apart():
    """Starts this script again in a network of its own, where that can be had."""
    # What systemd starts is in the machine's own.
    if os.geteuid() or APART in sys.argv or "--systemd" in sys.argv or not shutil.which("unshare") or not shutil.which("ip"):
        return
    if subprocess.run(["unshare", "-n", "ip", "link", "set", "lo", "up"], capture_output=True, check=False).returncode == 0:
        again = 'ip link set lo up && exec "$@"'
        os.execvp("unshare", ["unshare", "-n", "sh", "-c", again, "sh", sys.executable, *sys.argv, APART])


def main():
    apart()
    arguments = [argument for argument in sys.argv[1:] if argument != APART]
    show = "--show" in arguments
    systemd = "--systemd" in arguments
    files = [os.path.abspath(file) for file in arguments if not file.startswith("--")]
    files = files or [
        os.path.join(ROOT, "README.md"),
        *sorted(glob.glob(os.path.join(ROOT, "docs/book/*.md"))),
        *glob.glob(os.path.join(ROOT, "docs/DEBUGGING.md")),
    ]
    os.environ["PATH"] = f"{BIN}:{os.environ['PATH']}"
    counts = [sum(of) for of in zip(*(check(file, show, systemd) for file in files))]
    print(f"{counts[0]} passed, {counts[1]} failed, {counts[2]} skipped")
    return 1 if counts[1] else 0


if __name__ == "__main__":
    sys.exit(main())
