"""What a longer or shorter lead (`run --lead MS`) costs, and how long nobody answers at a kill."""

import statistics
import subprocess

import blackout
import plot
import programs
import scaling
from harness import NATIVE, PROTECTED, Failed, fields, lasts

LEADS_MS = (0.2, 0.5, 1, 2, 5, 10)
KILLS = 60
THREADS = 16
SERVERS = {"redis": programs.redis_command, "memcached": programs.memcached_command}


@lasts(900)
def lead(bench, results):
    """0.2 to 10 ms that a standby may need for what it is behind: what locks, servers and threads cost, and their blackouts"""
    drawn = {name: [] for name in blackout.SERVERS}
    native = costs(bench, results, NATIVE, ())
    for ms in LEADS_MS:
        more = ["--lead", str(ms)]
        own = costs(bench, results, PROTECTED, more)
        cells = [f"{name} {own[name] / native[name]:.2f} x" for name in own]
        for name in blackout.SERVERS:
            events = blackout.lived(bench, name, KILLS, more)
            values = sorted(float(event["blackout_us"]) / 1000 for event in events if event["event"] == "promoted")
            for turn, value in enumerate(values):
                results.raw(f"{name}, lead {ms} ms", PROTECTED, turn, "blackout_us", value * 1000)
            late = values[int(len(values) * 0.9)]
            cells.append(f"{name} p50 {statistics.median(values):.2f}, p90 {late:.2f} ms")
            drawn[name].append((ms, values[0], statistics.median(values), late))
        results.add(f"a lead of {ms} ms", "none", "", "", "; ".join(cells), "", "-")
    results.picture("lead", plot.lines("Blackouts by the lead", "lead, ms", "blackout, ms", drawn, log_x=True))


def costs(bench, results, mode, more):
    """What -> time of a unit of work: of a lock without a pause, a request's CPU, many threads' sections, and computing ones."""
    found = {}
    for _ in range(min(bench.args.rounds, 3)):
        once = {
            "locks": lambda: locks(bench, mode, more),
            **{name: lambda command=command, name=name: server(bench, mode, more, name, command) for name, command in SERVERS.items()},
            f"{THREADS} threads": lambda: sections(bench, mode, more),
            f"{THREADS} computing": lambda: computing(bench, mode, more),
        }
        for name, measure in once.items():
            found.setdefault(name, []).append(measure())
    for name, values in found.items():
        for turn, value in enumerate(values):
            results.raw(f"{name} {' '.join(more)}", mode, turn, "cost", value)
    return {name: statistics.median(values) for name, values in found.items()}


def locks(bench, mode, more):
    command = [bench.path("lock"), "--pause-us", "0", "--batches", "2000"]
    with bench.start(mode, command, stdout=subprocess.PIPE, more=more) as run:
        return float(fields(run.finish(60))["median_ns"])


def server(bench, mode, more, name, command):
    loads = {
        "redis": lambda port: programs.redis_load(bench, port, "get", 100_000),
        "memcached": lambda port: programs.memcached_load(bench, port, 100_000),
    }
    return programs.server_round(bench, mode, command, {name: loads[name]}, more)[name][0]


def sections(bench, mode, more):
    command = [bench.need_compiled("threads"), str(THREADS), str(scaling.SECTIONS)]
    with bench.start(mode, command, stdout=subprocess.PIPE, more=[*more, *scaling.PATIENT], pinned=False) as run:
        return float(fields(run.finish(120))["wall_s"])


def computing(bench, mode, more):
    """Natively, two side by side: a standby computes as well."""
    command = [bench.need_compiled("burn"), str(THREADS)]
    beside = bench.start(NATIVE, command, pinned=False) if mode == NATIVE else None
    try:
        with bench.start(mode, command, stdout=subprocess.PIPE, more=more, pinned=False) as run:
            pid = run.primary()
            try:
                run.process.wait(2)
            except subprocess.TimeoutExpired:
                subprocess.run(["kill", str(pid)], check=False)
            return 1 / float(fields(run.finish(30))["rounds_per_s"])
    finally:
        if beside:
            beside.__exit__()


BENCHMARKS = {"lead": lead}
