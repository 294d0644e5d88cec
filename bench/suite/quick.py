"""README's table in three minutes: ratios to native, each with its spread over interleaved rounds, and published figures beside them."""

import csv
import os
import random
import re
import statistics
import time

import failover
import micro
import papers
import programs
from harness import NATIVE, PROTECTED, Failed
from report import NOISE

ROUNDS_MIN = 3
"""Fewer say nothing of a spread."""

REQUESTS = 60_000

OPERATIONS = {
    "lock + unlock": ("lock", [], "min_ns"),
    "lock + unlock, without a pause": ("lock", ["--pause-us", "0", "--batches", "100"], "median_ns"),
    "`clock_gettime`": ("clock", [], "min_ns"),
    "`getppid`": ("getppid", [], "min_ns"),
    "`read` of 64 B": ("read", [], "min_ns"),
    "`read` of 16 KB": ("read", ["--bytes", "16384"], "min_ns"),
    "`write` of 64 B": ("write", [], "min_ns"),
}
"""Name -> program, options, and which of its figures counts. Without a pause it is the speed of the standby, and the usual batch."""

ROWS = {
    **dict.fromkeys(OPERATIONS, "ns"),
    "redis GET: CPU of a request": "us",
    "redis GET: time of a request": "us",
    "redis SET: CPU of a request": "us",
    "redis SET: time of a request": "us",
    "memcached: CPU of a request": "us",
    "redis: a client's longest wait; protected: over a kill": "ms",
    "redis: blackout at a kill": "ms",
}
"""Row -> unit, in the order of the table. A row in ms is judged by its time, the others by their ratio to native."""

LOAD = "load before"
"""Of the machine: a row of the file, and none of the table."""

COLUMNS = ("what", "native", "protected", "ratio", "lowest to highest")

PLACE = re.compile(r"(?<=<!-- costs: begin -->\n).*?(?=<!-- costs: end -->)", re.DOTALL)
"""In README, the table and what is said of it."""


class Silent:
    """Takes the raw figures of a round and keeps none: the ratios of the rounds are written."""

    def raw(self, *_):
        pass


def operations(bench):
    """What one operation costs."""
    for name, (program, options, figure) in OPERATIONS.items():
        yield name, tuple(float(micro.once(bench, mode, program, options)[figure]) for mode in (NATIVE, PROTECTED))


def redis(bench):
    """CPU and time of a request of redis."""
    loads = {kind: lambda port, kind=kind: programs.redis_load(bench, port, kind, REQUESTS) for kind in ("get", "set")}
    native, protected = (programs.server_round(bench, mode, programs.redis_command, loads) for mode in (NATIVE, PROTECTED))
    for kind in loads:
        yield f"redis {kind.upper()}: CPU of a request", (native[kind][0], protected[kind][0])
        yield f"redis {kind.upper()}: time of a request", (1e6 / native[kind][1], 1e6 / protected[kind][1])


def memcached(bench):
    """CPU of a request of memcached."""
    loads = {"get/set": lambda port: programs.memcached_load(bench, port, REQUESTS)}
    native, protected = (programs.server_round(bench, mode, programs.memcached_command, loads) for mode in (NATIVE, PROTECTED))
    yield "memcached: CPU of a request", (native["get/set"][0], protected["get/set"][0])


def kill(bench):
    """What a kill is for a client that counts, and for the supervisor."""
    native = failover.counted(bench, NATIVE, 0, Silent(), None)
    blackout, line = failover.killed(bench, 0, Silent(), 0.3 + random.random() * 0.4)
    if int(line["wrong"]) or int(line["lost"]):
        raise Failed(f"wrong answers {line['wrong']}, lost connections {line['lost']}")
    yield "redis: a client's longest wait; protected: over a kill", tuple(float(of["longest_us"]) / 1000 for of in (native, line))
    yield "redis: blackout at a kill", (None, blackout / 1000)


