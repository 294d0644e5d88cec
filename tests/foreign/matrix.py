#!/usr/bin/env python3
"""The matrix of programs in the book: what `doctor --load` says of each line of tests/foreign/matrix.

    tests/foreign/matrix.py [NAME...]     measures those, or all, and writes matrix.csv and the table of docs/book/programs.md
    tests/foreign/matrix.py --check       writes nothing; says what is stale

Stale is: a table that is not what matrix.csv makes, a line of the list without a result, or with one of another command, a result
of another version of Understudy. A program of another version than the measured one is told, and no failure: where it matters,
somebody measures. Ends with "N passed, N failed, N skipped".
"""

import csv
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIST = os.path.join(ROOT, "tests/foreign/matrix")
RESULTS = os.path.join(ROOT, "tests/foreign/matrix.csv")
PAGE = os.path.join(ROOT, "docs/book/programs.md")
BEGIN, END = "<!-- matrix: tests/foreign/matrix.py writes it -->\n", "<!-- end of matrix -->\n"
FIELDS = ["program", "setting", "version", "order", "share", "divergences", "time", "cpu", "understudy", "command"]
# Most seconds that a load may take, and least that a program that ends by itself is tried for.
LOAD_S, ALONE_S = 40, 4
ROUNDS = 3


def entries():
    with open(LIST, encoding="utf-8") as file:
        for line in file:
            if not line.startswith("#"):
                name, version, setting, load, program = line.rstrip("\n").split(" | ", 4)
                digest = hashlib.sha256(f"{load}|{program}".encode()).hexdigest()[:12]
                yield {"program": name, "setting": setting, "asks": version, "load": load, "runs": program, "command": digest}


def own_version():
    with open(os.path.join(ROOT, "Cargo.toml"), encoding="utf-8") as file:
        return re.search(r'^version = "(.*)"', file.read(), re.M).group(1)


def version_of(entry):
    """None where the program is not installed."""
    if not shutil.which(entry["asks"].split()[0]):
        return None
    said = subprocess.run(entry["asks"].split(), capture_output=True, text=True, check=False)
    found = re.search(r"\d+\.\d+(?:\.\d+)*", said.stdout + said.stderr)
    return found.group() if found else "?"


def measure(entry, version):
    """The result of one line: of several rounds the one in the middle, for each figure."""
    rounds = [measure_once(entry) for _ in range(ROUNDS)]
    middle = lambda what: sorted(each[what] for each in rounds)[ROUNDS // 2]
    orders = sorted(each["order"] for each in rounds)
    return {
        "program": entry["program"], "setting": entry["setting"], "version": version, "order": orders[ROUNDS // 2],
        "share": f"{middle('share'):.3f}", "divergences": middle("divergences"), "time": f"{middle('time'):.2f}",
        "cpu": f"{middle('cpu'):.2f}", "understudy": own_version(), "command": entry["command"],
    }


def measure_once(entry):
    """Share, divergences, and ratios to the native run beside it."""
    alone = entry["load"] == "-"
    load, seconds = (f"sleep {ALONE_S}", ALONE_S) if alone else (entry["load"], LOAD_S)
    understudy = os.path.join(os.environ.get("TARGET") or os.path.join(ROOT, "target"), "release/understudy")
    with tempfile.TemporaryDirectory(prefix="understudy-matrix-") as folder:
        program = f"TREE={ROOT}; set -- {entry['runs']}; exec {understudy} doctor --json --seconds {seconds} --load \"$LOAD\" -- \"$@\""
        environment = dict(os.environ, LOAD=load, TREE=ROOT, LC_ALL="C.UTF-8")
        said = subprocess.run(["bash", "-c", program], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    try:
        runs = json.loads(said.stdout)["runs"]
    except (ValueError, KeyError):
        raise RuntimeError(f"doctor ended with {said.returncode}: {said.stdout}{said.stderr}") from None
    native, protected = runs[0], max(runs[1:], key=lambda run: run["protected_share"])
    if not alone and not all(run["load_ended"] and not run["load_failed"] for run in (native, protected)):
        raise RuntimeError(f"its load did not end, or failed: {said.stdout}")
    ratio = lambda what: (protected[what] / protected["times"]) / max(native[what] / native["times"], 0.01)
    return {
        "order": protected["order"], "share": protected["protected_share"], "divergences": runs[1]["divergences_total"],
        "time": ratio("time_s"), "cpu": ratio("cpu_s"),
    }


def results():
    if not os.path.exists(RESULTS):
        return {}
    with open(RESULTS, encoding="utf-8", newline="") as file:
        return {(row["program"], row["setting"]): row for row in csv.DictReader(file)}


def table(rows):
    lines = ["| program | version | setting | order | share of time | processor time |", "|---|---|---|---|---|---|"]
    for row in rows:
        share = float(row["share"])
        order = "*turns*" if row["order"] == "serial" else "`schedule`"
        lines.append(
            f"| {row['program']} | {row['version']} | {row['setting']} | {order} | {share:.0%} | {float(row['cpu']):.1f} |"
        )
    return "\n" + "\n".join(lines) + "\n\n"


def parts():
    """The page before the table, the table, and the page behind it."""
    with open(PAGE, encoding="utf-8") as file:
        before, rest = file.read().split(BEGIN)
    now, after = rest.split(END)
    return before + BEGIN, now, END + after


def check():
    have, counts = results(), [0, 0, 0]

    def say(word, what):
        print(f"{word}  {what}")
        counts[("pass", "FAIL", "skip").index(word)] += 1

    rows = []
    for entry in entries():
        row = have.get((entry["program"], entry["setting"]))
        title = f"{entry['program']}, setting {entry['setting']}"
        if not row:
            say("FAIL", f"{title}: it was not measured")
            continue
        rows.append(row)
        now = version_of(entry)
        if row["command"] != entry["command"]:
            say("FAIL", f"{title}: what is run is not what was measured")
        elif row["understudy"] != own_version():
            say("FAIL", f"{title}: it was measured with Understudy {row['understudy']}, this is {own_version()}")
        elif now != row["version"]:
            say("skip", f"{title}: version {row['version']} was measured, here is {now or 'none'}")
        else:
            say("pass", title)
    if len(have) != len(rows):
        say("FAIL", "matrix.csv has programs that the list has not")
    elif parts()[1] == table(rows):
        say("pass", "the table of docs/book/programs.md")
    else:
        say("FAIL", "the table of docs/book/programs.md is not what matrix.csv makes")
    print(f"{counts[0]} passed, {counts[1]} failed, {counts[2]} skipped")
    return 1 if counts[1] else 0


def main():
    names = sys.argv[1:]
    if names == ["--check"]:
        return check()
    all_entries, have, failed = list(entries()), results(), 0
    for entry in all_entries:
        version = version_of(entry)
        if not version or names and entry["program"] not in names:
            continue
        try:
            row = measure(entry, version)
        except RuntimeError as why:
            print(f"{entry['program']}: {why}", flush=True)
            failed = 1
            continue
        print(*row.values(), flush=True)
        have[(entry["program"], entry["setting"])] = row
        write([have[key] for key in ((one["program"], one["setting"]) for one in all_entries) if key in have])
    return failed


def write(rows):
    """The results, and the page."""
    with open(RESULTS, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    before, _, after = parts()
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(before + table(rows) + after)


if __name__ == "__main__":
    sys.exit(main())
