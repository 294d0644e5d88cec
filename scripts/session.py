#!/usr/bin/env python3
"""Records a session in a terminal and draws it as a picture that moves: docs/session.svg, which README shows.

    scripts/session.py [FILE]

What is typed is in STEPS, what is printed comes from what `make build` has made: nothing is drawn that was not on the
screen. Needs tmux and redis. A viewer that does not move pictures, or was told not to (prefers-reduced-motion), shows
the last screen.
"""

import html
import os
import re
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.path.join(os.environ.get("TARGET") or os.path.join(ROOT, "target"), "release")
COLUMNS, ROWS = 112, 21
# A command; what the screen shows when it is done (with the number of the primary as `primary`); seconds to read it.
STEPS = [
    ('understudy run -q -- redis-server --port 6400 --save "" >redis.log &', r"\[1\] \d+", 1.5),
    ("understudy wait redis-server --protected", r"", 1.0),
    ("redis-cli -p 6400 set greeting hello", r"OK", 1.5),
    ("understudy status redis-server", r"guarantee", 4),
    ("kill -KILL {primary}                # the primary dies", r"", 1.5),
    ("redis-cli -p 6400 get greeting   # nothing was on disk", r"hello", 2.5),
    ("understudy wait redis-server --protected", r"", 1.0),
    ("understudy status redis-server | grep -v 'new standby'", r"killed by SIGKILL", 6),
]
TYPED_S = 0.7
PAPER, INK = "#14191b", "#e4e9eb"
COLOURS = {31: "#ff8a80", 32: "#5fd394", 33: "#f2c14e", 34: "#7ab8f5", 36: "#6fd6d6"}
ANSI = re.compile(r"\x1b\[([\d;]*)m")
WIDE, HIGH, EDGE = 7.8, 17, 12


class Terminal:
    """A tmux of its own."""

    def __init__(self, folder):
        self.command = ["tmux", "-S", os.path.join(folder, "socket"), "-f", "/dev/null"]
        state = os.path.join(folder, "state")
        os.mkdir(state, 0o700)
        path = f"{BIN}:{os.environ['PATH']}:/usr/sbin"
        self.environment = dict(os.environ, PATH=path, UNDERSTUDY_DIR=state, PS1="$ ", TERM="xterm-256color", LC_ALL="C.UTF-8")
        self.environment.pop("NO_COLOR", None)
        self.tmux("new-session", "-d", "-s", "0", "-x", str(COLUMNS), "-y", str(ROWS), "-c", folder, "env PS1='$ ' bash --noprofile --norc")
        self.wait(r"^\$$")

    def tmux(self, *words):
        done = subprocess.run([*self.command, *words], env=self.environment, capture_output=True, text=True, check=True)
        return done.stdout

    def screen(self):
        """Its lines, with colours, without the empty ones at the end."""
        return self.tmux("capture-pane", "-p", "-e", "-t", "0").rstrip("\n").split("\n")

    def plain(self):
        return ANSI.sub("", "\n".join(self.screen()))

    def wait(self, pattern, limit_s=30):
        until = time.monotonic() + limit_s
        while not re.search(pattern, self.plain(), re.MULTILINE):
            if time.monotonic() > until:
                raise SystemExit(f"waited in vain for {pattern!r}:\n{self.plain()}")
            time.sleep(0.05)

    def close(self):
        self.tmux("kill-server")


def record(folder):
    """(screen, seconds for which it is shown), in order."""
    terminal = Terminal(folder)
    frames = []
    try:
        for command, wanted, seconds in STEPS:
            if "{primary}" in command:
                primary = re.search(r"^redis-server +\w+ +(\d+)", terminal.plain(), re.MULTILINE).group(1)
                command = command.format(primary=primary)
            terminal.tmux("send-keys", "-t", "0", "-l", command)
            terminal.wait(re.escape(command.rstrip()))
            frames.append((terminal.screen(), TYPED_S))
            terminal.tmux("send-keys", "-t", "0", "Enter")
            terminal.wait(wanted)
            until = time.monotonic() + 30
            while terminal.plain().split("\n")[-1] != "$":
                if time.monotonic() > until:
                    raise SystemExit(f"{command} does not end:\n{terminal.plain()}")
                time.sleep(0.05)
            # The shell says when a job in the background has ended only with its next prompt: nothing of that here.
            frames.append((terminal.screen(), seconds))
    finally:
        stop = [os.path.join(BIN, "understudy"), "stop", "redis-server", "--timeout", "5"]
        subprocess.run(stop, env=terminal.environment, capture_output=True, check=False)
        terminal.close()
    return frames


def line_of(text, at):
    """A line of a screen as text of the picture."""
    parts, colour, bold, end = [], None, False, 0
    spans = [*ANSI.finditer(text), None]
    for found in spans:
        piece = text[end : found.start()] if found else text[end:]
        if piece:
            style = (f' fill="{COLOURS[colour]}"' if colour in COLOURS else "") + (' font-weight="bold"' if bold else "")
            parts.append(f"<tspan{style}>{html.escape(piece, quote=False)}</tspan>" if style else html.escape(piece, quote=False))
        if found:
            end = found.end()
            for code in (int(code or 0) for code in found.group(1).split(";")):
                if code in (0, 39):
                    colour, bold = (None, False) if code == 0 else (None, bold)
                elif code == 1:
                    bold = True
                elif code in COLOURS:
                    colour = code
    return f'<text x="{EDGE}" y="{EDGE + HIGH * (at + 0.8):.1f}">{"".join(parts)}</text>' if parts else ""


def draw(frames):
    whole = sum(seconds for _, seconds in frames)
    wide, high = COLUMNS * WIDE + 2 * EDGE, ROWS * HIGH + 2 * EDGE
    rules, groups, at = [], [], 0.0
    for number, (screen, seconds) in enumerate(frames):
        lines = "".join(line_of(text, row) for row, text in enumerate(screen))
        groups.append(f'<g id="s{number}">{lines}</g>')
        begin, at = at / whole * 100, at + seconds
        end = at / whole * 100
        last = number == len(frames) - 1
        shown = f"0%,{begin:.3f}%{{visibility:hidden}}{begin + 0.001:.3f}%,{end:.3f}%{{visibility:visible}}"
        if number == 0:
            shown = f"0%,{end:.3f}%{{visibility:visible}}"
        after = "" if last else f"{end + 0.001:.3f}%,100%{{visibility:hidden}}"
        rules.append(f"@keyframes k{number}{{{shown}{after}}}#s{number}{{animation:k{number} {whole:.1f}s step-end infinite}}")
        if not last:
            rules.append(f"#s{number}{{visibility:hidden}}")
    said = "A session in a terminal: redis under Understudy is killed, and goes on with its memory"
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high:.0f}" role="img" aria-label="{said}">
<title>{said}</title>
<style>
text{{font:13px ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:{INK};white-space:pre}}
{chr(10).join(rules)}
@media (prefers-reduced-motion:reduce){{g{{animation:none!important}}}}
</style>
<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>
{chr(10).join(groups)}
</svg>
"""


def main():
    file = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "docs/session.svg")
    with tempfile.TemporaryDirectory(prefix="understudy-session-") as folder:
        frames = record(folder)
    with open(file, "w", encoding="utf-8") as out:
        out.write(draw(frames))
    print(f"{file}: {len(frames)} screens, {sum(seconds for _, seconds in frames):.0f} s")


if __name__ == "__main__":
    main()
