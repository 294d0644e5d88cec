"""What a recording costs beside a live standby, how large it is, and how fast it is replayed."""

import json
import os
import statistics
import subprocess
import time

import programs
from harness import NATIVE, PROTECTED, RECORDED, Failed, free_port, lasts, need

INPUT_MB = 2048
"""Input of one run, in reads of 1 MiB: incompressible, so nothing is won by compression."""


@lasts(120)
def recording(bench, results):
    """CPU of a recorded server against a protected one; input taken; replay against the original; sizes"""
    costs(bench, results, "redis", programs.redis_command, {"SET": lambda port: programs.redis_load(bench, port, "set", 250_000)})
    taken(bench, results)
    replayed(bench, results)
    served(bench, results)


def inspected(bench, results, what, path, per=None):
    """A row of what a recording holds: the papers' kinds of message (document 000, figures 6.3, 6.8 to 6.10, 6.15 to 6.17)."""
    done = subprocess.run([bench.understudy, "inspect", "--json", path], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"inspect: {done.stderr[-200:]}")
    said = json.loads(done.stdout)
    parts = []
    for name, count in sorted(said["by_message"].items(), key=lambda item: -item[1]["events"]):
        results.raw(what, name, 0, "events", count["events"])
        results.raw(what, name, 0, "bytes", count["bytes"])
        parts.append(f"{name} {count['events'] / said['events']:.1%}")
    results.raw(what, "-", 0, "bytes_file", said["bytes_file"])
    each = f"; {said['bytes_file'] / per:.1f} B a request" if per else ""
    mib = f"{said['bytes_raw'] / 2**20:.1f} MiB in the rings, {said['bytes_file'] / 2**20:.1f} in the file"
    results.add(what, "", "", "", "", f"{said['events']} events", "", f"{mib}{each}; {', '.join(parts)}")


def served(bench, results):
    """What a million requests leave behind."""
    for name, command, load in (
        ("redis SET", programs.redis_command, lambda port: programs.redis_load(bench, port, "set", 250_000)),
        ("memcached", programs.memcached_command, lambda port: programs.memcached_load(bench, port)),
    ):
        port = free_port()
        path = os.path.join(bench.folder, "served")
        with bench.start(RECORDED, command(port), file=path) as run:
            run.await_port(port)
            requests, _ = load(port)
        inspected(bench, results, f"log of {name}", path, requests)
        os.remove(path)


def costs(bench, results, label, command, loads):
    per_request = {(name, mode): [] for name in loads for mode in (PROTECTED, RECORDED)}
    for turn in range(bench.args.server_rounds):
        for mode in (PROTECTED, RECORDED):
            for name, (used_us, per_s) in programs.server_round(bench, mode, command, loads).items():
                per_request[name, mode].append(used_us)
                results.raw(f"{label} {name} recorded", mode, turn, "cpu_us_per_request", used_us)
                results.raw(f"{label} {name} recorded", mode, turn, "requests_per_s", per_s)
    for name in loads:
        live, recorded = (statistics.median(per_request[name, mode]) for mode in (PROTECTED, RECORDED))
        pairs = [b / a for a, b in zip(per_request[name, PROTECTED], per_request[name, RECORDED])]
        spread = f"pairs {min(pairs):.2f} to {max(pairs):.2f}"
        verdict = "within" if recorded / live <= 1.03 else "MISSED"
        results.add(f"{label} {name}: CPU a request, recorded against protected", "at most 1.03", "", "", f"{live:.2f} us", f"{recorded / live:.3f}", verdict, spread)


def taken(bench, results):
    """A program that reads all it can: what the recorder takes a second, with its file in memory."""
    source = os.path.join(bench.state, "input")
    with open(source, "wb") as file:
        for _ in range(64):
            file.write(os.urandom(1 << 20))
    command = [need("cat")] + [source] * (INPUT_MB // 64)
    speeds = {}
    for mode in (NATIVE, RECORDED):
        started = time.monotonic()
        with bench.start(mode, command, file=os.path.join(bench.state, "recording")) as run:
            if run.process.wait(120):
                raise Failed(f"cat ({mode}) failed: {run.complaint()}")
        speeds[mode] = INPUT_MB / (time.monotonic() - started)
        results.raw("input", mode, 0, "mb_per_s", speeds[mode])
    os.remove(os.path.join(bench.state, "recording"))
    os.remove(source)
    verdict = "within" if speeds[RECORDED] >= 500 else "MISSED"
    results.add("input of a recorded cat", "at least 500 MB/s", f"{speeds[NATIVE]:.0f} MB/s", "", f"{speeds[RECORDED]:.0f} MB/s", "", verdict, "")


def replayed(bench, results):
    """A program that computes: the replay may take as long as the recorded run, and no longer."""
    path = bench.path("text")
    with open(path, "wb") as file:
        file.write(os.urandom(8 << 20))
    for threads in (2, 4, 8, 16):
        name = os.path.join(bench.folder, f"pbzip2-{threads}")
        command = [need("pbzip2"), f"-p{threads}", "-k", "-c", "-b1", path]
        started = time.monotonic()
        with bench.start(RECORDED, command, file=name) as run:
            if run.process.wait(120):
                raise Failed(f"pbzip2 failed: {run.complaint()}")
        original = time.monotonic() - started
        started = time.monotonic()
        done = subprocess.run([bench.understudy, "replay", name], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=bench.environment, check=False, timeout=120)
        again = time.monotonic() - started
        if done.returncode:
            raise Failed(f"the replay of pbzip2 failed: {done.stderr.decode()[-200:]}")
        results.raw(f"pbzip2 -p{threads}", RECORDED, 0, "seconds", original)
        results.raw(f"pbzip2 -p{threads}", "replay", 0, "seconds", again)
        results.raw(f"pbzip2 -p{threads}", RECORDED, 0, "bytes", os.path.getsize(name))
        verdict = "within" if again <= original else "MISSED"
        inspected(bench, results, f"log of pbzip2 -p{threads}", name)
        size = f"{os.path.getsize(name) / 1e6:.1f} MB of which the input is {os.path.getsize(path) / 1e6:.1f}"
        results.add(f"replay of pbzip2 -p{threads}", "at most 1", "", "", f"{original:.2f} s", f"{again / original:.2f}", verdict, size)


BENCHMARKS = {"recording": recording}
