"""The address of a service and its connections go to the other machine: clients on a third one keep theirs over its death."""

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import time

from machines import PORT, Cluster, Failed, Net, run, until
from takeover import Elsewhere

ADDRESS = "10.99.0.100"

# One connection, numbered requests. Writes a line for each answer; a moment without one is told at the end.
COUNTS = """
import socket, sys, time
address, port, request, seconds = sys.argv[1], int(sys.argv[2]), sys.argv[3].encode().decode("unicode_escape").encode(), float(sys.argv[4])
s = socket.create_connection((address, port))
s.settimeout(40); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
f = s.makefile("rb")
begun = last = time.monotonic(); expected = 0; longest = 0; pauses = []
print("connected", flush=True)
while time.monotonic() - begun < seconds:
    s.sendall(request); answer = f.readline()
    expected += 1
    if not answer: print("the connection has ended behind", expected - 1); sys.exit(1)
    number = int(answer.decode().lstrip(":"))
    if number != expected: print("answer", number, "instead of", expected); sys.exit(1)
    now = time.monotonic(); longest = max(longest, now - last)
    if now - last > 0.4: pauses.append(f"{round((now - last) * 1000)} at {last - begun:.1f} s")
    last = now
print("well", expected, round(longest * 1000), *pauses)
"""


# One request of `mover.c` over one connection, as slowly as it takes so many seconds.
MOVED = """
import array, socket, sys, time
address, port, what, many, seconds = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), float(sys.argv[5])
wanted = array.array("Q", range(many // 8)).tobytes()
s = socket.create_connection((address, port)); print("connected", flush=True)
s.settimeout(40)
come, begun = 0, time.monotonic()
pace = lambda done: time.sleep(max(0, begun + seconds * done / many - time.monotonic()))
s.sendall(f"{what} {many}\\n".encode())
if what in ("GET", "LAST"):
    while come < many:
        part = s.recv(65536)
        if not part: break
        if part != wanted[come : come + len(part)]: print("other bytes behind", come); sys.exit(1)
        come += len(part); pace(come)
    if what == "LAST" and s.recv(9): print("more than all"); sys.exit(1)
else:
    while come < many:
        s.sendall(wanted[come : come + 16384]); come += 16384; pace(come)
    if what == "ALL": s.shutdown(socket.SHUT_WR)
    come = int(s.makefile("rb").readline())
print("well" if come == many else f"of {many}", what, come)
"""


class Hub(Net):
    """So many machines, the last of which is a client's, all on one network."""

    def __init__(self, many=3):
        self.names = [f"us{os.getpid() % 10000}{which}" for which in range(many)]
        self.hub = f"us{os.getpid() % 10000}h"
        self.links = [f"v{which}" for which in range(many)]

    def __enter__(self):
        for name in [*self.names, self.hub]:
            run("ip", "netns", "add", name)
        self.inside(self.hub, "ip", "link", "add", "name", "hub0", "type", "bridge")
        self.inside(self.hub, "ip", "link", "set", "hub0", "up")
        for at, name in enumerate(self.names):
            # Devices of one name: the address goes to the one of that name.
            run("ip", "link", "add", "net0", "netns", name, "type", "veth", "peer", "name", self.links[at], "netns", self.hub)
            self.inside(self.hub, "ip", "link", "set", self.links[at], "master", "hub0", "up")
            self.inside(name, "ip", "addr", "add", f"10.99.0.{at + 1}/24", "dev", "net0")
            self.inside(name, "ip", "link", "set", "net0", "up")
            self.inside(name, "ip", "link", "set", "lo", "up")
        return self

    def __exit__(self, *_):
        for name in [*self.names, self.hub]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def cut(self, is_cut):
        self.inside(self.hub, "ip", "link", "set", self.links[0], "down" if is_cut else "up")


