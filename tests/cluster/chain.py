"""A chain of deaths: a machine dies, the next one takes over, a fresh one joins that one while it serves, and so on."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time

from gate import ADDRESS, Hub
from machines import HERE, NODE_PORT, PORT, SCRIPT, Failed, first_process, run, until

LINKS = int(os.environ.get("LINKS", "3"))


class Machines(Hub):
    """The machines of a chain, and that of a client."""

    def __init__(self):
        super().__init__(LINKS + 2)


class Machine:
    """One of them: a network and a pid namespace, which dies whole by a SIGKILL of its first process."""

    def __init__(self, understudy, net, folder, at, volume):
        self.understudy, self.net, self.folder, self.at, self.volume = understudy, net, folder, at, volume
        self.name, self.process, self.init = f"n{at + 1}", None, None
        peers = "".join(f"[[peers]]\nname = 'n{other + 1}'\naddress = '10.99.0.{other + 1}:{NODE_PORT}'\n"
                        for other in range(LINKS + 1) if other != at)
        next_one = f"cluster = ['n{at + 2}']" if at < LINKS else ""
        volumes = f"volumes = ['{volume}']" if volume else ""
        if volume:
            self.own = f"{volume}.{self.name}"
            os.mkdir(self.own)
        with open(f"{folder}/{self.name}.toml", "w") as config:
            config.write(
                f"[node]\nname = '{self.name}'\nlisten = '10.99.0.{at + 1}:{NODE_PORT}'\ndata = '{self.name}.data'\n"
                f"[tls]\nauthority = 'authority.pem'\ncertificate = '{self.name}.pem'\nkey = '{self.name}.key'\n"
                f"[limits]\nbeat_ms = 100\nsilence_ms = 1000\n[standby]\n{next_one}\n{volumes}\n{peers}"
            )
        self.state = f"{folder}/{self.name}.state"
        os.mkdir(self.state, 0o700)
        self.environment = {**os.environ, "UNDERSTUDY_DIR": self.state}
        self.log = f"{folder}/{self.name}.log"

    def start(self, *words):
        """Begins with this command of understudy's."""
        inside = ["ip", "netns", "exec", self.net.names[self.at]]
        if self.volume:
            # What is one path to all lies elsewhere on each.
            inside += ["sh", "-c", 'mount --bind "$1" "$2" && shift 2 && exec "$@"', "sh", self.own, self.volume]
        inside += ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
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

    def listens(self):
        return self.ask("ss", "-Hltn", f"sport = :{PORT}").stdout.strip()

    def kill_primary(self):
        """One process of the program dies here, and its standby on this machine takes over."""
        def protected():
            status = self.status()
            return status if status.get("state") == "protected" else None
        before = until(f"{self.name} is protected", protected)
        self.ask("kill", "-KILL", str(before["processes"][0]["primary"]["pid"]))
        until(f"a failover on {self.name}", lambda: self.status().get("epoch", 0) > before["epoch"])

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


def chain(understudy, net, folder, seed, program=None, address=None, volume=None, more=(), standbys=None):
    """All machines of it, of which the first runs the program and the second keeps its log."""
    run("sh", SCRIPT, folder, *(f"n{at + 1}" for at in range(LINKS + 1)))
    volume and os.mkdir(volume)
    machines = [Machine(understudy, net, folder, at, volume) for at in range(LINKS + 1)]
    first = machines[0]
    machines[1].start_node()
    standbys = str(int(seed % 2 == 0) if standbys is None else standbys)
    gate = ["--address", address] if address else []
    first.start("run", "--standbys", standbys, "--record", f"{folder}/own.understudy", "--name", "group", "--cluster", "n2",
                "--cluster-config", f"{folder}/n1.toml", *gate, *more, "--", *(program or [f"{folder}/../counter", str(PORT)]))
    # Whoever follows, and a strict gate, say nothing of that: a client that comes earlier is refused, as it would be natively.
    until("it serves", lambda: first.count(1) if not address else first.listens())
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


