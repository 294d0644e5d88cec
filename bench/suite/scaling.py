"""What becomes of it with many threads, and with many connections."""

import os
import shutil
import statistics
import subprocess
import time

import plot
import programs
import trees
from harness import NATIVE, PROTECTED, Failed, Missing, fields, free_port, lasts, memory_of, need

TWICE = "native twice"
"""Two native ones side by side: what a standby that computes as much costs by its mere presence."""

COUNTS = (2, 8, 32, 128, 500, 1000, 4000)
SECTIONS = 3_200_000
THREADS_WALL = 2.3
"""Seconds that are wanted where two native ones need 2.0."""
THREADS_CPU = 1.1

CONNECTIONS = (50, 500, 2000, 5000, 9000)
REQUESTS = 60_000

PATIENT = ["--lag-timeout", "10000"]
"""A standby that gets no core for a moment on a busy machine must not end the measurement."""


def spread(x, values):
    return (x, min(values), statistics.median(values), max(values))


@lasts(240)
def threads(bench, results):
    """2 to 4000 threads that share 3.2 million critical sections: time, CPU of the primary, memory of a thread"""
    bench.need_compiled("threads")
    modes = (NATIVE, TWICE, PROTECTED)
    drawn = {(what, mode): [] for what in ("wall_s", "cpu_s") for mode in modes}
    for count in COUNTS:
        got = {key: [] for key in drawn}
        try:
            for turn in range(min(bench.args.rounds, 3)):
                for mode in modes:
                    for what, value in threads_once(bench, mode, count).items():
                        got[what, mode].append(value)
                        results.raw(f"threads {count}", mode, turn, what, value)
        except Failed as why:
            results.failed(f"{count} threads", str(why))
        for key, values in got.items():
            if values:
                drawn[key].append(spread(count, values))
        if not got["wall_s", PROTECTED]:
            continue
        wall = statistics.median(got["wall_s", PROTECTED])
        cpu = statistics.median(got["cpu_s", PROTECTED]) / statistics.median(got["cpu_s", NATIVE])
        native, twice = (statistics.median(got["wall_s", mode]) for mode in (NATIVE, TWICE))
        results.add(
            f"{count} threads, {SECTIONS / 1e6:g} million sections",
            f"<= {THREADS_WALL} s, CPU <= {THREADS_CPU} x native",
            f"{native:.2f} s; two at once {twice:.2f} s",
            "",
            f"{wall:.2f} s",
            f"{wall / native:.2f} x; CPU of the primary {cpu:.2f} x",
            "hit" if wall <= THREADS_WALL and cpu <= THREADS_CPU else "**miss**",
        )
    for what, words in (("wall_s", "seconds"), ("cpu_s", "seconds of the primary's CPU")):
        lines = {mode: drawn[what, mode] for mode in modes if drawn[what, mode] and (what, mode) != ("cpu_s", TWICE)}
        results.picture(f"threads-{what[:-2]}", plot.lines("Threads that share 3.2 million critical sections", "threads", words, lines, log_x=True))
    memory_of_threads(bench, results)


def threads_once(bench, mode, count):
    command = [bench.path("threads"), str(count), str(SECTIONS)]
    beside = bench.start(NATIVE, command, pinned=False) if mode == TWICE else None
    try:
        kind = NATIVE if mode == TWICE else mode
        with bench.start(kind, command, stdout=subprocess.PIPE, more=PATIENT, pinned=False) as run:
            line = fields(run.finish(120))
    finally:
        if beside:
            beside.__exit__()
    return {what: float(line[what]) for what in ("wall_s", "cpu_s")}


def memory_of_threads(bench, results):
    """Bytes that each thread more costs, from the difference of two sizes that both have a standby."""
    few, many = COUNTS[0], COUNTS[4]
    each = {}
    for mode in (NATIVE, PROTECTED):
        sizes = [held(bench, results, mode, count) for count in (few, many)]
        each[mode] = [(after - before) / (many - few) for before, after in zip(*sizes)]
    results.add(
        "memory of a thread",
        "none",
        f"{each[NATIVE][0] / 1024:.1f} KiB",
        "",
        f"{each[PROTECTED][0] / 1024:.1f} KiB, all copies",
        "",
        "-",
        f"of which {each[PROTECTED][1] / 1024:.1f} KiB in the segment; between {few} and {many} threads that stand still",
    )


