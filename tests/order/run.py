#!/usr/bin/env python3
"""How many outcomes a race has under each order: a line for each guest of the racey family.

    tests/order/run.py target/release/understudy [RUNS [RUNS_WITH_KILLS]] [--promised] [--nice] [--only GUEST]...

Each guest runs RUNS times natively and under each order without a standby: every second run on one processor. The kernel
places memory at random as it always does. With --nice every third run has the least priority: on a busy machine a thread that gets no
processor for half a second is passed over, and what comes of that is another outcome. Then RUNS_WITH_KILLS times with a standby, or with two, and its
primary killed once at a random moment, from a seed. A row says how many different outcomes there were. It fails where an order promises
one, with kills and without. With --promised only those are run.
"""

import argparse
import collections
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


def killed(understudy, order, program, chance, name, number):
    standbys = str(1 + number % 2)
    words = [understudy, "run", "-q", "--name", name, "--standbys", standbys, "--order", order, "--", program]
    words = CIRCUMSTANCES[number // 2 % len(CIRCUMSTANCES)] + words
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
    return said if group.returncode == 0 else f"{said} exit {group.returncode}", kills


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("understudy")
    parser.add_argument("runs", type=int, nargs="?", default=20)
    parser.add_argument("kills", type=int, nargs="?", default=6)
    parser.add_argument("--promised", action="store_true")
    parser.add_argument("--nice", action="store_true")
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
                words = [understudy, "run", "-q", "--standbys", "0", "--order", order, "--", program]
                alone = collections.Counter(run(words, number) for number in range(runs))
                both, kills = collections.Counter(), 0
                for turn in range(with_kills):
                    said, struck = killed(
                        understudy, order, program, chance, f"order-{os.getpid()}-{order[0]}{turn}", turn
                    )
                    both[said] += 1
                    kills += struck
                all_of_it = alone + both
                print(f"  {order}: {len(alone)} of {runs}, with {kills} kills {len(both)} of {with_kills}, "
                      f"all {len(all_of_it)}", flush=True)
                if is_promised and len(all_of_it) != 1:
                    wrong.append(f"{guest} {order}: {dict(all_of_it)}")
    for line in wrong:
        print("more than one outcome:", line)
    print(f"{promised - len(wrong)} passed, {len(wrong)} failed, 0 skipped")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
