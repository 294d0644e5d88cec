"""A large file fetched by wget while its server is killed: generated, checked as it comes, stored nowhere."""

import os
import signal
import statistics
import subprocess
import threading
import time

import plot
from harness import NATIVE, PROTECTED, Failed, fields, free_port, lasts, need

SLICE_MS = 50
KILLED = "killed"

MODES = (NATIVE, PROTECTED, KILLED)


@lasts(120)
def wget(bench, results):
    """10 GB through wget: natively, protected, and with the server killed half way; each byte checked, the longest silence"""
    need("wget")
    bench.need_compiled("stream")
    size = int(bench.args.gigabytes * 1e9)
    speeds, silences, drawn = ({mode: [] for mode in MODES} for _ in range(3))
    blackouts = []
    for turn in range(min(bench.args.server_rounds, 3)):
        for mode in MODES:
            line, slices, blackout = fetched(bench, mode, size, statistics.median(speeds[PROTECTED]) if mode == KILLED else None)
            seconds = float(line["seconds"])
            speeds[mode].append(size / 1e6 / seconds)
            silences[mode].append(float(line["longest_us"]) / 1000)
            blackouts += blackout
            results.raw("wget", mode, turn, "mb_per_s", speeds[mode][-1])
            results.raw("wget", mode, turn, "longest_silence_ms", silences[mode][-1])
            # The last slice is not a whole one.
            drawn[mode] = drawn[mode] or [(at * SLICE_MS / 1000, mb, mb, mb) for at, mb in enumerate(n / 1e3 / SLICE_MS for n in slices[:-1])]
    native, usual = statistics.median(speeds[NATIVE]), statistics.median(silences[NATIVE])
    for mode in (PROTECTED, KILLED):
        speed, silence = statistics.median(speeds[mode]), statistics.median(silences[mode])
        results.add(
            f"wget of {bench.args.gigabytes:g} GB, {mode}",
            "every byte once",
            f"{native:.0f} MB/s, longest silence {usual:.1f} ms",
            "",
            f"{speed:.0f} MB/s, longest silence {silence:.1f} ms",
            f"{speed / native:.2f} x native's speed",
            "hit",
            f"blackout {statistics.median(blackouts):.1f} ms" if mode == KILLED else "",
        )
        results.compared(f"wget {mode}", f"{speed / native:.0%} of native, longest silence {silence:.1f} ms (native {usual:.1f} ms)")
    results.picture("wget", plot.lines(f"{bench.args.gigabytes:g} GB through wget", "seconds", "MB/s", {mode: of for mode, of in drawn.items() if of}))


def fetched(bench, mode, size, speed):
    """What the checker says, bytes of each slice, and the blackouts."""
    port = free_port()
    kind = NATIVE if mode == NATIVE else PROTECTED
    with bench.start(kind, [bench.path("stream"), "serve", str(port), str(size)], more=["--lag-timeout", "10000"]) as run:
        pid = run.primary()
        run.await_port(port)
        time.sleep(0.2)
        url = f"http://127.0.0.1:{port}/file"
        there = bench.pinned(bench.other_core)
        fetch = subprocess.Popen([need("wget"), "-q", "--tries=1", "--timeout=30", "--no-proxy", "-O", "-", url], stdout=subprocess.PIPE, preexec_fn=there)
        words = [bench.path("stream"), "check", str(size), str(SLICE_MS)]
        check = subprocess.Popen(words, stdin=fetch.stdout, stdout=subprocess.PIPE, text=True, preexec_fn=there)
        fetch.stdout.close()
        limit = 60 + size / 1e7
        killer = threading.Timer(size / 1e6 / speed / 2, os.kill, (pid, signal.SIGKILL)) if mode == KILLED else None
        try:
            if killer:
                run.check_protected()
                killer.start()
            output, _ = check.communicate(timeout=limit)
            if fetch.wait(10):
                raise Failed(f"wget ({mode}) ended with {fetch.returncode}: {run.complaint()}")
        except subprocess.TimeoutExpired:
            raise Failed(f"wget ({mode}) did not end within {limit:.0f} s") from None
        finally:
            if killer:
                killer.cancel()
            for process in (fetch, check):
                if process.poll() is None:
                    process.kill()
                process.wait()
        run.check_protected()
        promoted = [event["blackout_us"] / 1000 for event in run.events() if event["event"] == "promoted"]
    first, *slices = output.splitlines()
    line = fields(first)
    if int(line["wrong"]):
        raise Failed(f"wget ({mode}): {line['bytes']} bytes of {size}, {line['wrong']} words wrong")
    if len(promoted) != (1 if mode == KILLED else 0):
        raise Failed(f"{len(promoted)} failovers ({mode})")
    return line, [int(words) for words in slices], promoted


BENCHMARKS = {"wget": wget}
