#!/usr/bin/env python3
"""Two machines: the log of a server on one is kept on the other, and the first one dies.

Machines are network namespaces joined by a veth pair; the leader's has a pid namespace of its own, and dies whole by a SIGKILL of its
first process. Clients count meanwhile. What the other machine keeps must then be the beginning of what the dead one had on its disk,
hold what was acknowledged, and replay to its end: it shows each answer that a client had and that was acknowledged. The link is cut
and joined again, the other machine's process is ended, its disk is full: the server serves on, `status` says why, and shipping
resumes.

usage: run.py UNDERSTUDY [RUNS]
"""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, "../../contrib/cluster/certificates.sh")
PORT, NODE_PORT = 6400, 7770
PATIENCE = 30


class Failed(Exception):
    pass


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options)


def until(what, look, patience=PATIENCE):
    begun = time.monotonic()
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() - begun > patience:
            raise Failed(f"never: {what}")
        time.sleep(0.02)


class Net:
    """Two namespaces and what joins them."""

    def __init__(self):
        self.names = [f"us{os.getpid() % 10000}{which}" for which in "ab"]
        self.links = [f"{name}v" for name in self.names]

    def __enter__(self):
        for name in self.names:
            run("ip", "netns", "add", name)
        a, b = self.links
        run("ip", "link", "add", a, "netns", self.names[0], "type", "veth", "peer", "name", b, "netns", self.names[1])
        for at, name in enumerate(self.names):
            self.inside(name, "ip", "addr", "add", f"10.99.0.{at + 1}/24", "dev", self.links[at])
            self.inside(name, "ip", "link", "set", self.links[at], "up")
            self.inside(name, "ip", "link", "set", "lo", "up")
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def inside(self, name, *command):
        return run("ip", "netns", "exec", name, *command)

    def slow(self, rate):
        """Of the leader's side: so many kbit a second, or as many as come."""
        at = ["tc", "qdisc", "replace", "dev", self.links[0], "root"]
        if rate:
            self.inside(self.names[0], *at, "tbf", "rate", f"{rate}kbit", "burst", "10kb", "latency", "100ms")
        else:
            self.inside(self.names[0], "tc", "qdisc", "del", "dev", self.links[0], "root")

    def cut(self, is_cut):
        self.inside(self.names[1], "ip", "link", "set", self.links[1], "down" if is_cut else "up")


class Clients:
    """Count, each over one connection; `seen` is the largest answer."""

    def __init__(self, namespace, many=3):
        self.seen, self.wrong, self.go_on = 0, None, True
        self.pause = threading.Event()
        self.pause.set()
        self.lock = threading.Lock()
        code = (
            "import socket,sys\n"
            f"s=socket.create_connection(('127.0.0.1',{PORT}));f=s.makefile('rb')\n"
            "for line in sys.stdin:\n"
            "  s.sendall(b'x'); sys.stdout.write(f.readline().decode()); sys.stdout.flush()\n"
        )
        command = ["ip", "netns", "exec", namespace, sys.executable, "-c", code]
        self.all = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                    for _ in range(many)]
        self.threads = [threading.Thread(target=self.count, args=[one], daemon=True) for one in self.all]
        for thread in self.threads:
            thread.start()

    def count(self, one):
        last = 0
        while self.go_on:
            self.pause.wait()
            try:
                one.stdin.write("\n")
                one.stdin.flush()
                answer = one.stdout.readline()
            except OSError:
                return
            if not answer.strip():
                return
            number = int(answer)
            if number <= last:
                self.wrong = f"{number} came behind {last}"
            last = number
            with self.lock:
                self.seen = max(self.seen, number)

    def end(self):
        self.go_on = False
        self.pause.set()
        for one in self.all:
            one.kill()
            one.wait()


