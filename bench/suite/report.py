"""Raw figures, verdicts, and the folder in which both stay."""

import csv
import datetime
import hashlib
import os
import platform
import shlex
import statistics
import subprocess
import sys

import papers
from harness import ALONE, NATIVE, PROTECTED, ROOT

NOISE = 0.05
"""On a machine of two busy cores, wall-clock differences below this share say nothing."""

PROGRAMS = (
    ["redis-server", "--version"],
    ["memcached", "--version"],
    ["pbzip2", "--version"],
    ["nginx", "-v"],
    ["haproxy", "-v"],
    ["civetweb", "--help"],
    ["mariadbd", "--version"],
    ["sysbench", "--version"],
)
"""What is measured, with the words that make it say its version."""

STRANGERS_MAX = 0.2
"""Cores that others may use before it is a doubt: interrupts and short kernel threads are among them."""


class Results:
    """Collects rows while benchmarks run."""

    def __init__(self, bench, names):
        self.bench, self.names = bench, names
        self.rows, self.table, self.failures = [], [], []
        self.pictures, self.ours, self.servers = {}, {}, {}
        self.judged = 0

    def raw(self, benchmark, mode, turn, figure, value):
        self.rows.append((benchmark, mode, turn, figure, value))

    def failed(self, name, why):
        self.failures.append(name)
        self.add(name, "", "", "", "", "", "NOT MEASURED", why)

    def missing(self, name, why):
        """A program that this machine lacks: told, and no failure."""
        self.add(name, "", "", "", "", "", "NOT HERE", why)

    def picture(self, name, svg):
        """A plot for the folder: `name`.svg."""
        self.pictures[name.replace(" ", "-")] = svg

    def compared(self, key, words):
        """This run's figure for one of the published ones."""
        if key not in papers.keys():
            raise KeyError(key)
        self.ours[key] = words

    def server(self, name, ratios):
        """Times of a request over native, of one of the servers whose average is compared."""
        self.servers[name] = statistics.median(ratios)
        mean = statistics.mean(self.servers.values())
        self.compared("servers on average", f"{mean - 1:+.1%} ({', '.join(self.servers)}), time a request at full speed, no consensus")

    def add(self, what, goal, native, alone, protected, change, verdict, doubt=""):
        self.table.append((what, goal, native, alone, protected, change, verdict, doubt))
        print(f"  {what}: native {native or '-'}, protected {protected or '-'}, {change or '-'} [{goal}] {verdict}" + (f" ({doubt})" if doubt else ""), file=sys.stderr, flush=True)

    def strangers(self, cores):
        """Notes beside every row of a benchmark how much others used of the machine while it ran."""
        for at in range(self.judged, len(self.table)):
            name, *_ = row = self.table[at]
            self.raw(name, "-", 0, "strangers_cores", cores)
            if cores > STRANGERS_MAX:
                doubt = f"other programs used {cores:.1f} cores meanwhile"
                self.table[at] = (*row[:-1], f"{row[-1]}; {doubt}" if row[-1] else doubt)
        self.judged = len(self.table)

    def nanoseconds(self, what, lines, judge):
        """The best batch of each run; the median of the runs counts. The doubt: would all batches say the same?"""
        best = {mode: [float(line["min_ns"]) for line in of] for mode, of in lines.items()}
        usual = {mode: statistics.median(float(line["median_ns"]) for line in of) for mode, of in lines.items()}
        median = {mode: statistics.median(of) for mode, of in best.items()}
        goal, figure, limit, form = judge(median[NATIVE], median[PROTECTED])
        usual_figure = judge(usual[NATIVE], usual[PROTECTED])[1]
        doubts = []
        if limit is not None and (figure <= limit) != (usual_figure <= limit):
            doubts.append("the median batch says " + form.format(usual_figure))
        if limit is not None and spread_of(best[PROTECTED]) > abs(limit - figure) and len(best[PROTECTED]) > 1 and form.endswith("ns"):
            doubts.append("the spread is larger than the distance from the goal")
        self.add(
            what,
            goal,
            shown(best[NATIVE], "ns"),
            shown(best[ALONE], "ns"),
            shown(best[PROTECTED], "ns") + f"; median batch {usual[PROTECTED]:.1f}",
            form.format(figure),
            verdict(limit is None or figure <= limit, limit),
            "; ".join(doubts),
        )

    def ratio(self, what, native, protected, limit, unit, doubt=""):
        """Median against median; the spread is that of the ratios of the rounds."""
        ratio = statistics.median(protected) / statistics.median(native)
        rounds = [p / n for n, p in zip(native, protected)]
        doubts = [doubt] if doubt else []
        if limit is not None and min(rounds) <= limit < max(rounds):
            doubts.append("rounds disagree about the verdict")
        if limit is not None and len(rounds) < 3:
            doubts.append("fewer than three rounds")
        self.add(
            what,
            "none" if limit is None else f"<= {limit} x native",
            shown(native, unit),
            "",
            shown(protected, unit),
            f"{ratio:.3f} x ({min(rounds):.3f} to {max(rounds):.3f})",
            verdict(limit is None or ratio <= limit, limit),
            "; ".join(doubts),
        )

    def difference(self, what, times, limit, unit):
        median = {mode: statistics.median(of) for mode, of in times.items()}
        change = median[PROTECTED] - median[NATIVE]
        self.add(
            what,
            f"<= {limit} {unit} over native",
            shown(times[NATIVE], unit),
            shown(times[ALONE], unit),
            shown(times[PROTECTED], unit),
            f"{change:+.2f} {unit}",
            verdict(change <= limit, limit),
        )

    def limit(self, what, goal, figure, hit, doubt=""):
        self.add(what, goal, "", "", figure, "", verdict(hit, True), doubt)

    def distribution(self, what, values, remark):
        values = sorted(values)
        at = lambda share: values[min(len(values) - 1, int(share * len(values)))]  # noqa: E731
        text = f"min {values[0]:.0f}, median {statistics.median(values):.0f}, p90 {at(0.9):.0f}, max {values[-1]:.0f} (n={len(values)})"
        self.add(what, "none", "", "", text, "", "-", remark)

    def summary(self):
        head = "| what | goal | native | runtime alone | protected | difference | verdict | doubt |\n|---|---|---|---|---|---|---|---|\n"
        lines = ["| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in self.table]
        notes = [
            "",
            "Median of the runs, in brackets the lowest and the highest. *Runtime alone* is `--standbys 0`: intercepted, not logged.",
            "Nanoseconds are the best batch of a run, because an interrupt only ever adds; beside it the median batch, which a standby that reads the same cache lines can raise.",
            f"CPU time is utime + stime of the one process. Differences of wall-clock time below {NOISE:.0%} are noise on such a machine.",
        ]
        load = self.bench.load_before
        if load > 0.5:
            notes.append(f"**Doubt about everything: the machine was not idle before the run (load {load:.2f}).**")
        plots = "".join(f"\n![{name}]({name}.svg)\n" for name in self.pictures)
        return head + "\n".join(lines) + "\n" + "\n".join(notes) + "\n" + plots

    def write(self, folder):
        if not folder:
            what = "all" if len(self.names) > 4 else "-".join(self.names)
            base = os.path.join(ROOT, "bench", "results", f"{datetime.date.today()}-{what}")
            folder, number = base, 1
            while os.path.exists(folder):
                number += 1
                folder = f"{base}-{number}"
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "raw.csv"), "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("benchmark", "mode", "round", "figure", "value"))
            writer.writerows(self.rows)
        texts = {"summary.md": "# Summary\n\n" + self.summary(), "README.md": self.readme(folder), "papers.md": papers.beside(self.ours)}
        for name, text in (*texts.items(), *((f"{name}.svg", svg) for name, svg in self.pictures.items())):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        return folder

    def readme(self, folder):
        options = self.bench.args
        command = ["bench/run", *options.benchmark, "--rounds", str(options.rounds), "--server-rounds", str(options.server_rounds)]
        command += ["--seconds", f"{options.seconds:g}", "--kills", str(options.kills), "--cpus", options.cpus]
        lines = [
            f"# {os.path.basename(folder)}",
            "",
            f"Made by `{shlex.join(command)}` on {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC.",
            "`summary.md` has the verdicts, `raw.csv` every single figure, `papers.md` the published figures beside ours, and each `.svg` a plot.",
            "Modes: `native`, `alone` (`--standbys 0`), `protected`; interleaved in each round.",
            "",
            "| | |",
            "|---|---|",
        ]
        lines += [f"| {name} | {value} |" for name, value in self.machine()]
        return "\n".join(lines) + "\n"

    def machine(self):
        bench = self.bench
        yield "understudy", said([bench.understudy, "--version"])
        yield "source", said(["git", "-C", ROOT, "describe", "--always", "--dirty"])
        for name in ("understudy", "libunderstudy.so"):
            with open(bench.path(name), "rb") as file:
                yield f"sha256 of {name}", hashlib.sha256(file.read()).hexdigest()[:16]
        yield "kernel", platform.release()
        yield "glibc", " ".join(platform.libc_ver())
        yield "processor", processor()
        yield "compiler", said(["cc", "--version"])
        for program in PROGRAMS:
            yield program[0], said(program)
        yield "cores: primary, everything else", bench.args.cpus
        yield "load before and after", f"{bench.load_before:.2f}, {os.getloadavg()[0]:.2f}"


def said(command):
    """First line that a program says, for the record."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return "not here"
    return ((done.stdout or done.stderr).strip().splitlines() or ["nothing"])[0]


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown")
    return f"{os.cpu_count()} x {model}"


def spread_of(values):
    return max(values) - min(values)


def shown(values, unit):
    return f"{rounded(statistics.median(values))} {unit} [{rounded(min(values))}, {rounded(max(values))}]"


def rounded(value):
    return f"{value:.1f}" if abs(value) >= 20 else f"{value:.2f}"


def verdict(hit, limit):
    if limit is None:
        return "-"
    return "hit" if hit else "**miss**"
