"""What a re-clone costs: how long the program stands still for a new standby, against a plain fork of itself."""

import os
import signal
import statistics
import subprocess
import time

import plot
from harness import NATIVE, PROTECTED, Failed, fields, lasts

KILLS = 5
SMALL_MIB, SMALL_US, FORKS = 64, 500, 1.3
"""Wanted: of a small process so many microseconds, of a larger one so many times a plain fork."""
SIZES = (("16 MiB", ["16"]), ("256 MiB", ["256"]), ("1024 MiB", ["1024"]), ("1024 MiB in huge pages", ["1024", "h"]))


@lasts(15)
def reclone(bench, results):
    """pause of a re-clone by touched memory, against a plain fork of the same process"""
    drawn = {"pause of the program": [], "plain fork": []}
    for what, words in SIZES:
        command = [bench.path("touched"), *words]
        fork_us = plain_fork(bench, command)
        pauses = []
        with bench.start(PROTECTED, command) as run:
            run.primary()
            time.sleep(0.5)
            for turn in range(KILLS):
                pauses.append(one(run, turn))
                results.raw("reclone", PROTECTED, turn, f"pause_us {what}", pauses[-1])
        results.raw("reclone", NATIVE, 0, f"fork_us {what}", fork_us)
        median = statistics.median(pauses)
        limit = SMALL_US if int(words[0]) < SMALL_MIB else max(SMALL_US, FORKS * fork_us)
        goal = f"{limit:.0f} us" + (f", {FORKS} plain forks" if limit > SMALL_US else "")
        figure = f"{median:.0f} us [{min(pauses):.0f}, {max(pauses):.0f}]"
        results.limit(f"re-clone, {what}: the program stands still", goal, figure, median <= limit, f"{median / fork_us:.2f} times a plain fork ({fork_us:.0f} us)")
        if len(words) == 1:
            drawn["pause of the program"].append((int(words[0]), min(pauses), median, max(pauses)))
            drawn["plain fork"].append((int(words[0]), fork_us, fork_us, fork_us))
    results.picture("reclone", plot.lines("A new standby of a process of so much memory", "MiB, in small pages", "us", drawn, log_x=True, log_y=True))


def plain_fork(bench, command):
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=bench.pinned(bench.primary_core)) as native:
        try:
            return float(fields(native.stdout.readline())["fork_us"])
        finally:
            native.kill()


def one(run, turn):
    """Kills the primary and waits for the next standby: the pause, us."""
    run.check_protected()
    made = [event for event in run.events() if event["event"] == "recloned"]
    os.kill(made[-1]["primary"] if made else run.primary(), signal.SIGKILL)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        made = [event for event in run.events() if event["event"] == "recloned"]
        if len(made) > turn:
            time.sleep(0.2)
            return float(made[turn]["pause_us"])
        time.sleep(0.01)
    raise Failed("no new standby within 10 s: " + run.complaint())


BENCHMARKS = {"reclone": reclone}