class Cluster:
    def __init__(self, understudy, net, folder, commit, standby, limits="", mirror=None):
        self.understudy, self.net, self.folder, self.commit, self.standby = understudy, net, folder, commit, standby
        mirror = "" if mirror is None else f"[standby]\n{mirror}\n"
        run("sh", SCRIPT, folder, "n1", "n2")
        for at, name in enumerate(["n1", "n2"]):
            other = 2 - at
            with open(f"{folder}/{name}.toml", "w") as config:
                config.write(
                    f"[node]\nname = '{name}'\nlisten = '10.99.0.{at + 1}:{NODE_PORT}'\ndata = '{name}.data'\n"
                    f"[tls]\nauthority = 'authority.pem'\ncertificate = '{name}.pem'\nkey = '{name}.key'\n"
                    f"[limits]\nbeat_ms = 100\nsilence_ms = 1000\n{limits}\n{mirror if at else ''}"
                    f"[[peers]]\nname = 'n{other}'\naddress = '10.99.0.{other}:{NODE_PORT}'\n"
                )
        for name in ("state", "other"):
            os.mkdir(f"{folder}/{name}", 0o700)
        self.environment = {**os.environ, "UNDERSTUDY_DIR": f"{folder}/state"}
        self.elsewhere = {**os.environ, "UNDERSTUDY_DIR": f"{folder}/other"}
        self.node = self.leader = None
        self.own = f"{folder}/own.understudy"

    def start_node(self):
        command = ["ip", "netns", "exec", self.net.names[1], self.understudy, "node", "--config", f"{self.folder}/n2.toml"]
        self.node = subprocess.Popen(command, stderr=open(f"{self.folder}/node.log", "a"), env=self.elsewhere)
        until("the node listens", lambda: "listens" in open(f"{self.folder}/node.log").read())

    def end_node(self, how=signal.SIGTERM):
        self.node.send_signal(how)
        self.node.wait()
        os.truncate(f"{self.folder}/node.log", 0)

    def start(self, program):
        how = ["run", "--metrics", "9464", "--record", self.own] if self.standby else ["record", "-o", self.own]
        command = ["ip", "netns", "exec", self.net.names[0], "unshare", "--pid", "--fork", "--mount-proc", "--kill-child",
                   self.understudy, *how, "--name", "group", "--cluster", "n2", "--commit", self.commit,
                   "--cluster-config", f"{self.folder}/n1.toml", "--", *program]
        self.leader = subprocess.Popen(command, env=self.environment, stdout=open(f"{self.folder}/out", "w"),
                                       stderr=open(f"{self.folder}/err", "w"), start_new_session=True)
        # Its first process is understudy, the child of unshare, which `ip netns exec` has become.
        path = f"/proc/{self.leader.pid}/task/{self.leader.pid}/children"
        self.init = int(until("it starts", lambda: open(path).read().split() and open(path).read().split()[0]))
        until("it listens", self.listens)

    def listens(self):
        found = subprocess.run(["ip", "netns", "exec", self.net.names[0], "ss", "-Hltn", f"sport = :{PORT}"],
                               capture_output=True, text=True)
        return bool(found.stdout.strip())

    def kill(self):
        """The whole machine at once: the kernel kills everybody in a pid namespace whose first process is killed."""
        os.kill(self.init, signal.SIGKILL)
        self.leader.wait()

    def machine(self):
        try:
            with open(f"{self.folder}/state/group/machines.json") as file:
                return json.load(file)[0]
        except (OSError, ValueError, IndexError):
            return None

    def is_shipping(self):
        machine = self.machine()
        return machine and machine["state"] == "shipping" and machine

    def inside(self, *command):
        inside = ["nsenter", "-t", str(self.init), "-p", "-m", *command]
        return subprocess.run(inside, env=self.environment, capture_output=True, text=True).stdout

    def words(self):
        return self.inside(self.understudy, "status", "group")

    def mirror(self):
        """What the other machine says of the program that it follows."""
        command = ["ip", "netns", "exec", self.net.names[1], self.understudy, "status", "group", "--json"]
        told = subprocess.run(command, env=self.elsewhere, capture_output=True, text=True).stdout
        groups = json.loads(told)["groups"] if told.startswith("{") else []
        return groups[0] if groups else None

    def kill_primary(self):
        def group():
            return json.loads(self.inside(self.understudy, "status", "group", "--json"))["groups"][0]
        until("protected", lambda: group()["state"] == "protected")
        epoch = group()["epoch"]
        self.inside("kill", "-KILL", str(group()["processes"][0]["primary"]["pid"]))
        until("a failover", lambda: group()["epoch"] > epoch)

    def copy(self):
        data = f"{self.folder}/n2.data"
        found = [name for name in os.listdir(data) if name.endswith(".understudy")]
        return f"{data}/{found[0]}" if found else None

    def end(self):
        for process in (self.leader, self.node):
            if process and process.poll() is None:
                process is self.leader and os.kill(self.init, signal.SIGKILL)
                process.kill()
                process.wait()