def held(bench, results, mode, count):
    """Bytes of all copies of a process whose threads stand still, and of its segment."""
    command = [bench.path("threads"), str(count), str(SECTIONS), "h"]
    with bench.start(mode, command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, more=PATIENT, pinned=False) as run:
        if run.process.stdout.readline() != "held\n":
            raise Failed(f"threads ({mode}): {run.complaint()}")
        time.sleep(0.5)
        size = weighed(run)
        run.process.stdin.write("go\n")
        run.process.stdin.flush()
        run.finish(120)
    results.raw(f"memory of {count} threads", mode, 0, "bytes", size[0])
    results.raw(f"memory of {count} threads", mode, 0, "segment_bytes", size[1])
    return size


def weighed(run):
    """Bytes of all processes of a run, and of their segments."""
    run.check_protected()
    if run.mode == NATIVE:
        return memory_of(trees.descendants(run.process.pid)), 0
    pids = [copy["pid"] for process in run.status()["processes"] for copy in (process["primary"], *process["standbys"]) if copy]
    folder = os.path.join(run.bench.state, run.name)
    segments = sum(os.stat(os.path.join(folder, name)).st_blocks * 512 for name in os.listdir(folder) if name.startswith("segment"))
    return memory_of(pids), segments


def redis_command(port, _):
    return [*programs.redis_command(port), "--maxclients", "9500"]


def memcached_command(port, _):
    return [*programs.memcached_command(port), "-c", "9500"]


def nginx_command(port, folder):
    return trees.nginx_command(port, folder, 1, connections=trees.nginx_room(9500))


SERVERS = {
    "redis": ("redis", redis_command, 1),
    "nginx": ("http", nginx_command, 2),
    "memcached": ("memcached", memcached_command, 1),
    "haproxy": ("http", None, 1),
}
"""Name -> what connload asks, its command, and how many processes get a standby."""


@lasts(420)
def connections(bench, results):
    """50 to 9000 connections to redis, nginx, memcached and HAProxy: CPU of all primaries, throughput, memory of a connection"""
    bench.need_compiled("connload")
    drawn, speeds = {}, {}
    for name in SERVERS:
        try:
            ratios, speed = connections_of(bench, results, name)
        except Missing as why:
            results.missing(f"connections of {name}", str(why))
        else:
            drawn[name], speeds[name] = ratios, speed
    for of, what, words in ((drawn, "cpu", "CPU of the primaries a request, times native"), (speeds, "throughput", "throughput, times native")):
        of = {name: points for name, points in of.items() if points}
        if of:
            results.picture(f"connections-{what}", plot.lines("Connections", "connections", words, of, log_x=True))


def connections_of(bench, results, name):
    ratios, speeds, sizes = [], [], {}
    for count in CONNECTIONS:
        cpu, rate, turns = [], [], 0
        try:
            for turn in range(min(bench.args.server_rounds, 3)):
                native, protected = (loaded(bench, results, name, mode, count, turn) for mode in (NATIVE, PROTECTED))
                turns += protected["in_turns"]
                cpu.append((native["cpu_us"], protected["cpu_us"]))
                rate.append(protected["per_s"] / native["per_s"])
                sizes.setdefault(count, []).append((native["bytes"], protected["bytes"]))
        except Missing:
            raise
        except Failed as why:
            results.failed(f"{name}, {count} connections", str(why))
        if not cpu:
            continue
        doubt = f"throughput {statistics.median(rate):.2f} x native" + (f"; in turns in {turns} of {len(cpu)} rounds" if turns else "")
        results.ratio(f"{name}, {count} connections: CPU a request", *zip(*cpu), None, "us", doubt=doubt)
        ratios.append(spread(count, [protected / native for native, protected in cpu]))
        speeds.append(spread(count, rate))
    if len(sizes) > 1:
        few, many = min(sizes), max(sizes)
        native, protected = (
            statistics.median((after[mode] - before[mode]) / (many - few) for before, after in zip(sizes[few], sizes[many])) for mode in (0, 1)
        )
        what = f"between {few} and {many} connections, the server's processes only"
        results.add(f"{name}: memory of a connection", "none", f"{native / 1024:.2f} KiB", "", f"{protected / 1024:.2f} KiB, all copies", "", "-", what)
    return ratios, speeds


