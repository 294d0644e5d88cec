"""What one operation costs, in nanoseconds."""

import os
import subprocess

from harness import ALONE, NATIVE, PROTECTED, Failed, fields, lasts

MODES = (NATIVE, ALONE, PROTECTED)
KIB = 1024


def once(bench, mode, program, options):
    """One run of a micro benchmark: its line of output as a dictionary."""
    # A standby that does not get its core for a moment on a busy machine must not end the measurement.
    patient = ["--lag-timeout", "10000"]
    with bench.start(mode, [bench.path(program), *options], stdout=subprocess.PIPE, more=patient) as run:
        line = fields(run.finish(60))
    if mode == PROTECTED and float(line["min_ns"]) <= 0:
        raise Failed(f"{program} reports no time")
    return line


def compare(bench, results, label, program, options, judge, rounds=None):
    """Interleaves the modes; `judge(native, protected)` gives (goal, figure, limit, how the figure is shown)."""
    try:
        lines = interleaved(bench, results, label, program, options, rounds or bench.args.rounds)
    except Failed as failure:
        results.failed(label, str(failure))
    else:
        results.nanoseconds(label, lines, judge)


def interleaved(bench, results, label, program, options, rounds):
    lines = {mode: [] for mode in MODES}
    for turn in range(rounds):
        for mode in MODES:
            line = once(bench, mode, program, options)
            lines[mode].append(line)
            for figure in ("min_ns", "median_ns", "p90_ns"):
                results.raw(label, mode, turn, figure, float(line[figure]))
    if len({line["hash"] for mode in MODES for line in lines[mode]}) != 1:
        raise Failed("the hash of the work differs between modes or runs")
    return lines


def over(limit, armed=None):
    """At most so many ns over native; `armed`: while syscall user dispatch is on in the primary."""
    goal = f"<= {limit} ns over native" + (f" ({armed} where dispatch is armed)" if armed else "")
    return lambda native, protected: (goal, protected - native, limit, "{:+.1f} ns")


def times(limit):
    """At most so many times native."""
    return lambda native, protected: (f"<= {limit} x native", protected / native, limit, "{:.2f} x")


def no_goal_over(native, protected):
    """No goal, in nanoseconds."""
    return ("none", protected - native, None, "{:+.1f} ns")


def no_goal_times(native, protected):
    """No goal, as a factor."""
    return ("none", protected / native, None, "{:.2f} x")


@lasts(20)
def lock(bench, results):
    """pthread_mutex_lock + unlock, uncontended, in a process of two threads"""
    compare(bench, results, "lock + unlock", "lock", [], over(8))
    # Without pauses the ring is full and the primary waits: this is the standby's speed.
    compare(bench, results, "lock + unlock without a pause", "lock", ["--pause-us", "0", "--batches", "100"], no_goal_times, 2)


@lasts(8)
def clock(bench, results):
    """clock_gettime"""
    compare(bench, results, "clock_gettime", "clock", [], over(5))


@lasts(8)
def gettimeofday(bench, results):
    """gettimeofday"""
    compare(bench, results, "gettimeofday", "gettimeofday", [], no_goal_over)


@lasts(8)
def getppid(bench, results):
    """a system call inside glibc, by its patched site"""
    compare(bench, results, "getppid", "getppid", [], over(35, armed=65))


@lasts(40)
def read(bench, results):
    """read of 64 bytes, 4 KB, 16 KB"""
    compare(bench, results, "read 64 B of /dev/zero", "read", [], over(45))
    compare(bench, results, "read 4 KB of /dev/zero", "read", ["--bytes", "4096"], no_goal_times)
    compare(bench, results, "read 16 KB of /dev/zero", "read", ["--bytes", "16384"], times(1.5))
    path = file_of(bench, 1024 * KIB)
    compare(bench, results, "read 16 KB of a file", "read", ["--bytes", "16384", "--path", path], times(1.5))


@lasts(20)
def write(bench, results):
    """write of 64 bytes, 4 KB"""
    compare(bench, results, "write 64 B to /dev/null", "write", [], over(45))
    compare(bench, results, "write 4 KB to /dev/null", "write", ["--bytes", "4096"], no_goal_times)


def file_of(bench, size):
    path = bench.path("input")
    with open(path, "wb") as file:
        file.write(bytes(i * 7 & 255 for i in range(4096)) * (size // 4096))
    return path


BENCHMARKS = {"lock": lock, "clock": clock, "gettimeofday": gettimeofday, "getppid": getppid, "read": read, "write": write}


def smoke(bench):
    tiny = ["--batches", "2", "--ops", "50"]
    path = file_of(bench, 64 * KIB)
    for program, options in (
        ("lock", []),
        ("clock", []),
        ("gettimeofday", []),
        ("getppid", []),
        ("read", []),
        ("read", ["--bytes", "1000", "--path", path, "--ops", "25"]),
        ("write", ["--bytes", "4096"]),
    ):
        hashes = {once(bench, mode, program, tiny + options)["hash"] for mode in MODES}
        if len(hashes) != 1:
            raise Failed(f"{os.path.basename(program)} computes differently when protected")
