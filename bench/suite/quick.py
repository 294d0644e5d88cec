"""The ratios to native in three minutes, each with its spread over interleaved rounds, and published figures beside them."""

import csv
import os
import random
import statistics
import time

import failover
import micro
import programs
from harness import NATIVE, PROTECTED, Failed

ROUNDS_MIN = 3
"""Fewer say nothing of a spread."""

REQUESTS = 60_000

PUBLISHED = (
    ("FT-Linux, throughput", "within 20 % of native", "Mongoose with a page of 10 KB, below some 1500 requests a second; beyond that it drops sharply"),
    ("FT-Linux, failover", "about 5 s", "no bytes in the transfer of a large file; 99 % of it loads the driver of the network card, which a copy on the same kernel need not"),
    ("CRANE, five servers", "34.19 % over native, mean", "Apache, Mongoose, ClamAV, MediaTomb, MySQL, with consensus between machines"),
)
"""Of other machines, programs and faults: orders of magnitude compare, digits do not."""


class Silent:
    """Takes the raw figures of a round and keeps none: the ratios of the rounds are written."""

    def raw(self, *_):
        pass


def operations(bench):
    """What one operation costs, ns."""
    for name, program, options in (
        ("lock + unlock", "lock", []),
        ("clock_gettime", "clock", []),
        ("getppid", "getppid", []),
        ("read 64 B", "read", []),
        ("write 64 B", "write", []),
    ):
        yield name, "ns", tuple(float(micro.once(bench, mode, program, options)["min_ns"]) for mode in (NATIVE, PROTECTED))


def redis(bench):
    """CPU of redis a request, us."""
    loads = {kind: lambda port, kind=kind: programs.redis_load(bench, port, kind, REQUESTS) for kind in ("get", "set")}
    native, protected = (programs.server_round(bench, mode, programs.redis_command, loads) for mode in (NATIVE, PROTECTED))
    for kind in loads:
        yield f"redis {kind.upper()}: CPU a request", "us", (native[kind][0], protected[kind][0])
        yield f"redis {kind.upper()}: time a request", "us", (1e6 / native[kind][1], 1e6 / protected[kind][1])


def memcached(bench):
    """CPU of memcached a request, us."""
    loads = {"get/set": lambda port: programs.memcached_load(bench, port, REQUESTS)}
    native, protected = (programs.server_round(bench, mode, programs.memcached_command, loads) for mode in (NATIVE, PROTECTED))
    yield "memcached: CPU a request", "us", (native["get/set"][0], protected["get/set"][0])


