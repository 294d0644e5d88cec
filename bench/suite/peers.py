"""What else watches, records or copies a process on this machine, measured in the same run on the same programs."""

import os
import re
import statistics
import subprocess
import time

import micro
import plot
import programs
import trees
from harness import ALONE, NATIVE, PROTECTED, RECORDED, Failed, Missing, end, fields, free_port, lasts, need

STRACE = ["strace", "-f", "-qq", "-o", "/dev/null"]
VALGRIND = ["valgrind", "--tool=none", "-q", "--fair-sched=yes"]

BEFORE = {"strace -f": STRACE, "valgrind --tool=none": VALGRIND}
"""Commands that stand before a program's own. Valgrind's is the floor of every tool that runs a program's instructions itself."""

OURS = {"understudy": PROTECTED, "understudy, no standby": ALONE, "understudy record": RECORDED}

GDB = "gdb, record full"
GDB_CALLS = 41
"""System calls that gdb records, one instruction at a time."""

TOUCHED_MIB = 64

PATIENT = ["--lag-timeout", "10000"]


@lasts(100)
def peers(bench, results):
    """strace -f, valgrind's none, gdb's record and CRIU beside Understudy: a system call, a lock, redis, pbzip2; 64 MiB dumped and restored"""
    drawn = {}
    for what, unit, measure in (
        ("getppid", "ns", lambda prefix, mode: micro_ns(bench, prefix, mode, "getppid")),
        ("lock + unlock", "ns", lambda prefix, mode: micro_ns(bench, prefix, mode, "lock")),
        ("redis GET: time a request", "us", lambda prefix, mode: redis_us(bench, prefix, mode)),
        ("pbzip2 -p2, both cores for all", "s", lambda prefix, mode: pbzip2_s(bench, prefix, mode)),
    ):
        try:
            drawn |= compared(bench, results, what, unit, measure)
        except Missing as why:
            results.missing(what, str(why))
    alone(results, GDB, lambda: gdb(bench, results, drawn))
    if drawn:
        results.picture("peers", plot.bars("The same programs under what Debian has", "times native", drawn, log=True))
    alone(results, "CRIU", lambda: criu(bench, results))


def alone(results, what, measure):
    try:
        measure()
    except Missing as why:
        results.missing(what, str(why))
    except Failed as why:
        results.failed(what, str(why))


def compared(bench, results, what, unit, measure):
    """A row for each way; name -> ratios. Natively in each round as well."""
    ways = {**{name: ([], mode) for name, mode in OURS.items()}, **{name: (prefix, NATIVE) for name, prefix in BEFORE.items()}}
    times, native = {name: [] for name in ways}, []
    for turn in range(min(bench.args.rounds, 3)):
        native.append(measure([], NATIVE))
        results.raw(what, NATIVE, turn, unit, native[-1])
        for name, (prefix, mode) in ways.items():
            try:
                times[name].append(measure([need(prefix[0]), *prefix[1:]] if prefix else [], mode))
            except Missing as why:
                if turn == 0:
                    results.missing(f"{what}: {name}", str(why))
                continue
            except Failed as why:
                results.failed(f"{what}: {name}", str(why))
                continue
            results.raw(what, name, turn, unit, times[name][-1])
    found = {}
    for name, values in times.items():
        if len(values) == len(native):
            results.ratio(f"{what}: {name}", native, values, None, unit)
            ratios = [value / plain for plain, value in zip(native, values)]
            found[f"{what.partition(':')[0].partition(',')[0]}: {name}"] = (min(ratios), statistics.median(ratios), max(ratios))
    return found


def micro_ns(bench, prefix, mode, program):
    if not prefix and mode != RECORDED:
        return float(micro.once(bench, mode, program, [])["min_ns"])
    # Both a tracer and its program find a core.
    with bench.start(mode, [*prefix, bench.path(program), "--batches", "10"], stdout=subprocess.PIPE, pinned=not prefix) as run:
        return float(fields(run.finish(120))["min_ns"])


def redis_us(bench, prefix, mode):
    port = free_port()
    with bench.start(mode, [*prefix, *programs.redis_command(port)], pinned=not prefix) as run:
        try:
            run.await_port(port)
            _, per_s = programs.redis_load(bench, port, "get", 3000 if prefix else 60_000)
            run.check_protected()
        finally:
            # A tracer that is asked to end lets its program go on.
            for pid in trees.descendants(run.process.pid)[1:] if prefix else []:
                end(pid)
    return 1e6 / per_s


