"""What a re-clone costs: how long the program stands still for a new standby, against a plain fork of itself."""

import os
import signal
import subprocess
import time

from harness import NATIVE, PROTECTED, Failed, fields

KILLS = 5
SIZES = (("16 MiB", ["16"]), ("256 MiB", ["256"]), ("1024 MiB", ["1024"]), ("1024 MiB in huge pages", ["1024", "h"]))


def reclone(bench, results):
    """pause of a re-clone by touched memory, against a plain fork of the same process"""
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
        median = sorted(pauses)[len(pauses) // 2]
        limit = 2000 + 25 * int(words[0])
        results.limit(f"re-clone, {what}: the program stands still", f"{limit} us", f"{median:.0f} us", median <= limit, f"{median / fork_us:.2f} times a plain fork ({fork_us:.0f} us)")


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