class Quick:
    """One round of everything after the other, until the time is over."""

    def __init__(self, bench, budget_s):
        self.bench, self.budget_s = bench, budget_s
        self.pairs, self.lost = {}, []
        self.rounds = 0

    def run(self):
        began, longest = time.monotonic(), 0.0
        while self.rounds == 0 or time.monotonic() - began + longest < self.budget_s:
            started = time.monotonic()
            for part in (operations, redis, memcached, kill):
                try:
                    for name, pair in part(self.bench):
                        self.pairs.setdefault(name, []).append(pair)
                except Failed as why:
                    self.lost.append(f"{part.__name__}: {why}")
            self.rounds += 1
            longest = max(longest, time.monotonic() - started)
        self.took_s = time.monotonic() - began

    def text(self, promised):
        """`promised`: row -> lowest and highest, as README has them."""
        spreads = [(max(of) - min(of)) / statistics.median(of) for name, pairs in self.pairs.items() if len(of := judged(name, pairs)) >= ROUNDS_MIN]
        parts = ["# Ratios to native\n", table(self.pairs, promised) + "\n"]
        if spreads:
            parts.append(
                f"{self.rounds} rounds in {self.took_s:.0f} s. Between rounds the figures of one row differ by {statistics.median(spreads):.0%} "
                f"(median of the rows; at most {max(spreads):.0%}). A difference below its row's spread says nothing.\n"
            )
        parts.append(agreement(self.pairs, promised) + "\n")
        if self.bench.load_before > 0.5:
            parts.append(f"**Doubt about everything: the machine was not idle before the run (load {self.bench.load_before:.2f}).**\n")
        parts += [f"Lost: {why}.\n" for why in self.lost]
        parts.append("## Published figures beside them\n\n| what | they say | where |\n|---|---|---|")
        parts += [f"| {what} | {theirs} | {of}, {place} |" for of, place, what, theirs, key in papers.PUBLISHED if key in ("mongoose 10 KB", "wget killed", "servers on average")]
        parts.append("\nOther machines, programs and faults: orders of magnitude compare, digits do not. `make bench` has all of them, with ours.")
        return "\n".join(parts) + "\n"

    def write(self, folder, text):
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "ratios.csv"), "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("what", "unit", "round", "native", "protected"))
            writer.writerow((LOAD, "", 0, f"{self.bench.load_before:.2f}", ""))
            for name, pairs in self.pairs.items():
                writer.writerows((name, ROWS[name], turn, "" if native is None else native, protected) for turn, (native, protected) in enumerate(pairs))
        with open(os.path.join(folder, "ratios.md"), "w", encoding="utf-8") as file:
            file.write(text)


def judged(name, pairs):
    """What a row's spread is of: ratios, or times."""
    return [protected if ROWS[name] == "ms" else protected / native for native, protected in pairs]


def table(pairs_of, promised=None):
    """README's columns; with what README promises also whether it was kept, and how many rounds there were."""
    columns = COLUMNS + (("README", "rounds") if promised is not None else ())
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for name, unit in ROWS.items():
        pairs = pairs_of.get(name)
        if not pairs:
            continue
        native, protected = ([value for value in side if value is not None] for side in zip(*pairs))
        of, form = judged(name, pairs), "{:.2f} ms" if unit == "ms" else "{:.2f}"
        ratio = "" if unit == "ms" else form.format(statistics.median(of))
        spread = f"{form.format(min(of)).removesuffix(' ms')} to {form.format(max(of))}"
        cells = [name, *(f"{statistics.median(side):{'.2f' if unit == 'ms' else '.1f'}} {unit}" if side else "" for side in (native, protected)), ratio, spread]
        if promised is not None:
            few = " (too few)" if len(pairs) < ROUNDS_MIN else ""
            cells += ["-" if few or name not in promised else "as promised" if is_kept(name, pairs, promised) else "**other**", f"{len(pairs)}{few}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def is_kept(name, pairs, promised):
    """Whether the median lies within README's spread, or so near to it that the difference says nothing."""
    low, high = promised[name]
    return low * (1 - NOISE) <= statistics.median(judged(name, pairs)) <= high * (1 + NOISE)


def agreement(pairs_of, promised):
    rows = [name for name, pairs in pairs_of.items() if name in promised and len(pairs) >= ROUNDS_MIN]
    other = [name for name in rows if not is_kept(name, pairs_of[name], promised)]
    return f"{len(rows) - len(other)} of {len(rows)} rows lie within the spread that README's table states, or {NOISE:.0%} from it" + (f"; not {', '.join(other)}." if other else ".")


def promises(root):
    """Row -> lowest and highest of README's table."""
    found = {}
    for cells in rows_of(root)[2:]:
        words = re.match(r"([0-9.]+) to ([0-9.]+)", cells[4])
        if words:
            found[cells[0]] = (float(words[1]), float(words[2]))
    return found


def rows_of(root):
    """The cells of README's table, its head among them."""
    with open(os.path.join(root, "README.md"), encoding="utf-8") as file:
        place = PLACE.search(file.read())
    if not place:
        raise Failed("README.md has no place for its table of costs")
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in place[0].splitlines() if line.startswith("|")]


