#!/usr/bin/env python3
"""How many outcomes a race has under each order: a line for each guest of the racey family.

    tests/order/run.py target/release/understudy [RUNS [RUNS_WITH_KILLS]] [--promised] [--nice] [--only GUEST]...

Each guest runs RUNS times natively and under each order without a standby: every second run on one processor. The kernel
places memory at random as it always does. With --nice every third run has the least priority. Then RUNS_WITH_KILLS times with a standby, or with two, and its
primary killed once at a random moment, from a seed. A row says how many different outcomes there were, and how many different digests of
the whole order, turn by turn. It fails where an order promises one, with kills and without. With --promised only those are run. At last two of them run STARVED times in a control group that gives them
1.5 ms of a processor in each 0.9 s, where there may be such a group: for longer than half a second no thread has any.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import random
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Whose outcome is one where the order of their locks is.
LOCKED = ["racey_guarded", "racey_barrier", "racey_sdk", "racey_tcp"]
# Those that only turns put in order.
FREE = ["racey_unguarded", "racey_lockfree", "racey_calls"]
# Processes that share memory: each has an order of its own, and nothing is promised.
GUESTS = LOCKED + FREE + ["racey_fork"]
ONE = {"serial": LOCKED + FREE, "deterministic": LOCKED}
CIRCUMSTANCES = [[], ["taskset", "-c", "0"]]
NICE = ["nice", "-n", "19"]


def run(words, number):
    words = CIRCUMSTANCES[number % len(CIRCUMSTANCES)] + words
    done = subprocess.run(words, stdout=subprocess.PIPE, timeout=60)
    return done.stdout.decode().split("\n")[0] if done.returncode == 0 else f"exit {done.returncode}"


def order_of(events):
    """What the last event of a group says of its order: its digest, its turns, and how many of those the world has placed."""
    with open(events) as file:
        ended = [event for event in map(json.loads, file) if event["event"] == "ended"]
    os.remove(events)
    return tuple(ended[-1].get("order_" + name) for name in ["digest", "turns", "placed"]) if ended else None


def alone(understudy, order, program, folder, number):
    """Outcome and order of a run without a standby."""
    events = os.path.join(folder, f"events-{number}")
    words = [understudy, "run", "-q", "--standbys", "0", "--order", order, "--events", events, "--", program]
    return run(words, number), order_of(events)


def killed(understudy, order, program, chance, name, number, folder):
    standbys = str(1 + number % 2)
    events = os.path.join(folder, f"events-{number}")
    words = [understudy, "run", "-q", "--name", name, "--standbys", standbys, "--order", order, "--events", events]
    words = CIRCUMSTANCES[number // 2 % len(CIRCUMSTANCES)] + words + ["--", program]
    group = subprocess.Popen(words, stdout=subprocess.PIPE)
    kills, moment = 0, time.time() + chance.uniform(0.0, 0.25)
    while kills == 0 and group.poll() is None:
        time.sleep(max(0.002, moment - time.time()))
        told = subprocess.run([understudy, "status", "--json", name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            process = json.loads(told.stdout)["groups"][0]["processes"][0]
            if process["state"] == "protected":
                os.kill(process["primary"]["pid"], 9)
                kills = 1
        except (ValueError, LookupError, TypeError, ProcessLookupError):
            pass
    try:
        said = group.communicate(timeout=60)[0].decode().split("\n")[0]
    except subprocess.TimeoutExpired:
        subprocess.run([understudy, "stop", name])
        group.communicate()
        said = "hangs"
    return said if group.returncode == 0 else f"{said} exit {group.returncode}", kills, order_of(events)


def quota(folder):
    """Writes a group's quota: the files of the one kind of control groups, or of the other."""
    for name, text in [("cpu.max", "1500 900000"), ("cpu.cfs_period_us", "900000"), ("cpu.cfs_quota_us", "1500")]:
        if os.path.exists(os.path.join(folder, name)):
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)


def groups():
    """Where groups with a quota can be made; None if nowhere."""
    for above in ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"]:
        folder = os.path.join(above, f"order-{os.getpid()}")
        try:
            os.mkdir(folder)
            files = os.listdir(folder)
            os.rmdir(folder)
        except OSError:
            continue
        if "cpu.max" in files or "cpu.cfs_quota_us" in files:
            return folder
    return None


