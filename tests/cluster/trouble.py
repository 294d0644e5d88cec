"""What goes wrong with the machine that follows costs protection, never service: `status` says it in one sentence, and clients of
the address are served on."""

import os
import signal
import subprocess
import sys
import time

from gate import ADDRESS, COUNTS, client, counting, stands, strict, take_over
from machines import PORT, Cluster, Failed, run, until
from takeover import Elsewhere

# The gate waits so long at the most for a machine that has fallen silent, and TCP asks again within so much more.
WAITS = 10 + 4


def answers(one, longest):
    """What a client of `COUNTS` has said, and that it has waited for no longer than so many seconds."""
    said = (one.stdout.read().strip().splitlines() or [""])[-1]
    if not said.startswith("well") or int(said.split()[2]) > longest * 1000:
        raise Failed(f"the client says: {said}")
    return said


def says(cluster, sentence):
    """That `status` says this, once."""
    found = []
    def is_said():
        found[:] = [line for line in cluster.words().splitlines() if sentence in line]
        return found
    until(f"`{sentence}` in status", is_said, 20)
    if len(found) != 1:
        raise Failed(f"status says: {found}")
    return found[0]


def gate_full(understudy, net, folder, seed):
    """The follower's disk is full while clients are served at a gate, and has room again."""
    data = f"{folder}/n2.data"
    os.mkdir(data, 0o700)
    run("mount", "-t", "tmpfs", "-o", "size=400k,mode=700", "tmpfs", data)
    try:
        with counting(understudy, net, folder, "40") as (cluster, other, one):
            sentence = says(cluster, "No space left on device")
            until("a gate that does not wait", lambda: stands(cluster) == "open", 20)
            run("mount", "-o", "remount,size=512m", data)
            until("room again", cluster.is_shipping)
            until("a strict gate again", lambda: strict(cluster), 20)
            return f"{answers(one, WAITS)}; {sentence}"
    finally:
        run("umount", "-l", data)


def gate_stopped(understudy, net, folder, seed):
    """The follower's node stands still for 25 seconds, and goes on."""
    with counting(understudy, net, folder, "40") as (cluster, other, one):
        cluster.node.send_signal(signal.SIGSTOP)
        try:
            sentence = says(cluster, "n2 is sent nothing at present")
            until("a gate that does not wait", lambda: stands(cluster) == "open", 20)
            time.sleep(10)
            if stands(cluster) != "open":
                raise Failed("the gate waits for a machine that stands still")
        finally:
            cluster.node.send_signal(signal.SIGCONT)
        until("a strict gate again", lambda: strict(cluster), 20)
        return f"{answers(one, WAITS)}; {sentence}"


def other_library(understudy, folder):
    """A runtime that differs from this machine's in nothing but its build id."""
    library = os.environ.get("UNDERSTUDY_LIB", f"{os.path.dirname(understudy)}/libunderstudy.so")
    told = subprocess.run(["readelf", "-n", library], capture_output=True, text=True).stdout
    number = next((line.split()[-1] for line in told.splitlines() if "Build ID" in line), None)
    if number is None:
        return None
    with open(library, "rb") as file:
        bytes_ = file.read()
    with open(f"{folder}/libother.so", "wb") as file:
        file.write(bytes_.replace(bytes.fromhex(number), bytes.fromhex(number)[::-1]))
    return f"{folder}/libother.so"


def gate_other_runtime(understudy, net, folder, seed):
    """The follower has another version of the runtime: it keeps the log, and does not follow."""
    library = other_library(understudy, folder)
    if library is None:
        return None
    cluster = Cluster(understudy, net, folder, "memory", standby=True, mirror="", address=f"{ADDRESS}/24%net0")
    cluster.elsewhere["UNDERSTUDY_LIB"] = library
    other, one = Elsewhere(cluster), None
    try:
        cluster.start_node()
        cluster.start([f"{folder}/../counter", str(PORT)])
        sentence = says(cluster, "a replay there may go astray: n2 has another runtime")
        told = lambda: [line for line in other.ask("status", "group").stdout.splitlines() if "kept, and not followed: the runtime here" in line]
        try:
            there = until("another runtime there", told, 5)
        except Failed:
            raise Failed(f"status there says: {other.ask('status', 'group')}") from None
        says(cluster, "and cannot take over: the runtime here")
        until("a gate for which nobody waits", lambda: stands(cluster) == "open", 5)
        one = client(net, COUNTS, "x", "3")
        if other.ask("failover", "group").returncode == 0:
            raise Failed("it takes over with another runtime")
        return f"{answers(one, 2)}; {sentence}; there: {there}"
    finally:
        one and one.poll() is None and one.kill()
        other.end()
        cluster.end()


# A process without these rights, and all that it starts.
WITHOUT = ["setpriv", "--bounding-set=-net_admin,-net_raw", "--inh-caps=-net_admin,-net_raw"]


def gate_no_right(understudy, net, folder, seed):
    """Nobody may make a gate. On the program's machine that is said before anything runs; on the other one the program takes over."""
    cluster = Cluster(understudy, net, folder, "memory", standby=True, mirror="", address=f"{ADDRESS}/24%net0")
    other = Elsewhere(cluster)
    words = [*WITHOUT, understudy, "run", "--record", f"{folder}/no.understudy", "--cluster", "n2", "--cluster-config", f"{folder}/n1.toml",
             "--address", f"{ADDRESS}/24%net0", "--", "true"]
    told = subprocess.run(["ip", "netns", "exec", net.names[0], *words], capture_output=True, text=True, env=cluster.environment)
    if told.returncode == 0 or told.stderr.count("\n") != 1 or "CAP_NET_ADMIN" not in told.stderr:
        raise Failed(f"without a right: {told.stderr}")
    on = cluster.on
    cluster.on = lambda at, *command: on(at, *(WITHOUT if at else []), *command)
    try:
        cluster.start_node()
        cluster.start([f"{folder}/../counter", str(PORT)])
        until("following", lambda: (cluster.mirror() or {}).get("state") == "following")
        until("a strict gate", lambda: strict(cluster))
        cluster.kill()
        took, _ = take_over(other)
        code = f"import socket;s=socket.create_connection(('127.0.0.1',{PORT}));s.sendall(b'x');print(s.recv(9).decode())"
        ask = ["ip", "netns", "exec", net.names[1], sys.executable, "-c", code]
        until("an answer there", lambda: subprocess.run(ask, capture_output=True, text=True).stdout.strip())
        log = open(f"{folder}/node.log").read()
        lines = [line for line in log.splitlines() if "not permitted" in line]
        if not lines:
            raise Failed(f"the node says: {log}")
        return f"live {took:.0f} ms behind the death; {told.stderr.strip()}; there: {lines}"
    finally:
        other.end()
        cluster.end()


KINDS = [gate_full, gate_stopped, gate_other_runtime, gate_no_right]