class Client:
    """One of `clients.py` on the last machine."""

    def __init__(self, net, kind, name):
        self.name = name
        inside = ["ip", "netns", "exec", net.names[-1], sys.executable, f"{HERE}/clients.py", kind, name, ADDRESS, str(PORT)]
        self.process = subprocess.Popen(inside, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        told = self.process.stdout.readline()
        if told != "connected\n":
            raise Failed(f"{name} has no connection: {told}{self.process.stdout.read()}")

    def still_asks(self):
        if self.process.poll() is not None:
            raise Failed(f"a client says: {self.process.stdout.read().strip()}")

    def ended(self):
        """How many answers it had, its longest pause in milliseconds, and when that began."""
        self.process.stdin.close()
        told = self.process.stdout.read().split()
        if told[:1] != ["well"]:
            raise Failed(f"a client says: {' '.join(told)}")
        return int(told[1]), int(told[2]), " ".join(told[3:])

    def waits(self, does):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        if does and (told := self.process.stdout.readline()) != "waits\n":
            self.process.stdin.close()
            raise Failed(f"a client says: {(told + self.process.stdout.read()).strip()}")

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def strict(machine):
    """Waits until the machine's gate is strict."""
    until(f"a strict gate of {machine.name}", lambda: (machine.status().get("gate") or {}).get("mode") == "strict")


def whole_segments(machine):
    """Connections that were made anew send segments as large as they did."""
    told = machine.ask("ss", "-tinH", "state", "established", f"sport = :{PORT}").stdout
    sizes = [int(size) for size in re.findall(r" mss:(\d+)", told)]
    if min(sizes, default=1000) < 1000:
        raise Failed(f"{machine.name} has segments of these bytes: {sizes}")


def gated(understudy, net, folder, seed, kinds, program=None, volume=None, many=3, later=1, before=None, behind=None,
          standbys=None):
    """So many clients with one connection each, and some more behind each death, which notice nothing of the deaths but pauses.
    `before` each death it is looked at a machine and at the one that follows it; `behind` them all at the last one, and at what clients
    told, by their names."""
    chance, machines, clients = random.Random(seed), [], []
    try:
        machines = chain(understudy, net, folder, seed, program, f"{ADDRESS}/24%net0", volume, standbys=standbys)
        took, deaths, began = [], [], 0
        for at in range(LINKS):
            here, after = machines[at], machines[at + 1]
            # Whoever joins runs all of it, while more comes.
            until(f"{after.name} follows", after.follows, 90)
            strict(here)
            keeps = f"{after.name} keeps the recording"
            until(f"{here.name} says who follows", lambda: keeps in here.ask(understudy, "status", "group").stdout)
            for _ in range(later if clients else many):
                clients.append(Client(net, kinds[len(clients) % len(kinds)], f"client{len(clients)}"))
            began = began or time.monotonic()
            before and before(here, after, clients)
            time.sleep(chance.uniform(0.3, 1.5))
            for one in clients:
                one.still_asks()
            deaths.append(f"{time.monotonic() - began:.1f}")
            here.die()
            took.append(after.take_over())
            whole_segments(after)
            if at + 2 <= LINKS:
                time.sleep(chance.uniform(0, 0.5))
                machines[at + 2].start_node()
        time.sleep(chance.uniform(0.3, 1.5))
        told = [one.ended() for one in clients]
        behind and behind(machines[LINKS], dict(zip([one.name for one in clients], told)))
        _, pause, when = max(told, key=lambda one: one[1])
        return f"{sum(answers for answers, *_ in told)} answers to {len(told)} clients, none waited for longer than " \
               f"{pause} ms ({when}); deaths at {', '.join(deaths)} s, " \
               f"live {', '.join(f'{one:.0f}' for one in took)} ms behind them"
    finally:
        for one in clients:
            one.kill()
        end(machines)


def chain_gate(understudy, net, folder, seed):
    """Numbered requests to a server with threads."""
    return gated(understudy, net, folder, seed, ["counts"], many=1, later=0)


def chain_local(understudy, net, folder, seed):
    """The program's process dies on each machine as well, that of the machine that has taken over, before the machine does."""
    chance = random.Random(seed)

    def dies(here, after, clients):
        for _ in range(2):
            time.sleep(chance.uniform(0, 0.6))
            here.kill_primary()

    return gated(understudy, net, folder, seed, ["counts"], many=1, later=0, before=dies, standbys=1)


def chain_knocks(understudy, net, folder, seed):
    """Each request over a connection of its own: none is refused, whatever dies."""
    return gated(understudy, net, folder, seed, ["knocks"], many=1, later=0)


def chain_moves(understudy, net, folder, seed):
    """Downloads and uploads that are under way at each death."""
    return gated(understudy, net, folder, seed, ["gets", "puts"], [f"{folder}/../mover", str(PORT)])


def chain_kin(understudy, net, folder, seed):
    """Numbered requests to a server whose children have the connections, in each way in which they can come to have them."""
    way = ["each", "before", "first", "both"][seed % 4]
    told = gated(understudy, net, folder, seed, ["counts"], [f"{folder}/../forker", str(PORT), way], standbys=seed // 4 % 2)
    return f"{way}: {told}"


def chain_relaxed(understudy, net, folder, seed):
    """What was asked for on the first machine holds on each: nothing is held back, what is kept is on a disk, and there are two
    standbys."""
    machines, one, number = [], None, 0
    try:
        machines = chain(understudy, net, folder, seed, address=f"{ADDRESS}/24%net0", standbys=2,
                         more=["--relaxed", "--commit", "disk", "--lag-timeout", "2345", "--lead", "7"])
        for at, here in enumerate(machines):
            after = machines[at + 1] if at < LINKS else None
            after and until(f"{after.name} follows", after.follows)
            if at + 1 < LINKS and "--commit\0disk" not in after.ask("sh", "-c", "cat /proc/[0-9]*/cmdline").stdout:
                raise Failed(f"{after.name} will not wait for the next one's disk")
            until(f"{here.name} has two standbys", lambda: len((here.status().get("processes") or [{}])[0].get("standbys", [])) == 2, 10)
            # The last one has nobody to send to, and no gate.
            after and until(f"a gate of {here.name} that holds nothing back", lambda: (here.status().get("gate") or {}).get("mode") == "relaxed")
            one = Client(net, "follows", f"client{at}")
            time.sleep(0.3)
            many, *_ = one.ended()
            number += many
            if at == LINKS:
                return f"{number} answers of {LINKS + 1} machines"
            # All of it is there by then, though nobody waits for that.
            time.sleep(0.7)
            here.die()
            after.take_over()
            at + 2 <= LINKS and machines[at + 2].start_node()
    finally:
        one and one.kill()
        end(machines)


KINDS = [chain_counts, chain_gate, chain_knocks, chain_local, chain_moves, chain_kin, chain_relaxed]