def all_is_there(cluster, clients):
    """Everybody pauses until all is acknowledged; the answer up to which that holds."""
    clients.pause.clear()
    time.sleep(0.3)
    floor = clients.seen
    size = -1
    def calm():
        nonlocal size
        before, size = size, os.path.getsize(cluster.own)
        machine = cluster.is_shipping()
        time.sleep(0.3)
        return before == size and machine and machine["committed_bytes"] == size
    until("all is acknowledged", calm)
    clients.pause.set()
    return floor


def replayed(understudy, file, folder):
    """What a replay of the copy shows, and that it went no other way."""
    state = tempfile.mkdtemp(prefix="replay-", dir=folder)
    done = subprocess.run([understudy, "replay", file], env={**os.environ, "UNDERSTUDY_DIR": state},
                          capture_output=True, text=True, timeout=120)
    if "replayed to its end" not in done.stderr:
        raise Failed(f"the copy does not replay to its end: {done.stderr.strip()[-300:]}")
    return done.stdout


def check(cluster, clients, floor, committed):
    own, copy = open(cluster.own, "rb").read(), open(cluster.copy(), "rb").read()
    if own[: len(copy)] != copy:
        raise Failed("the copy is not the beginning of the recording")
    if len(copy) < committed:
        raise Failed(f"{committed} bytes were acknowledged, and {len(copy)} are there")
    shown = replayed(cluster.understudy, cluster.copy(), cluster.folder).split()
    if shown != [str(number + 1) for number in range(len(shown))]:
        raise Failed("the replay shows other answers")
    if len(shown) < floor:
        raise Failed(f"answer {floor} was acknowledged, and the replay shows {len(shown)}")
    if clients.wrong:
        raise Failed(clients.wrong)
    return len(shown)


def die(understudy, net, folder, seed):
    """The machine dies under load; before that the link is cut, and joined again, in every other run."""
    chance = random.Random(seed)
    cluster = Cluster(understudy, net, folder, "disk" if seed % 2 else "memory", standby=seed % 3 != 2)
    clients = None
    try:
        cluster.start_node()
        cluster.start([f"{folder}/../counter", str(PORT)])
        clients = Clients(net.names[0])
        until("shipping", cluster.is_shipping)
        time.sleep(chance.uniform(0, 1))
        if cluster.standby:
            # On this machine somebody takes over, and the log goes on.
            cluster.kill_primary()
        if seed % 2:
            before = clients.seen
            net.cut(True)
            trouble = until("a trouble", lambda: cluster.machine()["trouble"])
            until("it serves on", lambda: clients.seen > before + 50)
            words = cluster.words()
            if "n2 is sent nothing at present" not in words:
                raise Failed(f"status says: {words}")
            net.cut(False)
            until("shipping again", cluster.is_shipping)
        if cluster.standby:
            asks = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9464/metrics').read().decode())"
            wanted = 'understudy_machine_shipping{group="group",node="n2"} 1\n'
            # Behind a cut the first connection may be given up once more.
            until("figures of a node that is sent the log", lambda: wanted in net.inside(net.names[0], sys.executable, "-c", asks).stdout)
        before = all_is_there(cluster, clients)
        shown = len(replayed(understudy, cluster.copy(), folder).split())
        if shown < before:
            raise Failed(f"while it grows the replay shows {shown} of {before}")
        floor = all_is_there(cluster, clients)
        begun = time.monotonic()
        time.sleep(chance.uniform(0.1, 0.7))
        rate = (clients.seen - floor) / (time.monotonic() - begun)
        committed = cluster.machine()["committed_bytes"]
        cluster.kill()
        seen = clients.seen
        time.sleep(0.2)
        shown = check(cluster, clients, floor, committed)
        lost = max(0, seen - shown)
        return f"{seen} answers seen, {floor} surely kept, {shown} in the replay: {lost} lost, {lost / rate * 1000:.1f} ms of them"
    finally:
        net.cut(False)
        clients and clients.end()
        cluster.end()


