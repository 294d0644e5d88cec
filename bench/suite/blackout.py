"""How long nobody answers at a kill, over hundreds of them in one group's life."""

import json
import os
import re
import statistics
import subprocess

import plot
from harness import Failed, Missing, lasts

SERVERS = {"redis": (0.5, 2), "memcached": (1.5, 8), "threads16": (2.5, 8)}
"""Name -> wanted median and 99th of a hundred, ms."""

EVERY_MS = "100..300"
"""From one kill to the next, if there is a standby by then."""


@lasts(420)
def blackout(bench, results):
    """500 kills of redis, memcached and threads16 under checked requests: blackout and pause, median and 99th of a hundred"""
    if not os.path.exists(bench.path("kit")):
        raise Missing("the kit is not built beside understudy: `make build`")
    series = {}
    for name, goals in SERVERS.items():
        try:
            events = lived(bench, name)
        except Missing as why:
            results.missing(f"blackout of {name}", str(why))
            continue
        except Failed as why:
            results.failed(f"blackout of {name}", str(why))
            continue
        blackouts = told(results, name, events, "promoted", "blackout_us", goals)
        told(results, name, events, "recloned", "pause_us", None)
        series[name] = [(ms, share, share, share) for ms, share in shares(blackouts)]
    if series:
        results.picture("blackout", plot.lines("Blackouts of one life", "blackout, ms", "% at most so long", series, log_x=True))


def lived(bench, name, kills=None, more=()):
    """The events of one group that is killed again and again, by the kit, whose clients check every answer. `more`: options of `run`."""
    kills = kills or bench.args.blackouts
    events = bench.path(f"life-{name}.events")
    command = [bench.path("kit"), name, "--kills", str(kills), "--every", EVERY_MS, "--timeout", "120"]
    command += ["--understudy", keeper(bench, events, more), "--target", bench.path("kit-target")]
    limit = 120 + kills * 2
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=bench.environment, cwd=bench.root, preexec_fn=bench.unpinned) as kit:
        try:
            output, _ = kit.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            raise Failed(f"the kit did not end within {limit} s") from None
        finally:
            if kit.poll() is None:
                kit.kill()
                kit.communicate()
                # Its clients are gone, and its server is not.
                bench.stop_groups()
    if re.search(r"\b1 skipped", output):
        raise Missing(output.strip().splitlines()[0])
    if kit.returncode:
        raise Failed(" ".join(output.strip().splitlines()[-3:])[-300:])
    with open(events, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def keeper(bench, events, more):
    """A command that is `understudy`, and keeps under another name the events that its caller removes."""
    path = f"{events}-keeper"
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"""#!/bin/sh
before=
for word; do
    if [ "$before" = --events ]; then
        : >>"$word"
        ln -f "$word" '{events}'
    fi
    before=$word
done
[ "$1" = run ] && shift && set -- run {' '.join(more)} "$@"
exec '{bench.understudy}' "$@"
""")
    os.chmod(path, 0o755)
    return path


def told(results, name, events, event, field, goals):
    """One row: median and 99th of a hundred of what the events say; the values, ms, sorted."""
    values = sorted(float(found[field]) / 1000 for found in events if found["event"] == event)
    if not values:
        raise Failed(f"{name}: no event {event}")
    for turn, value in enumerate(values):
        results.raw(name, "protected", turn, field, value * 1000)
    middle, late = statistics.median(values), values[min(len(values) - 1, int(len(values) * 0.99))]
    what = f"{name}, {len(values)} kills: {field.split('_')[0]}"
    figure = f"p50 {middle:.2f} ms, p99 {late:.2f} ms, longest {values[-1]:.2f} ms"
    goal = f"p50 <= {goals[0]} ms, p99 <= {goals[1]} ms" if goals else "none"
    verdict = "-" if goals is None else "hit" if middle <= goals[0] and late <= goals[1] else "**miss**"
    results.add(what, goal, "", "", figure, "", verdict)
    return values


def shares(values):
    """Points of the distribution: so many per cent are at most so long."""
    step = max(1, len(values) // 100)
    for at in range(0, len(values), step):
        yield max(values[at], 0.01), 100 * (at + 1) / len(values)
    yield max(values[-1], 0.01), 100.0


BENCHMARKS = {"blackout": blackout}
