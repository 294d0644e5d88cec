"""What real programs cost: CPU time of the primary, the standby's effort, memory, start-up, coverage."""

import hashlib
import os
import random
import re
import subprocess
import time

from harness import ALONE, NATIVE, PROTECTED, ROOT, Failed, cpu_s, fields, free_port, lasts, need

CONNECTIONS = 50

TWINS = "twins"
"""Native, with a second native one on the other core: what a standby that computes costs by its mere presence."""


def redis_command(port):
    return [need("redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]


def memcached_command(port):
    # The LRU maintainer races with the clock by design (it reads the time without a lock).
    options = "no_lru_maintainer,no_lru_crawler"
    return [need("memcached"), "-u", "root", "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-t", "4", "-m", "256", "-o", options]


def server_rounds(bench, results, label, command, loads, limit):
    """CPU of the server per request, native and protected in turn. `loads`: name -> f(port) that puts one
    load on it and returns (requests, requests per second)."""
    per_request = {(name, mode): [] for name in loads for mode in (NATIVE, PROTECTED)}
    speed = {key: [] for key in per_request}
    lost = []
    for turn in range(bench.args.server_rounds):
        try:
            figures = [server_round(bench, mode, command, loads) for mode in (NATIVE, PROTECTED)]
        except Failed as why:
            # Half a pair compares with nothing.
            lost.append(str(why))
            continue
        for mode, of in zip((NATIVE, PROTECTED), figures):
            for name, (used_us, per_s) in of.items():
                per_request[name, mode].append(used_us)
                speed[name, mode].append(per_s)
                results.raw(f"{label} {name}", mode, turn, "cpu_us_per_request", used_us)
                results.raw(f"{label} {name}", mode, turn, "requests_per_s", per_s)
    if len(lost) == bench.args.server_rounds:
        raise Failed(f"in every round: {lost[-1]}")
    for name in loads:
        results.ratio(
            f"{label} {name}: CPU a request",
            per_request[name, NATIVE],
            per_request[name, PROTECTED],
            limit,
            "us",
            doubt="; ".join(
                [slower_client(speed[name, NATIVE], speed[name, PROTECTED])]
                + ([f"{len(lost)} of {bench.args.server_rounds} rounds lost: {lost[-1]}"] if lost else [])
            ),
        )
    if lost:
        results.failures.append(label)


def server_round(bench, mode, command, loads, more=()):
    """load -> (CPU of the server in us per request, requests per second)."""
    figures = {}
    port = free_port()
    with bench.start(mode, command(port), more=more) as run:
        pid = run.primary()
        run.await_port(port)
        for name, load in loads.items():
            before = cpu_s(pid)
            requests, per_s = load(port)
            after = cpu_s(pid)
            run.check_protected()
            if before is None or after is None:
                raise Failed(f"the server ({mode}) is gone")
            figures[name] = ((after - before) / requests * 1e6, per_s)
    return figures


def slower_client(native, protected):
    """With fewer requests under way at once a server's event loop is dearer per request."""
    change = sum(protected) / len(protected) / (sum(native) / len(native)) - 1
    return f"throughput {change:+.0%}: the load generator shares a core with the standby"


@lasts(90)
def redis(bench, results):
    """redis-server under redis-benchmark: CPU of the primary a request"""

    def load(kind):
        return lambda port: redis_load(bench, port, kind, 250_000)

    server_rounds(bench, results, "redis", redis_command, {"GET": load("get"), "SET": load("set")}, 1.05)


def redis_load(bench, port, kind, requests):
    command = [need("redis-benchmark"), "-p", str(port), "-t", kind, "-n", str(requests), "-c", str(CONNECTIONS), "-r", "100000", "-d", "64", "--csv"]
    output = bench.helper(command, 120)
    found = re.search(rf'^"{kind}","([0-9.]+)"', output, re.MULTILINE | re.IGNORECASE)
    if not found:
        raise Failed(f"redis-benchmark said nothing of {kind}: {output[-200:]}")
    return requests, float(found.group(1))


@lasts(50)
def memcached(bench, results):
    """memcached -t 4 under nine gets and one set: CPU of the primary a request"""

    server_rounds(bench, results, "memcached", memcached_command, {"get/set": lambda port: memcached_load(bench, port)}, 1.08)


def memcached_load(bench, port, requests=250_000):
    line = fields(bench.helper([bench.path("mcload"), str(port), str(CONNECTIONS), str(requests)], 120))
    return int(line["requests"]), float(line["per_s"])


@lasts(70)
def pbzip2(bench, results):
    """pbzip2 -p2 of 48 MB of text: CPU and output"""
    path = text_of(bench, 48_000_000)
    used = {NATIVE: [], TWINS: [], PROTECTED: []}
    walls = {mode: [] for mode in used}
    digests = set()
    lost = []
    for turn in range(bench.args.server_rounds):
        try:
            figures = [compressed(bench, mode, path) for mode in used]
        except Failed as why:
            lost.append(str(why))
            continue
        for mode, (cpu, wall, digest) in zip(used, figures):
            used[mode].append(cpu)
            walls[mode].append(wall)
            digests.add(digest)
            results.raw("pbzip2", mode, turn, "cpu_s", cpu)
            results.raw("pbzip2", mode, turn, "wall_s", wall)
    if len(lost) == bench.args.server_rounds:
        raise Failed(f"in every round: {lost[-1]}")
    if len(digests) != 1:
        raise Failed("the compressed files differ")
    doubt = "its last 5 ms are not seen"
    if lost:
        results.failures.append("pbzip2")
        doubt += f"; {len(lost)} of {bench.args.server_rounds} rounds lost: {lost[-1]}"
    results.ratio("pbzip2: CPU", used[NATIVE], used[PROTECTED], 1.02, "s", doubt)
    results.ratio("pbzip2: CPU, against two native ones, one a core", used[TWINS], used[PROTECTED], None, "s", "what two busy cores cost each other without us")
    results.ratio("pbzip2: time until the primary ended", walls[NATIVE], walls[PROTECTED], None, "s")


def compressed(bench, mode, path):
    """CPU and wall time of one run until the primary has ended, and what it wrote."""
    command = [need("pbzip2"), "-p2", "-k", "-c", path]
    twin = None
    if mode == TWINS:
        twin = subprocess.Popen(command, stdout=subprocess.DEVNULL, preexec_fn=bench.pinned(bench.other_core))
    try:
        return compressed_here(bench, NATIVE if twin else mode, command)
    finally:
        if twin:
            twin.kill()
            twin.wait()


def compressed_here(bench, mode, command):
    with open(bench.path("output.bz2"), "wb") as output:
        started = time.monotonic()
        # Its reader runs ahead of compressors that need 100 ms a block: a standby on a core that others use
        # as well would be given up, and the CPU time is the question here.
        with bench.start(mode, command, stdout=output, more=["--lag-timeout", "10000"]) as run:
            cpu = watch_cpu(run)
            wall = time.monotonic() - started
            run.finish(60)
    return cpu, wall, digest_of(bench.path("output.bz2"))


def watch_cpu(run):
    """CPU of a program that ends by itself: looked at until it is gone, native and protected alike."""
    pid = run.primary()
    last = 0.0
    while True:
        now = cpu_s(pid)
        if now is None or run.process.poll() is not None:
            return last
        last = max(last, now)
        if is_zombie(pid):
            return last
        time.sleep(0.005)


def is_zombie(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def digest_of(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def text_of(bench, size):
    """Text from a fixed seed: compressible like prose, the same everywhere."""
    path = bench.path("text")
    dice = random.Random(20)
    words = ["".join(dice.choices("etaoinshrdlu", k=dice.randint(1, 9))) for _ in range(5000)]
    lines = [" ".join(dice.choices(words, k=12)) for _ in range(20_000)]
    with open(path, "w", encoding="ascii") as file:
        written = 0
        while written < size:
            written += file.write("\n".join(dice.choices(lines, k=2000)) + "\n")
    return path


@lasts(35)
def sustain(bench, results):
    """redis, 30 s of full load: does the standby keep up, what does it use; size of the segment"""
    port = free_port()
    with bench.start(PROTECTED, redis_command(port)) as run:
        primary = run.primary()
        run.await_port(port)
        standby = run.standby()
        full_load(bench, run, port, primary, standby, results)
        memory(run, results)


def full_load(bench, run, port, primary, standby, results):
    command = [need("redis-benchmark"), "-p", str(port), "-t", "set", "-n", "1000000000", "-c", str(CONNECTIONS), "-r", "100000", "-d", "64", "-q"]
    load = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=bench.pinned(bench.other_core))
    try:
        before = cpu_s(primary), cpu_s(standby)
        lags, published = [], []
        end = time.monotonic() + bench.args.seconds
        while time.monotonic() < end:
            time.sleep(1)
            run.check_protected()
            if load.poll() is not None:
                raise Failed("redis-benchmark ended before its time")
            status = run.status()
            published.append((time.monotonic(), status["events_total"]))
            lags.append(status["processes"][0]["standbys"][0]["lag_events"])
            results.raw("redis under full load", PROTECTED, len(lags), "lag_events", lags[-1])
        after = cpu_s(primary), cpu_s(standby)
        run.check_protected()
        used = [late - early for late, early in zip(after, before)]
    finally:
        load.terminate()
        load.wait()
    half = len(published) // 2
    span = published[-1][0] - published[half][0]
    rate = (published[-1][1] - published[half][1]) / span if span > 0 else 0
    if rate <= 0:
        raise Failed("no event was published under load")
    results.raw("redis under full load", PROTECTED, 0, "events_per_s", rate)
    results.raw("redis under full load", PROTECTED, 0, "standby_cpu_share", used[1] / used[0])
    results.limit(
        f"redis, {bench.args.seconds:.0f} s full load: lag at the end",
        f"< one second's worth ({rate:.0f} events)",
        f"{lags[-1]} events (most: {max(lags)})",
        lags[-1] < rate,
    )


def memory(run, results):
    threads = run.status()["processes"][0]["primary"]["threads"]
    path = os.path.join(run.bench.state, run.name, "segment")
    used = os.stat(path).st_blocks * 512
    allowed = 2 * 2**20 + threads * 1.25 * 2**20
    results.raw("redis after full load", PROTECTED, 0, "segment_bytes", used)
    results.limit(f"segment of redis, {threads} threads", f"<= {allowed / 2**20:.2f} MiB", f"{used / 2**20:.2f} MiB", used <= allowed)


@lasts(3)
def startup(bench, results):
    """/bin/true from start to end"""
    times = {NATIVE: [], ALONE: [], PROTECTED: []}
    for turn in range(40):
        for mode, list_of in times.items():
            command = ["/bin/true"]
            if mode != NATIVE:
                standbys = "1" if mode == PROTECTED else "0"
                command = [bench.understudy, "run", "-q", "--standbys", standbys, "--cpus", bench.args.cpus, "--", *command]
            started = time.perf_counter()
            done = subprocess.run(command, env=bench.environment, stdin=subprocess.DEVNULL, check=False)
            list_of.append((time.perf_counter() - started) * 1e3)
            if done.returncode:
                raise Failed(f"/bin/true ({mode}) ended with {done.returncode}")
            results.raw("start-up", mode, turn, "wall_ms", list_of[-1])
    results.difference("start-up of /bin/true", times, 15, "ms")


@lasts(20)
def coverage(bench, results):
    """share of the syscall sites of glibc and ld.so that are patched"""
    command = ["cargo", "run", "-q", "-p", "us-sites", "--release", "--example", "count"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{' '.join(command)}: {done.stderr.strip()[-200:]}")
    found = re.findall(r"(\d+)\s+system calls, (\d+) of them patched", done.stdout)
    if not found:
        raise Failed(f"the count of sites is not understood: {done.stdout[:200]}")
    total, patched = (sum(int(pair[i]) for pair in found) for i in (0, 1))
    results.raw("coverage", NATIVE, 0, "sites_patched", patched)
    results.raw("coverage", NATIVE, 0, "sites", total)
    share = patched / total
    results.limit("syscall sites of glibc and ld.so", ">= 95 %", f"{share:.1%} ({patched} of {total})", share >= 0.95)


BENCHMARKS = {
    "redis": redis,
    "memcached": memcached,
    "pbzip2": pbzip2,
    "sustain": sustain,
    "startup": startup,
    "coverage": coverage,
}


def smoke(bench):
    """The load generator for memcached, against a native one: what it checks, it must be able to check."""
    try:
        need("memcached")
    except Failed as why:
        print(f"bench/run --smoke: skipped mcload: {why}")
        return
    port = free_port()
    with bench.start(NATIVE, memcached_command(port)) as run:
        run.await_port(port)
        hashes = {fields(bench.helper([bench.path("mcload"), str(port), "4", "400"], 60))["hash"] for _ in range(2)}
    if len(hashes) != 1:
        raise Failed("mcload asks for something else each time")
