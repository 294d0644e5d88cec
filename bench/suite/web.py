"""A small threaded web server, nginx with a pool of threads, and a server beside a load that is not protected."""

import os
import re
import shutil
import statistics
import subprocess

import plot
import trees
from harness import NATIVE, PROTECTED, Failed, free_port, lasts, need

REQUESTS = 20_000
CONNECTIONS = 100
THREADS = (4, 8, 16)
PAGES_KB = (50, 100, 200)

BESIDE = "beside"
"""Beside a program that keeps all processors busy."""

PATIENT = ["--lag-timeout", "10000"]


def pages(bench, *sizes_kb):
    """A folder with pages of these sizes."""
    folder = os.path.join(bench.folder, "www")
    os.makedirs(folder, exist_ok=True)
    os.chmod(bench.folder, 0o711)
    for size in sizes_kb:
        with open(os.path.join(folder, f"page{size}"), "wb") as file:
            file.write(os.urandom(size * 1024))
    return folder


def civetweb_command(port, folder, threads):
    options = {"listening_ports": f"127.0.0.1:{port}", "document_root": folder, "num_threads": threads, "run_as_user": "root" if os.geteuid() == 0 else ""}
    # An empty configuration: without one it looks for a file beside the program.
    return [need("civetweb"), *(word for name, value in options.items() if value != "" for word in (f"-{name}", str(value)))]


def pool_command(port, folder, threads):
    argv = trees.nginx_command(port, folder, 1)
    text = open(argv[-1], encoding="utf-8").read()
    text = text.replace("daemon off;", f"daemon off; thread_pool default threads={threads};").replace("http {", "http { aio threads;")
    trees.written(folder, "nginx.conf", text)
    return argv


def asked(bench, port, page, connections=CONNECTIONS, requests=REQUESTS):
    """Requests a second, and the middle time of one, ms; each over a connection of its own."""
    output = bench.helper([need("ab"), "-q", "-n", str(requests), "-c", str(connections), f"http://127.0.0.1:{port}/{page}"], 180)
    found = {name: re.search(rf"^{name}:\s+([0-9.]+)", output, re.MULTILINE) for name in ("Failed requests", "Requests per second", "Time per request", "Complete requests")}
    if not all(found.values()) or float(found["Failed requests"][1]) or int(found["Complete requests"][1]) != requests or "Non-2xx" in output:
        raise Failed(f"ab: {output[-300:]}")
    return float(found["Requests per second"][1]), float(found["Time per request"][1])


def served(bench, results, what, mode, turn, command, page, processes=1, connections=CONNECTIONS, during=None):
    """Requests a second, time of one in ms, and CPU of all primaries a request in us; a process that never had a standby, or lost it
    while it was asked, gives none of them."""
    port = free_port()
    with bench.start(mode, command(port), more=PATIENT) as run:
        run.primary()
        run.await_port(port)
        asked(bench, port, page, requests=500)
        trees.await_tree(run, processes)
        run.begin()
        before = trees.tree_cpu_s(run)
        if during:
            during(run)
        per_s, each_ms = asked(bench, port, page, connections)
        used_us = (trees.tree_cpu_s(run) - before) / REQUESTS * 1e6
        run.check_protected()
        trees.await_tree(run, processes)
        turns = run.order() == "serial"
    for name, value in (("requests_per_s", per_s), ("ms", each_ms), ("cpu_us_per_request", used_us), ("in_turns", int(turns))):
        results.raw(what, mode, turn, name, value)
    return per_s, each_ms, used_us


def paired(bench, results, what, command, page, processes=1):
    """One row: the throughput's loss over rounds; the ratios of the rounds."""
    figures = {NATIVE: [], PROTECTED: []}
    try:
        for turn in range(min(bench.args.server_rounds, 3)):
            both = [served(bench, results, what, mode, turn, command, page, processes) for mode in (NATIVE, PROTECTED)]
            for mode, figure in zip(figures, both):
                figures[mode].append(figure)
    except Failed as why:
        results.failed(what, str(why))
    if not figures[PROTECTED]:
        return []
    rates = {mode: [1e6 / per_s for per_s, _, _ in of] for mode, of in figures.items()}
    cpu = statistics.median(figures[PROTECTED][at][2] / figures[NATIVE][at][2] for at in range(len(figures[PROTECTED])))
    results.ratio(f"{what}: time a request", rates[NATIVE], rates[PROTECTED], None, "us", doubt=f"CPU of the primaries {cpu:.2f} x; the load shares the standby's core")
    return [protected / native for native, protected in zip(rates[NATIVE], rates[PROTECTED])]