def check(root):
    """What is wrong with README's table: its columns and rows are those that --quick measures."""
    head, _, *rows = rows_of(root) + [[], []]
    rows = [row[0] for row in rows if row]
    if tuple(head) != COLUMNS:
        return f"README.md: the columns of its table are {head}, and bench/run --quick has {list(COLUMNS)}"
    if rows != list(ROWS):
        differs = [name for name in (*rows, *ROWS) if (name in rows) != (name in ROWS)] or ["their order"]
        return f"README.md: its table and bench/run --quick differ in {', '.join(differs)}: bench/run --readme FOLDER writes it"
    return None


def write_readme(root, folders, machine, date):
    """Writes README's table from the files of one run of --quick or several."""
    pairs_of, loads = {}, []
    for folder in folders:
        with open(os.path.join(folder, "ratios.csv"), encoding="utf-8") as file:
            for line in csv.DictReader(file):
                if line["what"] == LOAD:
                    loads.append(float(line["native"]))
                else:
                    pair = (float(line["native"]) if line["native"] else None, float(line["protected"]))
                    pairs_of.setdefault(line["what"], []).append(pair)
    lacking = [name for name in ROWS if len(pairs_of.get(name, ())) < ROUNDS_MIN]
    if lacking:
        raise Failed(f"fewer than {ROUNDS_MIN} rounds of {', '.join(lacking)}")
    rounds = max(map(len, pairs_of.values()))
    busy = f"\n**The machine was busy with other work (load {max(loads):.1f}): a doubt about every row.**" if max(loads) > 0.5 else ""
    said = f"{machine}, {date}, {rounds} rounds.{busy}"
    with open(os.path.join(root, "README.md"), encoding="utf-8") as file:
        text = file.read()
    if not PLACE.search(text):
        raise Failed("README.md has no place for its table of costs")
    with open(os.path.join(root, "README.md"), "w", encoding="utf-8") as file:
        file.write(PLACE.sub(lambda _: f"{table(pairs_of)}\n\n{said}\n", text))


def smoke(bench):
    """No round, only the writing, with made-up figures."""
    made = Quick(bench, 0)
    made.pairs = {"`getppid`": [(2.0, 3.0)] * ROUNDS_MIN, "redis: blackout at a kill": [(None, 0.25)]}
    made.rounds, made.took_s = ROUNDS_MIN, 1.0
    text = made.text({"`getppid`": (1.4, 1.6)})
    made.write(bench.path("quick"), text)
    for row in ("| `getppid` | 2.0 ns | 3.0 ns | 1.50 | 1.50 to 1.50 | as promised | 3 |", "| redis: blackout at a kill |  | 0.25 ms |  | 0.25 to 0.25 ms | - | 1 (too few) |"):
        if row not in text:
            raise Failed(f"the table of --quick lacks {row}")
    wrong = check(bench.root)
    if wrong:
        raise Failed(wrong)


def quick(bench, folder, budget_s):
    """Measures, prints and writes; whether every part gave a figure in every round."""
    run = Quick(bench, budget_s)
    run.run()
    text = run.text(promises(bench.root))
    run.write(folder, text)
    print(text)
    print(f"written to {folder}")
    return not run.lost