def follows(understudy, net, folder, seed):
    """The other machine runs the program from its log, also over a failover of the program's and over a cut link; what it must not
    follow it keeps."""
    cluster = Cluster(understudy, net, folder, "memory", standby=True, mirror="")
    clients = None
    try:
        cluster.start_node()
        cluster.start([f"{folder}/../counter", str(PORT)])
        clients = Clients(net.names[0])
        until("following", lambda: (cluster.mirror() or {}).get("state") == "following")
        cluster.kill_primary()
        net.cut(True)
        until("apart", lambda: cluster.mirror()["state"] == "apart")
        before = clients.seen
        until("it serves on", lambda: clients.seen > before + 50)
        net.cut(False)
        until("following again", lambda: cluster.mirror()["state"] == "following")
        floor, out = all_is_there(cluster, clients), cluster.copy().replace(".understudy", ".out")
        until("it shows all of that", lambda: len(open(out).read().split()) >= floor, 10)
        behind = [cluster.mirror()["mirror"] for _ in range(20) if time.sleep(0.1) is None]
        if clients.wrong:
            raise Failed(clients.wrong)
        shown = open(out).read().split()
        if shown != [str(number + 1) for number in range(len(shown))]:
            raise Failed("the mirror shows other answers")
        return f"{floor} answers followed; at most {max(one['behind_us'] for one in behind) / 1000} ms behind"
    finally:
        net.cut(False)
        clients and clients.end()
        cluster.end()


def other_side(understudy, net, folder, seed):
    """The node is killed and comes back; its disk is full and is not any more. Then the program ends, and all is there."""
    cluster = Cluster(understudy, net, folder, "disk", standby=False)
    clients = None
    data = f"{folder}/n2.data"
    os.mkdir(data, 0o700)
    run("mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", data)
    try:
        cluster.start_node()
        cluster.start([f"{folder}/../counter", str(PORT)])
        clients = Clients(net.names[0])
        until("shipping", cluster.is_shipping)
        until("a full disk", lambda: "No space left" in str(cluster.machine()["trouble"]), 60)
        before = clients.seen
        until("it serves on", lambda: clients.seen > before + 50)
        run("mount", "-o", "remount,size=256m", data)
        until("room again", cluster.is_shipping)
        cluster.end_node(signal.SIGKILL)
        until("a trouble", lambda: cluster.machine()["trouble"])
        before = clients.seen
        until("it serves on", lambda: clients.seen > before + 50)
        cluster.start_node()
        until("shipping again", cluster.is_shipping)
        floor = all_is_there(cluster, clients)
        # The program, by its number in the host.
        children = open(f"/proc/{cluster.init}/task/{cluster.init}/children").read().split()
        for child in children:
            os.kill(int(child), signal.SIGTERM)
        cluster.leader.wait(PATIENCE)
        own, copy = open(cluster.own, "rb").read(), open(cluster.copy(), "rb").read()
        if own != copy:
            raise Failed(f"{len(copy)} of {len(own)} bytes are there: {open(folder + '/err').read()[-300:]}")
        return f"{floor} answers kept"
    finally:
        clients and clients.end()
        cluster.end()
        run("umount", "-l", data)


