"""What a standby costs by itself: while its program has nothing to do, and while it is busy."""

import time

import programs
import trees
from harness import PROTECTED, Failed, Missing, cpu_exact_s, cpu_s, free_port, lasts

IDLE_SECONDS, BUSY_SECONDS = 8, 5
IDLE_MAX, BUSY_MAX = 0.001, 0.15
"""Wanted: of a core, and of the primary's time."""


def redis_load(bench, port):
    programs.redis_load(bench, port, "set", 60_000)


def memcached_load(bench, port):
    programs.memcached_load(bench, port, 60_000)


SERVERS = {"redis": (programs.redis_command, redis_load), "memcached": (programs.memcached_command, memcached_load)}


@lasts(45)
def standby(bench, results):
    """the standby's own cost: share of a core while redis and memcached are idle, part of the primary's time while they are busy"""
    for name, (command, load) in SERVERS.items():
        try:
            port = free_port()
            with bench.start(PROTECTED, command(port)) as run:
                run.primary()
                run.await_port(port)
                trees.await_tree(run, 1)
                idle(results, run, name)
                busy(bench, results, run, name, port, load)
        except Missing as why:
            results.missing(f"standby of {name}", str(why))
        except Failed as why:
            results.failed(f"standby of {name}", str(why))


def idle(results, run, name):
    time.sleep(1)
    pids = {"standby": run.standby(), "supervisor": run.process.pid}
    before = {who: cpu_exact_s(pid) for who, pid in pids.items()}
    time.sleep(IDLE_SECONDS)
    run.check_protected()
    for who, pid in pids.items():
        share = (cpu_exact_s(pid) - before[who]) / IDLE_SECONDS
        results.raw(f"idle {name}", PROTECTED, 0, f"{who}_core_share", share)
        results.limit(f"idle {name}: {who}'s share of a core", f"<= {IDLE_MAX:.1%}", f"{share:.2%}", share <= IDLE_MAX)


def busy(bench, results, run, name, port, load):
    primary, follower = run.primary(), run.standby()
    before = cpu_s(primary), cpu_s(follower)
    until = time.monotonic() + BUSY_SECONDS
    while time.monotonic() < until:
        load(bench, port)
    # What it has not applied yet belongs to it.
    time.sleep(0.2)
    used = [after - early for early, after in zip(before, (cpu_s(primary), cpu_s(follower)))]
    run.check_protected()
    share = used[1] / used[0]
    results.raw(f"busy {name}", PROTECTED, 0, "standby_cpu_share", share)
    results.limit(f"{name} under load: standby's CPU / primary's", f"<= {BUSY_MAX:.0%}", f"{share:.1%}", share <= BUSY_MAX)


BENCHMARKS = {"standby": standby}
