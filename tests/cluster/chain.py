"""A chain of deaths: a machine dies, the next one takes over, a fresh one joins that one while it serves, and so on."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time

from gate import ADDRESS, COUNTS, Hub, client
from machines import NODE_PORT, PORT, SCRIPT, Failed, first_process, run, until

LINKS = 3


class Machines(Hub):
    """The machines of a chain, and that of a client."""

    def __init__(self):
        super().__init__(LINKS + 2)


class Machine:
    """One of them: a network and a pid namespace, which dies whole by a SIGKILL of its first process."""

    def __init__(self, understudy, net, folder, at, order):
        self.understudy, self.net, self.folder, self.at = understudy, net, folder, at
        self.name, self.process, self.init = f"n{at + 1}", None, None
        peers = "".join(f"[[peers]]\nname = 'n{other + 1}'\naddress = '10.99.0.{other + 1}:{NODE_PORT}'\n"
                        for other in range(LINKS + 1) if other != at)
        next_one = f"cluster = ['n{at + 2}']" if at < LINKS else ""
        with open(f"{folder}/{self.name}.toml", "w") as config:
            config.write(
                f"[node]\nname = '{self.name}'\nlisten = '10.99.0.{at + 1}:{NODE_PORT}'\ndata = '{self.name}.data'\n"
                f"[tls]\nauthority = 'authority.pem'\ncertificate = '{self.name}.pem'\nkey = '{self.name}.key'\n"
                f"[limits]\nbeat_ms = 100\nsilence_ms = 1000\n[standby]\n{next_one}\n{order}\n{peers}"
            )
        self.state = f"{folder}/{self.name}.state"
        os.mkdir(self.state, 0o700)
        self.environment = {**os.environ, "UNDERSTUDY_DIR": self.state}
        self.log = f"{folder}/{self.name}.log"

    def start(self, *words):
        """Begins with this command of understudy's."""
        inside = ["ip", "netns", "exec", self.net.names[self.at], "unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
        self.process = subprocess.Popen([*inside, self.understudy, *words], env=self.environment, stdout=open(self.log, "a"),
                                        stderr=subprocess.STDOUT, start_new_session=True)
        self.init = first_process(f"{self.name} starts", self.process)

    def start_node(self):
        self.start("node", "--config", f"{self.folder}/{self.name}.toml")
        until(f"{self.name} listens", lambda: "listens" in open(self.log).read())

    def ask(self, *words):
        inside = ["nsenter", "-t", str(self.init), "-p", "-m", "-n", *words]
        return subprocess.run(inside, env=self.environment, capture_output=True, text=True)

    def status(self):
        told = self.ask(self.understudy, "status", "group", "--json").stdout
        groups = json.loads(told)["groups"] if told.startswith("{") else []
        return groups[0] if groups else {}

    def follows(self):
        status = self.status()
        return status.get("state") == "following" and status["mirror"]["behind_bytes"] < 100_000 and status

    def is_followed(self):
        machines = self.status().get("machines") or []
        return any(machine["state"] == "shipping" and machine["lag_us"] < 100_000 for machine in machines)

    def take_over(self):
        began, told = time.monotonic(), None
        while told is None or told.returncode:
            told = self.ask(self.understudy, "failover", "group")
            # The end of the link may not have been noticed.
            if told.returncode and "is there, and runs it" not in told.stderr or time.monotonic() > began + 5:
                raise Failed(f"{self.name}: no take-over: {told.stderr.strip()}")
        return (time.monotonic() - began) * 1000

    def count(self, many):
        """Answers of the program here, over one connection."""
        code = (f"import socket;s=socket.create_connection(('127.0.0.1',{PORT}),timeout=20);f=s.makefile('rb')\n"
                f"for _ in range({many}): s.sendall(b'x'); print(int(f.readline()))")
        told = self.ask(sys.executable, "-c", code)
        return [int(word) for word in told.stdout.split()] if told.returncode == 0 else None

    def die(self):
        os.kill(self.init, signal.SIGKILL)
        self.process.wait()

    def end(self):
        if self.process and self.process.poll() is None:
            self.init and os.kill(self.init, signal.SIGKILL)
            self.process.wait()


def chain(understudy, net, folder, seed, address=None):
    """All links of it; what is to be asked of each machine that serves is the caller's."""
    run("sh", SCRIPT, folder, *(f"n{at + 1}" for at in range(LINKS + 1)))
    machines = [Machine(understudy, net, folder, at, "") for at in range(LINKS + 1)]
    first = machines[0]
    machines[1].start_node()
    standbys = str(int(seed % 2 == 0))
    gate = ["--address", address] if address else []
    first.start("run", "--standbys", standbys, "--record", f"{folder}/own.understudy", "--name", "group", "--cluster", "n2",
                "--cluster-config", f"{folder}/n1.toml", *gate, "--", f"{folder}/../counter", str(PORT))
    until("it serves", lambda: first.count(1) if not address else True)
    return machines


def end(machines):
    for machine in machines:
        machine.end()


def chain_counts(understudy, net, folder, seed):
    """Without an address: whoever serves goes on with the next number, and its log goes on to a machine that had none of it."""
    chance, machines = random.Random(seed), []
    try:
        machines = chain(understudy, net, folder, seed)
        number, took = 1, []
        for at in range(LINKS):
            here, after = machines[at], machines[at + 1]
            until(f"{after.name} follows", after.follows)
            until(f"{here.name} says so", here.is_followed)
            many = chance.randrange(20, 400)
            answers = here.count(many)
            if answers != list(range(number + 1, number + 1 + many)):
                raise Failed(f"{here.name} answers {answers and answers[:3]} behind {number}")
            number += many
            # All of it is committed by then.
            time.sleep(0.7)
            early = chance.random() < 0.5
            if early and at + 2 <= LINKS:
                machines[at + 2].start_node()
            here.die()
            took.append(after.take_over())
            if not early and at + 2 <= LINKS:
                # Somebody is served before anybody follows.
                found = until(f"{after.name} serves", lambda: after.count(5), 20)
                if found != list(range(number + 1, number + 6)):
                    raise Failed(f"{after.name} goes on at {found}, and {number} was the last one")
                number += 5
                machines[at + 2].start_node()
        found = until("the last one serves", lambda: machines[LINKS].count(3), 20)
        if found != [number + 1, number + 2, number + 3]:
            raise Failed(f"the last one goes on at {found}, and {number} was the last one")
        return f"{number + 3} answers over {LINKS} deaths; live {', '.join(f'{one:.0f}' for one in took)} ms behind them"
    finally:
        end(machines)


def chain_gate(understudy, net, folder, seed):
    """One connection, and numbered requests: its client notices nothing of the deaths but pauses."""
    chance, machines, one = random.Random(seed), [], None
    try:
        machines = chain(understudy, net, folder, seed, f"{ADDRESS}/24%net0")
        took, deaths, began = [], [], 0
        for at in range(LINKS):
            here, after = machines[at], machines[at + 1]
            until(f"{after.name} follows", after.follows)
            until(f"a strict gate of {here.name}", lambda: (here.status().get("gate") or {}).get("mode") == "strict")
            if not re.search(rf"{after.name} keeps the recording", here.ask(understudy, "status", "group").stdout):
                raise Failed(f"{here.name} does not say who follows")
            if not one:
                one = client(net, COUNTS, "x", str(LINKS * 5))
                if one.stdout.readline() != "connected\n":
                    raise Failed("no connection")
                began = time.monotonic()
            time.sleep(chance.uniform(0.3, 1.5))
            if one.poll() is not None:
                raise Failed(f"before death {at + 1} the client says: {one.stdout.read().strip()}")
            deaths.append(f"{time.monotonic() - began:.1f}")
            here.die()
            took.append(after.take_over())
            if at + 2 <= LINKS:
                time.sleep(chance.uniform(0, 0.5))
                machines[at + 2].start_node()
        answer = one.stdout.read().strip()
        if not answer.startswith("well"):
            raise Failed(f"the client says: {answer}")
        return f"{answer}; deaths at {', '.join(deaths)} s, live {', '.join(f'{one:.0f}' for one in took)} ms behind them"
    finally:
        one and one.poll() is None and one.kill()
        end(machines)