def slow_link(understudy, net, folder, seed):
    """The link takes less than there is: the copy falls behind and catches up, or (every other time) is given up."""
    if not shutil.which("tc"):
        return None
    cluster = Cluster(understudy, net, folder, "memory", standby=False, limits="backlog_mib = 1" if seed % 2 else "")
    clients = None
    try:
        net.slow(200)
        cluster.start_node()
        cluster.start([f"{folder}/../counter", str(PORT)])
        clients = Clients(net.names[0])
        until("shipping", cluster.is_shipping)
        if seed % 2:
            until("given up", lambda: cluster.machine()["state"] == "given up")
            words = cluster.words()
            if "n2 is sent nothing more: it was behind by" not in words:
                raise Failed(f"status says: {words}")
        else:
            until("late", lambda: cluster.machine()["lag_us"] > 3_000_000)
        lag, before = cluster.machine(), clients.seen
        until("it serves on", lambda: clients.seen > before + 1000)
        net.slow(None)
        if not seed % 2:
            all_is_there(cluster, clients)
        cluster.kill()
        time.sleep(0.2)
        replayed(understudy, cluster.copy(), folder)
        return f"{lag['lag_bytes']} bytes and {lag['lag_us'] / 1e6:.1f} s behind, {lag['links']} links"
    finally:
        clients and clients.end()
        cluster.end()


def costs(understudy, net, folder, seed):
    """What redis' requests take on the link."""
    if not shutil.which("redis-server") or not shutil.which("redis-benchmark"):
        return None
    cluster = Cluster(understudy, net, folder, "memory", standby=True)
    try:
        cluster.start_node()
        cluster.start(["redis-server", "--port", str(PORT), "--save", "", "--daemonize", "no"])
        until("shipping", cluster.is_shipping)
        before = os.path.getsize(cluster.own)
        many = 20000
        load = ["ip", "netns", "exec", net.names[0], "redis-benchmark", "-p", str(PORT), "-n", str(many), "-c", "8", "-t", "set", "-q"]
        loading, seen = subprocess.Popen(load, stdout=subprocess.DEVNULL), []
        while loading.poll() is None:
            seen.append(cluster.machine())
            time.sleep(0.05)
        time.sleep(1)
        more = os.path.getsize(cluster.own) - before
        last = sorted(machine["last_us"] for machine in seen)
        words = f"{more / many:.1f} bytes a request; at most {max(machine['lag_bytes'] for machine in seen)} bytes behind, " \
                f"{last[len(last) // 2]} us from a chunk to its acknowledgement (median; {last[-1]} at most)"
        cluster.kill()
        time.sleep(0.2)
        replayed(understudy, cluster.copy(), folder)
        return words
    finally:
        cluster.end()


def main():
    understudy = os.path.abspath(sys.argv[1])
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    lacks = [tool for tool in ("ip", "ss", "unshare", "nsenter", "openssl", "gcc") if not shutil.which(tool)]
    if os.geteuid() or lacks:
        print(f"skipped: {'no ' + ', '.join(lacks) if lacks else 'only root makes namespaces'}")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    passed = failed = skipped = 0
    place = tempfile.mkdtemp(prefix="cluster-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    try:
        run("gcc", "-O2", "-pthread", "-o", f"{place}/counter", f"{HERE}/counter.c")
        only = os.environ.get("ONLY", "")
        cases = [(die, seed) for seed in range(runs)] + [(follows, 0), (other_side, 0), (slow_link, 0), (slow_link, 1), (costs, 0)]
        for case, seed in (one for one in cases if only in one[0].__name__):
            folder = f"{place}/{case.__name__}-{seed}"
            os.mkdir(folder)
            try:
                with Net() as net:
                    words = case(understudy, net, folder, seed)
                passed, skipped = (passed, skipped + 1) if words is None else (passed + 1, skipped)
                print(f"{'skip' if words is None else 'pass'}  {case.__name__} {seed}: {words}", flush=True)
            except (Failed, subprocess.SubprocessError, OSError) as why:
                failed += 1
                print(f"FAIL  {case.__name__} {seed}: {why}", flush=True)
                for name in ("err", "node.log"):
                    path = f"{folder}/{name}"
                    os.path.exists(path) and print(f"--- {name}\n{open(path).read()[-1500:]}")
    finally:
        if "KEEP" not in os.environ:
            shutil.rmtree(place, ignore_errors=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