def pbzip2_s(bench, prefix, mode):
    path = bench.path("peers-text")
    if not os.path.exists(path):
        os.rename(programs.text_of(bench, 6_000_000), path)
    started = time.monotonic()
    with bench.start(mode, [*prefix, need("pbzip2"), "-p2", "-k", "-c", path], more=PATIENT if mode == PROTECTED else [], pinned=False) as run:
        run.finish(300)
        return time.monotonic() - started


def gdb(bench, results, drawn):
    """gdb records from the first call until the clock is read, and says itself how long it took. It knows no instruction of AVX,
    no clone3 and no rdtscp, so no more of a program can be recorded than that."""
    steps = ["set pagination off", "set confirm off", "set debuginfod enabled off", "set startup-with-shell off", "break main", "run", "delete"]
    steps += ["break getppid", "continue", "delete", "set record full insn-number-max 0", "set scheduler-locking on", "break clock_gettime", "record full"]
    steps += ["python import time; began = time.monotonic()", "continue", "python print('took', time.monotonic() - began)", "record stop", "kill"]
    tuned = "glibc.cpu.hwcaps=-AVX512VL,-AVX512F,-AVX512BW,-AVX2,-AVX,-ERMS,-BMI1,-BMI2,-XSAVE,-XSAVEC,-RTM,-MOVBE,-LZCNT"
    command = [need("gdb"), "-q", "-batch", "-nx", *(word for step in steps for word in ("-ex", step))]
    # Before the first batch a tenth of it, and one, warms up.
    command += ["--args", bench.path("getppid"), "--batches", "1", "--ops", str((GDB_CALLS - 1) * 10)]
    native = micro_ns(bench, [], NATIVE, "getppid")
    took = []
    for turn in range(min(bench.args.rounds, 3)):
        try:
            done = subprocess.run(command, env=dict(os.environ, GLIBC_TUNABLES=tuned), capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            raise Failed("gdb did not end within 120 s") from None
        found = re.search(r"^took ([0-9.]+)", done.stdout, re.MULTILINE)
        refused = re.search(r"^Process record.*not support.*", done.stdout + done.stderr, re.MULTILINE)
        if refused or not found:
            raise Missing(refused[0] if refused else f"gdb: {(done.stderr or done.stdout).strip()[-200:]}")
        took.append(float(found[1]) / GDB_CALLS * 1e9)
        results.raw("getppid", GDB, turn, "ns", took[-1])
    results.ratio(f"getppid: {GDB}", [native] * len(took), took, None, "ns", "only the calls: gdb cannot record this program's threads and clocks")
    drawn[f"getppid: {GDB}"] = (min(took) / native, statistics.median(took) / native, max(took) / native)


def criu(bench, results):
    """A dump and a restore, in which nobody answers, beside a failover and a new standby of the same process."""
    program = need("criu")
    checked = subprocess.run([program, "check"], capture_output=True, text=True, check=False)
    if checked.returncode:
        first = next((line for line in checked.stderr.splitlines() if "Error" in line and "exited" not in line), "criu check fails")
        raise Missing(f"{said(program)} does not work on this kernel: {first.strip()}")
    command = [bench.path("touched"), str(TOUCHED_MIB)]
    dumps, restores = [], []
    for turn in range(min(bench.args.rounds, 3)):
        images = bench.path(f"criu-{turn}")
        os.makedirs(images)
        with subprocess.Popen(["setsid", *command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                time.sleep(1)
                dumps.append(timed([program, "dump", "-t", str(process.pid), "-D", images, "-o", "log"]))
            finally:
                end(process.pid)
        restores.append(timed([program, "restore", "-d", "-D", images, "-o", "log", "--pidfile", "pid"]))
        with open(os.path.join(images, "pid"), encoding="ascii") as file:
            end(int(file.read()))
        for name, values in (("dump_ms", dumps), ("restore_ms", restores)):
            results.raw("CRIU", "criu", turn, name, values[-1])
    results.distribution(f"CRIU: dump of {TOUCHED_MIB} MiB, ms", dumps, "it stands still; what was acknowledged afterwards is lost")
    results.distribution(f"CRIU: restore of {TOUCHED_MIB} MiB, ms", restores, "beside it: `reclone` and `blackout`")


def timed(command):
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise Failed(f"{' '.join(command[:2])}: {done.stderr.strip()[-200:]}")
    return (time.monotonic() - started) * 1000


def said(program):
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return "CRIU " + done.stdout.split("\n")[0].split(":")[-1].strip()


BENCHMARKS = {"peers": peers}