def loaded(bench, results, name, mode, count, turn):
    """CPU of a request, requests a second and bytes of all copies, of one server with so many connections."""
    kind, command, processes = SERVERS[name]
    port, behind = free_port(), None
    folder = os.path.join(bench.folder, f"{name}-{count}-{turn}-{mode}")
    os.makedirs(os.path.join(folder, "pages"))
    os.chmod(bench.folder, 0o711)
    trees.written(os.path.join(folder, "pages"), "page", "x" * 512)
    requests = max(REQUESTS, count * 10)
    try:
        if command is None:
            argv, behind = trees.haproxy_before_nginx(bench, port, folder, connections=9500)
        else:
            argv = command(port, folder)
        with bench.start(mode, argv, more=PATIENT) as run:
            run.primary()
            run.await_port(port)
            trees.await_tree(run, processes)
            load = [bench.path("connload"), kind, str(port), str(count), str(requests)]
            with Load(bench, load) as client:
                time.sleep(0.3)
                # What raced while the connections were made has its next standby by now, if it gets one.
                trees.await_tree(run, processes)
                run.begin()
                size, _ = weighed(run)
                before = trees.tree_cpu_s(run)
                per_s = float(fields(client.go())["per_s"])
                used = trees.tree_cpu_s(run) - before
                run.check_protected()
                trees.await_tree(run, processes)
    finally:
        if behind:
            behind.terminate()
            behind.wait()
        shutil.rmtree(folder)
    figures = {"cpu_us": used / requests * 1e6, "per_s": per_s, "bytes": size, "in_turns": int(run.order() == "serial")}
    for what, value in figures.items():
        results.raw(f"{name} {count} connections", mode, turn, what, value)
    return figures


class Load:
    """A load that has its connections, and begins when it is told to."""

    def __init__(self, bench, command):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=bench.pinned(bench.other_core)
        )

    def __enter__(self):
        if self.process.stdout.readline() != "ready\n":
            _, errors = self.process.communicate()
            raise Failed(f"the load: {errors.strip()[-200:]}")
        return self

    def go(self):
        try:
            output, errors = self.process.communicate("go\n", timeout=120)
        except subprocess.TimeoutExpired:
            raise Failed("the load did not end within 120 s") from None
        if self.process.returncode:
            raise Failed(f"the load: {errors.strip()[-200:]}")
        return output

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


BENCHMARKS = {"threads": threads, "connections": connections}


def smoke(bench):
    """That the programs compute the same in each mode, and the load asks a native redis."""
    bench.need_compiled("threads")
    lines = set()
    for mode in (NATIVE, PROTECTED):
        with bench.start(mode, [bench.path("threads"), "8", "8000"], stdout=subprocess.PIPE, more=PATIENT, pinned=False) as run:
            lines.add(fields(run.finish(60))["hash"])
    if len(lines) != 1:
        raise Failed("threads computes differently when protected")
    bench.need_compiled("connload")
    try:
        need("redis-server")
    except Missing as why:
        print(f"bench/run --smoke: skipped connload: {why}")
        return
    port = free_port()
    with bench.start(NATIVE, programs.redis_command(port)) as run:
        run.await_port(port)
        with Load(bench, [bench.path("connload"), "redis", str(port), "30", "300"]) as load:
            if fields(load.go())["requests"] != "300":
                raise Failed("connload miscounts")
