"""What a failover looks like: redis killed under load, seen by the supervisor and by a client that counts."""

import os
import random
import signal
import subprocess
import time

from harness import NATIVE, PROTECTED, Failed, fields, free_port, lasts, need
from programs import redis_command

CLIENTS = 4
LOAD_MS = 1200


@lasts(50)
def failover(bench, results):
    """redis killed under load: blackout and the client's longest gap"""
    quiet = [float(counted(bench, NATIVE, turn, results, None)["longest_us"]) for turn in range(3)]
    blackouts, gaps, troubles = [], [], []
    dice = random.Random(1)
    for turn in range(bench.args.kills):
        try:
            blackout, line = killed(bench, turn, results, 0.3 + dice.random() * 0.4)
        except Failed as why:
            troubles.append(str(why))
            continue
        blackouts.append(blackout)
        gaps.append(float(line["longest_us"]))
        if int(line["wrong"]) or int(line["lost"]) or float(line["unanswered_us"]) > 300_000:
            troubles.append(f"wrong answers {line['wrong']}, lost connections {line['lost']}, last wait {float(line['unanswered_us']):.0f} us")
    doubt = "; ".join(sorted(set(troubles)))
    total = bench.args.kills
    results.limit("redis killed under load: every answer once, every connection kept", f"{total} of {total}", f"{total - len(troubles)} of {total}", not troubles, doubt)
    if blackouts:
        results.distribution("blackout_us", blackouts, "death noticed to the first live thread")
        results.distribution("client's longest gap, us", gaps, f"natively, without a kill: {max(quiet):.0f}")


def counted(bench, mode, turn, results, during):
    """The counting client against redis; `during(run)` is called while it runs."""
    port = free_port()
    with bench.start(mode, redis_command(port)) as run:
        run.primary()
        run.await_port(port)
        command = [bench.path("gap"), str(port), str(CLIENTS), str(LOAD_MS)]
        client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=bench.pinned(bench.other_core))
        try:
            if during:
                during(run)
            output, errors = client.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            raise Failed("the counting client did not end") from None
        finally:
            if client.poll() is None:
                client.kill()
                client.communicate()
        if client.returncode:
            raise Failed(f"the counting client: {errors.strip()[-200:]}")
        line = fields(output)
        for figure in ("answers", "wrong", "lost", "longest_us", "unanswered_us"):
            results.raw("failover", mode, turn, figure, float(line[figure]))
        return line


def killed(bench, turn, results, delay_s):
    found = {}

    def kill(run):
        time.sleep(delay_s)
        run.check_protected()
        os.kill(run.primary(), signal.SIGKILL)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and not run.event("promoted"):
            time.sleep(0.01)
        promoted = run.event("promoted")
        if not promoted:
            raise Failed("no promotion within 5 s: " + run.complaint())
        found.update(promoted)

    line = counted(bench, PROTECTED, turn, results, kill)
    for figure in ("blackout_us", "in_doubt", "unsettled"):
        results.raw("failover", PROTECTED, turn, figure, float(found[figure]))
    return float(found["blackout_us"]), line


BENCHMARKS = {"failover": failover}


def smoke(bench):
    """The counting client, against a native redis."""
    try:
        need("redis-server")
    except Failed as why:
        print(f"bench/run --smoke: skipped gap: {why}")
        return
    port = free_port()
    with bench.start(NATIVE, redis_command(port)) as run:
        run.await_port(port)
        line = fields(bench.helper([bench.path("gap"), str(port), "2", "200"], 60))
    if int(line["answers"]) == 0 or int(line["wrong"]) or int(line["lost"]):
        raise Failed(f"the counting client miscounts a native redis: {line}")
