"""pbzip2 by threads and by size of its blocks, and short bursts against load that lasts."""

import statistics

import micro
import plot
import programs
from harness import NATIVE, PROTECTED, Failed, lasts, need

THREADS = (2, 4, 8, 16, 24, 32)
BLOCKS = (1, 3, 9, 27)
"""In steps of 100 KB, of which pbzip2 takes at least one."""

BYTES = 24_000_000
BLOCK_THREADS = 32


@lasts(180)
def compress(bench, results):
    """pbzip2 with 2 to 32 threads, and with blocks of 100 KB to 2.7 MB: time until the primary ended"""
    need("pbzip2")
    path = programs.text_of(bench, BYTES)
    overhead = []
    for threads in THREADS:
        pairs = swept(bench, results, path, f"pbzip2 -p{threads}", [f"-p{threads}", "-b9"])
        if pairs:
            ratio, low, high = ratios(pairs)
            overhead.append((threads, low, ratio, high))
            if threads <= 24:
                results.compared(f"pbzip2 {threads} threads", f"{ratio - 1:+.1%} ({low - 1:+.1%} to {high - 1:+.1%})")
    if overhead:
        results.picture("pbzip2-threads", plot.lines("pbzip2 by threads", "threads", "time, times native", {"protected": overhead}))
    blocks = {NATIVE: [], PROTECTED: []}
    for block in BLOCKS:
        pairs = swept(bench, results, path, f"pbzip2 -p{BLOCK_THREADS}, blocks of {block}00 KB", [f"-p{BLOCK_THREADS}", f"-b{block}"])
        if not pairs:
            continue
        for at, mode in enumerate((NATIVE, PROTECTED)):
            rates = [BYTES / (block * 100_000) / pair[at] for pair in pairs]
            blocks[mode].append((block * 100, min(rates), statistics.median(rates), max(rates)))
        if block == BLOCKS[0]:
            ratio, low, high = ratios(pairs)
            results.compared("pbzip2 small blocks", f"{1 / ratio:.0%} of native at 100 KB ({1 / high:.0%} to {1 / low:.0%})")
    if blocks[PROTECTED]:
        results.picture("pbzip2-blocks", plot.lines("pbzip2 by size of blocks, 32 threads", "KB of a block", "blocks a second", blocks, log_x=True))


def swept(bench, results, path, what, options):
    """Times of both modes, s, of each round that gave both."""
    pairs, lost, digests = [], [], set()
    for turn in range(min(bench.args.server_rounds, 3)):
        try:
            figures = [programs.compressed_here(bench, mode, [need("pbzip2"), *options, "-k", "-c", path]) for mode in (NATIVE, PROTECTED)]
        except Failed as why:
            lost.append(str(why))
            continue
        for mode, (cpu, wall, digest) in zip((NATIVE, PROTECTED), figures):
            results.raw(what, mode, turn, "cpu_s", cpu)
            results.raw(what, mode, turn, "wall_s", wall)
            digests.add(digest)
        pairs.append(tuple(wall for _, wall, _ in figures))
    if lost or len(digests) != 1:
        results.failed(what, lost[-1] if lost else "the compressed files differ")
    if pairs:
        results.ratio(f"{what}: time", *zip(*pairs), None, "s")
    return pairs


def ratios(pairs):
    found = [protected / native for native, protected in pairs]
    return statistics.median(found), min(found), max(found)


OPERATIONS = {
    "lock + unlock": ("lock", 400),
    "clock_gettime": ("clock", 400),
    "getppid": ("getppid", 400),
    "read 64 B": ("read", 400),
    "write 64 B": ("write", 400),
}
"""Name -> program, and batches of a run that lasts."""


@lasts(90)
def burst(bench, results):
    """locks, clocks and calls in short bursts, and without a pause: there the figure is the standby's speed"""
    drawn = {}
    for name, (program, batches) in OPERATIONS.items():
        kinds = {"burst": [], "sustained": ["--pause-us", "0", "--batches", str(batches)]}
        for kind, options in kinds.items():
            pairs = []
            for turn in range(min(bench.args.rounds, 3)):
                # A burst is judged by its usual batch, for one that lasts there is no better one either.
                pair = [float(micro.once(bench, mode, program, options)["median_ns"]) for mode in (NATIVE, PROTECTED)]
                pairs.append(pair)
                for mode, value in zip((NATIVE, PROTECTED), pair):
                    results.raw(f"{name}, {kind}", mode, turn, "median_ns", value)
            results.ratio(f"{name}, {kind}", *zip(*pairs), None, "ns")
            ratio, low, high = ratios(pairs)
            drawn[f"{name}, {kind}"] = (low, ratio, high)
    results.picture("burst", plot.bars("A burst, and load that lasts", "times native", drawn))
    lock = [drawn[f"lock + unlock, {kind}"][1] for kind in ("burst", "sustained")]
    results.compared("burst", f"a lock: {lock[0]:.2f} x native in bursts, {lock[1]:.2f} x sustained")


BENCHMARKS = {"compress": compress, "burst": burst}