def swept(bench, results, program, key, command_of, processes):
    """Threads against pages, as in the tables of the thesis."""
    folder = pages(bench, *PAGES_KB)
    drawn = {f"{size} KB": [] for size in PAGES_KB}
    for threads in THREADS:
        every = []
        for size in PAGES_KB:
            ratios = paired(bench, results, f"{program}, {threads} threads, {size} KB", command_of(folder, threads), f"page{size}", processes)
            if ratios:
                every += ratios
                drawn[f"{size} KB"].append((threads, min(ratios), statistics.median(ratios), max(ratios)))
        if every:
            results.compared(f"{key} {threads} threads", f"{statistics.median(every) - 1:+.1%} ({min(every) - 1:+.1%} to {max(every) - 1:+.1%}), {program}")
    drawn = {name: points for name, points in drawn.items() if points}
    if drawn:
        results.picture(program, plot.lines(f"{program} by threads and size of the page", "threads", "time a request, times native", drawn))


@lasts(300)
def civetweb(bench, results):
    """CivetWeb, Mongoose's descendant: 4 to 16 threads, pages of 50 to 200 KB, a connection for each request; 10 KB at full speed"""
    need("civetweb"), need("ab")
    swept(bench, results, "civetweb", "mongoose", lambda folder, threads: lambda port: civetweb_command(port, folder, threads), 1)
    folder = pages(bench, 10)
    ratios = paired(bench, results, "civetweb, 32 threads, 10 KB", lambda port: civetweb_command(port, folder, 32), "page10")
    if ratios:
        results.compared("mongoose 10 KB", f"{1 / statistics.median(ratios):.0%} of native's throughput at full speed")
        results.server("CivetWeb", ratios)


@lasts(260)
def pool(bench, results):
    """nginx with `aio threads`, 4 to 16 threads, pages of 50 to 200 KB: its hand-over races, so turns are what it can have"""
    need("nginx"), need("ab")

    def command_of(folder, threads):
        def command(port):
            own = os.path.join(bench.folder, f"pool-{port}")
            os.makedirs(own)
            shutil.copytree(folder, os.path.join(own, "pages"))
            return pool_command(port, own, threads)

        return command

    swept(bench, results, "nginx with a pool", "nginx with a pool of threads", command_of, 2)


class Burner:
    """Two threads that compute on all processors, and what they get done a second."""

    def __init__(self, bench):
        self.command, self.bench = [bench.need_compiled("burn"), "2"], bench

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True, preexec_fn=self.bench.unpinned)
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
        output, _ = self.process.communicate(timeout=10)
        self.rate = float(output.split("=")[1])


@lasts(60)
def beside(bench, results):
    """CivetWeb asked over 5 connections beside a program that keeps all processors busy: its speed, and what it takes from the other"""
    need("civetweb"), need("ab")
    folder = pages(bench, 10)
    figures = {(mode, how): [] for mode in (NATIVE, PROTECTED) for how in ("alone", BESIDE)}
    left = {NATIVE: [], PROTECTED: []}

    def command(port):
        return civetweb_command(port, folder, 8)

    for turn in range(min(bench.args.server_rounds, 3)):
        for mode in (NATIVE, PROTECTED):
            figures[mode, "alone"].append(served(bench, results, "civetweb alone", mode, turn, command, "page10", connections=5))
            with Burner(bench) as burner:
                figures[mode, BESIDE].append(served(bench, results, "civetweb beside a busy program", mode, turn, command, "page10", connections=5))
            left[mode].append(burner.rate)
            results.raw("a busy program beside civetweb", mode, turn, "rounds_per_s", burner.rate)
    for how in ("alone", BESIDE):
        native, protected = ([1e6 / per_s for per_s, _, _ in figures[mode, how]] for mode in (NATIVE, PROTECTED))
        results.ratio(f"civetweb, 5 connections, {how}: time a request", native, protected, None, "us")
    results.ratio("a busy program beside civetweb: time of its own work", *([1e3 / rate for rate in left[mode]] for mode in (NATIVE, PROTECTED)), None, "ms")
    speed = [statistics.median(per_s for per_s, _, _ in figures[mode, BESIDE]) for mode in (NATIVE, PROTECTED)]
    waits = [statistics.median(ms for _, ms, _ in figures[mode, BESIDE]) for mode in (NATIVE, PROTECTED)]
    results.compared("beside", f"{speed[1]:.0f} requests a second of native's {speed[0]:.0f} ({speed[1] / speed[0]:.0%}); {waits[1]:.2f} ms of {waits[0]:.2f} ms")


BENCHMARKS = {"civetweb": civetweb, "pool": pool, "beside": beside}
