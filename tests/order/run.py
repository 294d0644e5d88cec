#!/usr/bin/env python3
"""How many outcomes a race has under each order: a line for each guest of the racey family.

    tests/order/run.py target/release/understudy [RUNS [RUNS_WITH_KILLS]]

Each guest runs RUNS times natively and under each order without a standby, and RUNS_WITH_KILLS times with one and its primary killed
once at a random moment, from a seed. A row says how many different outcomes there were. It fails where an order promises one, with kills and without.
"""

import collections
import json
import os
import random
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GUESTS = ["racey_guarded", "racey_barrier", "racey_sdk", "racey_unguarded"]
ONE = {"serial": GUESTS, "deterministic": ["racey_guarded", "racey_barrier", "racey_sdk"]}


def run(words):
    done = subprocess.run(words, stdout=subprocess.PIPE, timeout=60)
    return done.stdout.decode().split("\n")[0] if done.returncode == 0 else f"exit {done.returncode}"


def killed(understudy, order, program, chance, name):
    words = [understudy, "run", "-q", "--name", name, "--order", order, "--", program]
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
    understudy = os.path.abspath(sys.argv[1])
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    with_kills = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    chance, wrong = random.Random(1), []
    with tempfile.TemporaryDirectory() as folder:
        for guest in GUESTS:
            program = os.path.join(folder, guest)
            source = os.path.join(ROOT, "guests", guest + ".c")
            subprocess.run(["cc", "-O2", "-pthread", "-D_GNU_SOURCE", source, "-o", program], check=True)
            native = collections.Counter(run([program]) for _ in range(runs))
            print(f"{guest}: natively {len(native)} of {runs}", flush=True)
            for order in ["schedule", "serial", "deterministic"]:
                words = [understudy, "run", "-q", "--standbys", "0", "--order", order, "--", program]
                alone = collections.Counter(run(words) for _ in range(runs))
                both, kills = collections.Counter(), 0
                for turn in range(with_kills):
                    said, struck = killed(understudy, order, program, chance, f"order-{os.getpid()}-{order[0]}{turn}")
                    both[said] += 1
                    kills += struck
                all_of_it = alone + both
                print(f"  {order}: {len(alone)} of {runs}, with {kills} kills {len(both)} of {with_kills}, "
                      f"all {len(all_of_it)}", flush=True)
                if guest in ONE.get(order, []) and len(all_of_it) != 1:
                    wrong.append(f"{guest} {order}: {dict(all_of_it)}")
    for line in wrong:
        print("more than one outcome:", line)
    promised = sum(len(guests) for guests in ONE.values())
    print(f"{promised - len(wrong)} passed, {len(wrong)} failed, 0 skipped")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
