"""What published systems say of themselves, with the place, beside what the same run measured here."""

THESIS = "Wen, *Replication of Concurrent Applications in a Shared Memory Multikernel*, 2016"
FT_LINUX = "Losa and others, *Transparent Fault-Tolerance using Intra-Machine Full-Software-Stack Replication* (FT-Linux)"
CRANE = "Gu, *Reliable Synchronization in Multithreaded Servers* (CRANE), 2017"
REPLICANT = "Pool, *Kernel Support for Deterministic Redundant Execution* (Replicant), 2007"
DOS = "Bergan and others, *Deterministic Process Groups in dOS*, slides, 2010"


def replication(table, page, program, rows):
    """Rows of one of the thesis' tables: both of its ways, by threads."""
    for threads, execution, schedule in rows:
        yield THESIS, f"table {table}, p. {page}", f"{program}, {threads} threads", f"+{schedule} % schedule replication, +{execution} % deterministic execution", f"{program} {threads} threads"


PUBLISHED = (
    *replication("6.2", 38, "pbzip2", ((2, "14.27", "0.89"), (4, "29.47", "4.08"), (8, "44.77", "6.72"), (16, "54.44", "24.7"), (24, "63.39", "36.3"))),
    *replication("6.4", 41, "mongoose", ((4, "25.22", "1.35"), (8, "15.72", "0.27"), (16, "9.82", "0.23"))),
    *replication("6.6", 46, "nginx with a pool of threads", ((4, "3", "1.07"), (8, "1.62", "1.96"), (16, "1.6", "1.31"))),
    (FT_LINUX, "section 4.1, figure 4", "pbzip2, 32 threads, blocks of 50 to 100 KB", "close to 80 % of native's throughput; below 50 KB sustained falls steadily", "pbzip2 small blocks"),
    (FT_LINUX, "section 4.1, figure 4", "pbzip2, small blocks: burst against sustained load", "a burst follows native, sustained is the standby's speed", "burst"),
    (FT_LINUX, "section 4.2, figure 6", "Mongoose, pages of 10 KB, 100 connections, at full speed", "60 % of native; within 20 % below some 1500 requests a second", "mongoose 10 KB"),
    (FT_LINUX, "section 4.3", "Mongoose, 5 connections, beside a load that is not replicated", "700 requests a second of native's 760 (91 %); 1.4 ms of 1.3 ms", "beside"),
    (FT_LINUX, "section 4.4, figure 8", "10 GB through wget, without a failure", "up to 85 % of native", "wget protected"),
    (FT_LINUX, "section 4.4, figure 8", "10 GB through wget, the primary killed half way", "no bytes for roughly 5 s, 99 % of it the network card's driver", "wget killed"),
    (CRANE, "figure 4.1, section 4.3", "Apache, Mongoose, ClamAV, MediaTomb, MySQL", "+34.19 % on average; consensus alone 0.82 to 3.46 %", "servers on average"),
    (REPLICANT, "table 7.1, p. 57", "Apache, two processors", "2.56 s a kb of native's 1.93 (1.33 x)", "apache"),
    (REPLICANT, "table 7.1, p. 57", "MySQL, 16 threads, two processors", "18.18 s of native's 8.04 (2.26 x)", "mariadb"),
    (DOS, "slides *Apache*", "Apache, 16 threads, pages of 10 KB", "-26 % of the throughput in a group, -78 % recorded", "apache throughput"),
)
"""Source, place in it, of what, their words, and the name under which a benchmark of ours leaves its figure."""


def beside(ours):
    """The published figures and those of this run, as a table. `ours`: name -> words."""
    lines = [
        "# Published figures beside ours",
        "",
        "Of other machines, programs and faults: orders of magnitude compare, digits do not. Their machines had 2 to 64 processors, ours has two,",
        "and a standby that computes needs as much as its primary. A dash: this run did not measure it, or has nothing that compares.",
    ]
    source = None
    for of, place, what, theirs, key in PUBLISHED:
        if of != source:
            source = of
            lines += ["", f"## {of}", "", "| place | of what | they say | this run says |", "|---|---|---|---|"]
        lines.append(f"| {place} | {what} | {theirs} | {ours.get(key, '-')} |")
    return "\n".join(lines) + "\n"


def keys():
    """Names under which a benchmark may leave a figure."""
    return {key for *_, key in PUBLISHED}