class Quick:
    """One round of everything after the other, until the time is over."""

    def __init__(self, bench, budget_s):
        self.bench, self.budget_s = bench, budget_s
        self.pairs, self.units = {}, {}
        self.blackouts, self.gaps, self.lost = [], [], []
        self.rounds = 0

    def run(self):
        began, longest = time.monotonic(), 0.0
        dice = random.Random(1)
        while self.rounds == 0 or time.monotonic() - began + longest < self.budget_s:
            started = time.monotonic()
            for part in (operations, redis, memcached):
                self.part(part)
            self.kill(0.3 + dice.random() * 0.4)
            self.rounds += 1
            longest = max(longest, time.monotonic() - started)
        self.took_s = time.monotonic() - began

    def part(self, part):
        try:
            for name, unit, pair in part(self.bench):
                self.pairs.setdefault(name, []).append(pair)
                self.units[name] = unit
        except Failed as why:
            self.lost.append(f"{part.__name__}: {why}")

    def kill(self, delay_s):
        try:
            blackout, line = failover.killed(self.bench, self.rounds, Silent(), delay_s)
        except Failed as why:
            self.lost.append(f"failover: {why}")
            return
        if int(line["wrong"]) or int(line["lost"]):
            self.lost.append(f"failover: wrong answers {line['wrong']}, lost connections {line['lost']}")
        self.blackouts.append(blackout)
        self.gaps.append(float(line["longest_us"]))

    def table(self):
        lines = [
            "| what | native | protected | ratio | lowest to highest round | spread | rounds |",
            "|---|---|---|---|---|---|---|",
        ]
        for name, pairs in self.pairs.items():
            native, protected = (statistics.median(of) for of in zip(*pairs))
            ratios = ratios_of(pairs)
            ratio = statistics.median(ratios)
            spread = (max(ratios) - min(ratios)) / ratio
            unit = self.units[name]
            few = " (too few)" if len(ratios) < ROUNDS_MIN else ""
            lines.append(f"| {name} | {native:.1f} {unit} | {protected:.1f} {unit} | {ratio:.2f} x | {min(ratios):.2f} to {max(ratios):.2f} | {spread:.0%} | {len(ratios)}{few} |")
        for name, values in (("failover of redis: blackout", self.blackouts), ("failover of redis: a client's longest gap", self.gaps)):
            if values:
                few = " (too few)" if len(values) < ROUNDS_MIN else ""
                lines.append(f"| {name} |  | {statistics.median(values) / 1000:.2f} ms |  | {min(values) / 1000:.2f} to {max(values) / 1000:.2f} ms |  | {len(values)}{few} |")
        return "\n".join(lines)

    def text(self):
        spreads = [(max(of) - min(of)) / statistics.median(of) for of in map(ratios_of, self.pairs.values()) if len(of) >= ROUNDS_MIN]
        parts = ["# Ratios to native\n", self.table() + "\n"]
        if spreads:
            parts.append(
                f"{self.rounds} rounds in {self.took_s:.0f} s. Between rounds the ratios of one row differ by {statistics.median(spreads):.0%} "
                f"(median of the rows; at most {max(spreads):.0%}). A difference below its row's spread says nothing.\n"
            )
        if self.bench.load_before > 0.5:
            parts.append(f"**Doubt about everything: the machine was not idle before the run (load {self.bench.load_before:.2f}).**\n")
        parts += [f"Lost: {why}.\n" for why in self.lost]
        parts.append("## Published figures beside them\n\n| system | figure | of what |\n|---|---|---|")
        parts += [f"| {system} | {figure} | {what} |" for system, figure, what in PUBLISHED]
        parts.append("\nOther machines, programs and faults: orders of magnitude compare, digits do not.")
        return "\n".join(parts) + "\n"

    def write(self, folder):
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "ratios.csv"), "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("what", "unit", "round", "native", "protected", "ratio"))
            for name, pairs in self.pairs.items():
                writer.writerows((name, self.units[name], turn, native, protected, protected / native) for turn, (native, protected) in enumerate(pairs))
            for name, values in (("blackout", self.blackouts), ("longest gap", self.gaps)):
                writer.writerows((name, "us", turn, "", value, "") for turn, value in enumerate(values))
        with open(os.path.join(folder, "ratios.md"), "w", encoding="utf-8") as file:
            file.write(self.text())


def ratios_of(pairs):
    return [protected / native for native, protected in pairs]


def smoke(bench):
    """No round, only the writing, with made-up figures."""
    made = Quick(bench, 0)
    made.pairs, made.units = {"made up": [(2.0, 3.0)] * ROUNDS_MIN}, {"made up": "ns"}
    made.blackouts, made.gaps, made.rounds, made.took_s = [100.0], [200.0], ROUNDS_MIN, 1.0
    made.write(bench.path("quick"))
    with open(bench.path("quick/ratios.md"), encoding="utf-8") as file:
        if "| made up | 2.0 ns | 3.0 ns | 1.50 x | 1.50 to 1.50 | 0% | 3 |" not in file.read():
            raise Failed("the table of --quick lacks a row")


def quick(bench, folder, budget_s):
    """Measures, prints and writes; whether every part gave a figure in every round."""
    run = Quick(bench, budget_s)
    run.run()
    run.write(folder)
    print(run.text())
    print(f"written to {folder}")
    return not run.lost