def starved(words, program, folder):
    """The outcome of one run in a group of its own: a shell enters that, and becomes the program."""
    os.mkdir(folder)
    try:
        quota(folder)
        enter = f"echo $$ > {folder}/cgroup.procs && exec {program}"
        done = subprocess.run([*words, "/bin/sh", "-c", enter], stdout=subprocess.PIPE, timeout=240)
        return done.stdout.decode().split("\n")[0] if done.returncode == 0 else f"exit {done.returncode}"
    finally:
        for _ in range(100):
            try:
                os.rmdir(folder)
                break
            except OSError:
                time.sleep(0.05)


def all_starved(understudy, folder, runs):
    """A row for each of two guests; those with more than one outcome, how many passed, and why none was run."""
    groups_folder = groups()
    if groups_folder is None:
        return [], 0, "no control group with a quota can be made here"
    wrong, passed = [], 0
    for guest in ["racey_sdk", "racey_guarded"]:
        words = [understudy, "run", "-q", "--standbys", "0", "--order", "serial", "--"]
        program = os.path.join(folder, guest)
        with concurrent.futures.ThreadPoolExecutor(4) as several:
            made = [several.submit(starved, words, program, f"{groups_folder}-{number}") for number in range(runs)]
            outcomes = collections.Counter(run.result() for run in made)
        print(f"{guest} serial, starved: {len(outcomes)} of {runs}", flush=True)
        if len(outcomes) == 1 and "exit" not in next(iter(outcomes)):
            passed += 1
        else:
            wrong.append(f"{guest} serial, starved: {dict(outcomes)}")
    return wrong, passed, None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("understudy")
    parser.add_argument("runs", type=int, nargs="?", default=20)
    parser.add_argument("kills", type=int, nargs="?", default=6)
    parser.add_argument("--promised", action="store_true")
    parser.add_argument("--nice", action="store_true")
    parser.add_argument("--starved", type=int, default=4, metavar="STARVED")
    parser.add_argument("--only", action="append", choices=GUESTS)
    asked = parser.parse_args()
    understudy, runs, with_kills = os.path.abspath(asked.understudy), asked.runs, asked.kills
    guests = asked.only or GUESTS
    if asked.nice:
        CIRCUMSTANCES.append(NICE)
    chance, wrong, promised = random.Random(1), [], 0
    with tempfile.TemporaryDirectory() as folder:
        for guest in guests:
            program = os.path.join(folder, guest)
            source = os.path.join(ROOT, "guests", guest + ".c")
            subprocess.run(["cc", "-O2", "-pthread", "-D_GNU_SOURCE", source, "-o", program], check=True)
            native = collections.Counter(run([program], number) for number in range(0 if asked.promised else runs))
            print(f"{guest}: natively {len(native)} of {sum(native.values())}", flush=True)
            for order in ["schedule", "serial", "deterministic"]:
                is_promised = guest in ONE.get(order, [])
                promised += is_promised
                if asked.promised and not is_promised:
                    continue
                said, both, orders, kills = [], [], collections.Counter(), 0
                for number in range(runs):
                    outcome, digest = alone(understudy, order, program, folder, number)
                    said.append(outcome)
                    orders[digest] += 1
                for turn in range(with_kills):
                    name = f"order-{os.getpid()}-{order[0]}{turn}"
                    outcome, struck, digest = killed(understudy, order, program, chance, name, turn, folder)
                    both.append(outcome)
                    orders[digest] += 1
                    kills += struck
                all_of_it = collections.Counter(said + both)
                placed = sum(1 for order_of_run in orders.elements() if not order_of_run or order_of_run[2] != 0)
                print(f"  {order}: {len(set(said))} of {runs}, with {kills} kills {len(set(both))} of {with_kills}, "
                      f"all {len(all_of_it)}; orders {len(orders)}, the world had a part in {placed}", flush=True)
                if is_promised and (len(all_of_it) != 1 or placed == 0 and len(orders) != 1):
                    wrong.append(f"{guest} {order}: {dict(all_of_it)}, orders {dict(orders)}")
        passed, skipped = promised - len(wrong), 0
        if asked.starved and {"racey_sdk", "racey_guarded"} <= set(guests):
            more, fine, why_not = all_starved(understudy, folder, asked.starved)
            wrong += more
            passed += fine
            if why_not:
                print("skipped: starved:", why_not)
                skipped = 1
    for line in wrong:
        print("more than one outcome, or order:", line)
    print(f"{passed} passed, {len(wrong)} failed, {skipped} skipped")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