def client(net, program, *words):
    inside = ["ip", "netns", "exec", net.names[-1], sys.executable, "-c", program, ADDRESS, str(PORT), *words]
    return subprocess.Popen(inside, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def standing(cluster):
    """What `status` says of the gate."""
    told = cluster.inside(cluster.understudy, "status", "group", "--json")
    groups = json.loads(told)["groups"] if told.startswith("{") else []
    return groups[0].get("gate") if groups else None


def strict(cluster):
    gate = standing(cluster)
    return gate and gate["mode"] == "strict" and gate


def take_over(other):
    """The operator's word, until it is taken; ms, and what was said to it."""
    began, told = time.monotonic(), None
    while told is None or told.returncode:
        told = other.ask("failover", "group")
        # The end of the link may not have been noticed.
        if told.returncode and "is there, and runs it" not in told.stderr or time.monotonic() > began + 5:
            raise Failed(f"no take-over: {told.stderr.strip()}")
    return (time.monotonic() - began) * 1000, told.stdout.strip()


def gated(understudy, net, folder, seed, program, clients, volume=None, standby=True):
    """The machine dies at a random moment under these clients; they notice nothing but a pause."""
    chance = random.Random(seed)
    own = volume and f"{folder}/volume"
    cluster = Cluster(understudy, net, folder, "memory", standby=standby, mirror=f"volumes = ['{own}']" if volume else "",
                      volume=own, address=f"{ADDRESS}/24%net0")
    other, running = Elsewhere(cluster), []
    try:
        cluster.start_node()
        cluster.start([word.replace("{volume}", own or "") for word in program])
        until("following", lambda: cluster.mirror_is("following"))
        until("a strict gate", lambda: strict(cluster))
        running = [client(net, *one) for one in clients]
        for one in running:
            if one.stdout.readline() != "connected\n":
                raise Failed("no connection")
        time.sleep(chance.uniform(0.5, 2))
        if os.environ.get("DEBUG"):
            print(cluster.words(), strict(cluster))
        cluster.kill()
        took, told = take_over(other)
        if os.environ.get("DEBUG"):
            print(open(f"{folder}/node.log").read(), told)
        answers = [one.stdout.read().strip() for one in running]
        if not all(answer.startswith("well") for answer in answers):
            raise Failed(f"clients say: {answers}")
        return f"{answers}; live {took:.0f} ms behind the death"
    finally:
        for one in running:
            one.poll() is None and one.kill()
        if os.environ.get("DEBUG"):
            print(other.ask("status", "group").stdout)
        other.end()
        cluster.end()


def gate_counter(understudy, net, folder, seed):
    return gated(understudy, net, folder, seed, [f"{folder}/../counter", str(PORT)], [(COUNTS, "x", "6")], standby=seed % 2 == 0)


def gate_redis(understudy, net, folder, seed):
    if not shutil.which("redis-server"):
        return None
    program = ["redis-server", "--port", str(PORT), "--save", "", "--protected-mode", "no"]
    return gated(understudy, net, folder, seed, program, [(COUNTS, f"INCR {name}\\r\\n", "6") for name in "ab"], standby=seed % 2 == 0)


def gate_moves(understudy, net, folder, seed):
    """Bytes in both directions, up to the end of one, and over a connection that the server closes at once."""
    clients = [(MOVED, "GET", "60000000", "4"), (MOVED, "PUT", "60000000", "4"), (MOVED, "ALL", "3000000", "3"),
               (MOVED, "LAST", "3000000", "3"), (MOVED, "GET", "80000000", "0")]
    return gated(understudy, net, folder, seed, [f"{folder}/../mover", str(PORT)], clients, standby=seed % 2 == 0)


@contextlib.contextmanager
def counting(understudy, net, folder, seconds):
    """A program that counts, with a strict gate in front of it, and a client that asks it for so long."""
    cluster = Cluster(understudy, net, folder, "memory", standby=True, mirror="", address=f"{ADDRESS}/24%net0")
    other, one = Elsewhere(cluster), None
    try:
        cluster.start_node()
        cluster.start([f"{folder}/../counter", str(PORT)])
        until("following", lambda: cluster.mirror_is("following"))
        until("a strict gate", lambda: strict(cluster))
        one = client(net, COUNTS, "x", seconds)
        one.stdout.readline()
        time.sleep(0.5)
        yield cluster, other, one
    finally:
        one and one.poll() is None and one.kill()
        other.end()
        cluster.end()


def stands(cluster):
    gate = standing(cluster)
    return gate and gate["mode"]


def gate_opens(understudy, net, folder, seed):
    """The other machine's process ends: the gate opens, and `status` says so; it is strict again with the next one, which takes over the
    connection that was there before."""
    with counting(understudy, net, folder, "14") as (cluster, other, one):
        if "clients hear what another machine has the log of" not in cluster.words():
            raise Failed(f"status says: {cluster.words()}")
        cluster.end_node()
        until("an open gate", lambda: stands(cluster) == "open")
        if "nobody follows" not in cluster.words():
            raise Failed(f"status says: {cluster.words()}")
        time.sleep(0.5)
        cluster.start_node()
        until("a strict gate again", lambda: stands(cluster) == "strict")
        until("following again", lambda: cluster.mirror_is("following"))
        until("nearly all is applied", cluster.mirror_is_near)
        time.sleep(0.5)
        cluster.kill()
        took, told = take_over(other)
        answer = one.stdout.read().strip()
        if not answer.startswith("well"):
            raise Failed(f"the client says: {answer}")
        return f"{answer}; live {took:.0f} ms behind the death"


def gate_shuts(understudy, net, folder, seed):
    """The program's machine is cut off, the other one takes over, and the first one comes back: from there nothing leaves any more."""
    with counting(understudy, net, folder, "12") as (cluster, other, one):
        net.cut(True)
        until("apart", lambda: cluster.mirror_is("apart"))
        take_over(other)
        time.sleep(0.5)
        net.cut(False)
        until("a gate that is shut", lambda: stands(cluster) == "shut")
        if "nothing leaves" not in cluster.words():
            raise Failed(f"status says: {cluster.words()}")
        answer = one.stdout.read().strip()
        if not answer.startswith("well"):
            raise Failed(f"the client says: {answer}")
        return answer


def gate_ends(understudy, net, folder, seed):
    """Behind the program nothing is left of the gate; an address that cannot be had is refused before anything runs."""
    for address, why in [("10.99.0.100/24%none", "there is no device none"), ("10.99.0.100%net0", "an IPv4 address")]:
        words = ["ip", "netns", "exec", net.names[0], understudy, "run", "--record", f"{folder}/no.understudy", "--cluster", "n2",
                 "--cluster-config", f"{folder}/n1.toml", "--address", address, "--", "true"]
        cluster = None if address.endswith("net0") else Cluster(understudy, net, folder, "memory", standby=True)
        told = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "UNDERSTUDY_DIR": folder})
        if told.returncode == 0 or why not in told.stderr or os.path.exists(f"{folder}/no.understudy"):
            raise Failed(f"{address}: {told.stderr}")
    os.makedirs(f"{folder}/two")
    cluster = Cluster(understudy, net, f"{folder}/two", "memory", standby=True, mirror="", address=f"{ADDRESS}/24%net0")
    # Of the address's own family: a device's IPv6 address settles by itself meanwhile.
    kinds = (["rule"], ["address"], ["route", "show", "table", "all"])
    look = lambda: "".join(net.inside(net.names[0], "ip", "-4", *what).stdout for what in kinds)
    before = look()
    try:
        cluster.start_node()
        cluster.start([f"{folder}/../counter", str(PORT)])
        if ADDRESS not in look() or "blackhole" not in look():
            raise Failed("the address is not led to the gate")
        cluster.inside(understudy, "stop", "group")
        cluster.leader.wait(20)
        if look() != before:
            raise Failed(f"left behind: {look()}")
        return "nothing is left"
    finally:
        cluster.end()
