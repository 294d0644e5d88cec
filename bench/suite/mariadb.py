"""MariaDB under sysbench: a server of many threads with locks of its own, which has to take turns."""

import os
import re
import shutil
import statistics
import subprocess
import time

import trees
from harness import NATIVE, PROTECTED, Failed, lasts, need

ROWS = 50_000
THREADS = 16
STEADY, MEASURED = 3, 10
"""Seconds without a lost standby before the measurement, and its own."""

SECONDS_MAX = 60


@lasts(300)
def mariadb(bench, results):
    """MariaDB under sysbench's point selects and read-only transactions, 16 connections that are kept: throughput, CPU of the primary"""
    for program in ("mariadbd", "mariadb-install-db", "mariadb", "mariadb-admin", "sysbench"):
        need(program)
    folder = os.path.join(bench.folder, "mariadb")
    os.makedirs(folder)
    try:
        prepare(bench, folder)
        ratios = [ratio for load in ("oltp_point_select", "oltp_read_only") for ratio in paired(bench, results, folder, load)]
    finally:
        shutil.rmtree(folder)
    if ratios:
        words = f"{statistics.median(ratios):.2f} x native ({min(ratios):.2f} to {max(ratios):.2f}), MariaDB with InnoDB, in turns"
        results.compared("mariadb", words)
        results.server("MariaDB", ratios)


def paired(bench, results, folder, load):
    times, cpu, lost = {NATIVE: [], PROTECTED: []}, [], []
    for turn in range(min(bench.args.server_rounds, 3)):
        try:
            native, protected = (measured(bench, results, folder, load, mode, turn) for mode in (NATIVE, PROTECTED))
        except Failed as why:
            lost.append(str(why))
            continue
        for mode, (tps, _) in ((NATIVE, native), (PROTECTED, protected)):
            times[mode].append(1e6 / tps)
        cpu.append(protected[1] / native[1])
    if lost:
        results.failed(f"mariadb, {load}", f"{len(lost)} rounds lost: {lost[-1]}")
    if not cpu:
        return []
    doubt = f"CPU of the primary a transaction {statistics.median(cpu):.2f} x; the load shares the standby's core"
    results.ratio(f"mariadb, {load}, {THREADS} connections: time a transaction", times[NATIVE], times[PROTECTED], None, "us", doubt=doubt)
    return [protected / native for native, protected in zip(times[NATIVE], times[PROTECTED])]


def server(folder):
    user = ["--user=root"] if os.geteuid() == 0 else []
    return ["mariadbd", "--no-defaults", *user, f"--datadir={folder}/data", f"--socket={folder}/socket", "--skip-networking", f"--pid-file={folder}/pid"]


def sysbench(folder, load, *words):
    options = [f"--mysql-socket={folder}/socket", "--mysql-user=root", "--tables=1", f"--table-size={ROWS}", f"--threads={THREADS}"]
    return ["sysbench", load, *options, *words]


def prepare(bench, folder):
    trees.tool(["mariadb-install-db", "--no-defaults", *(["--user=root"] if os.geteuid() == 0 else []), f"--datadir={folder}/data", "--skip-test-db"])
    with bench.start(NATIVE, server(folder)) as run:
        await_socket(run, folder)
        trees.tool(["mariadb", "--no-defaults", f"--socket={folder}/socket", "--user=root", "--execute", "CREATE DATABASE sbtest"])
        trees.tool(sysbench(folder, "oltp_read_only", "prepare"))
        shut_down(run, folder)


def await_socket(run, folder):
    until = time.monotonic() + 60
    ask = ["mariadb-admin", "--no-defaults", f"--socket={folder}/socket", "--user=root", "--silent", "ping"]
    while subprocess.run(ask, capture_output=True, check=False).returncode:
        if run.process.poll() is not None or time.monotonic() > until:
            raise Failed(f"mariadbd ({run.mode}) does not answer: {run.complaint()}")
        time.sleep(0.2)


def shut_down(run, folder):
    trees.tool(["mariadb-admin", "--no-defaults", f"--socket={folder}/socket", "--user=root", "shutdown"])
    try:
        run.process.wait(60)
    except subprocess.TimeoutExpired:
        raise Failed(f"mariadbd ({run.mode}) did not end") from None


def measured(bench, results, folder, load, mode, turn):
    """Transactions a second and CPU of one, us, over seconds in which the standby was there throughout."""
    with bench.start(mode, server(folder), more=["--lag-timeout", "10000"]) as run:
        await_socket(run, folder)
        words = sysbench(folder, load, f"--time={SECONDS_MAX}", "--report-interval=1", "run")
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=bench.pinned(bench.other_core)) as client:
            try:
                tps, used_us = watched(run, client)
            finally:
                client.kill()
        turns = run.order() == "serial"
        shut_down(run, folder)
    for name, value in (("transactions_per_s", tps), ("cpu_us_per_transaction", used_us), ("in_turns", int(turns))):
        results.raw(f"mariadb {load}", mode, turn, name, value)
    return tps, used_us


def watched(run, client):
    """The greeting of each connection costs the standby, and so do races until there are turns: the measurement begins behind that."""
    quiet, rates, before, why = 0, [], 0.0, "sysbench said nothing"
    for line in client.stdout:
        found = re.match(r"\[ \d+s \] thds: \d+ tps: ([0-9.]+)", line)
        if not found:
            why = line.strip() or why
            continue
        if is_lost(run):
            quiet, rates = 0, []
            run.begin()
            continue
        quiet += 1
        if quiet == STEADY:
            before = trees.tree_cpu_s(run)
        elif quiet > STEADY:
            rates.append(float(found[1]))
        if len(rates) == MEASURED:
            tps = statistics.mean(rates)
            return tps, (trees.tree_cpu_s(run) - before) / (tps * MEASURED) * 1e6
    if run.mode == PROTECTED and run.losses():
        raise Failed(f"no {STEADY + MEASURED} seconds with a standby among {SECONDS_MAX}: {run.losses()[-1]}")
    raise Failed(f"sysbench: {why}")


def is_lost(run):
    """Whether there is no standby, or there was none since the last look."""
    if run.mode == NATIVE:
        return False
    return run.unprotected() is not None or run.status()["state"] != "protected"


BENCHMARKS = {"mariadb": mariadb}
