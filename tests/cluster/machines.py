"""What the tests of a cluster have in common: two machines, clients that count, and the programs of both."""

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


def first_process(what, outer):
    """The machine's first process: understudy, the child of unshare, which `ip netns exec` has become."""
    def first():
        for pid in open(f"/proc/{outer.pid}/task/{outer.pid}/children").read().split():
            try:
                if open(f"/proc/{pid}/comm").read().strip() == "understudy":
                    return int(pid)
            except OSError:
                pass
    return until(what, first)


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

    def __init__(self, namespace, many=3, request=b"x"):
        self.seen, self.wrong, self.go_on = 0, None, True
        self.pause = threading.Event()
        self.pause.set()
        self.lock = threading.Lock()
        code = (
            "import socket,sys\n"
            f"s=socket.create_connection(('127.0.0.1',{PORT}));f=s.makefile('rb')\n"
            "for line in sys.stdin:\n"
            f"  s.sendall({request!r}); sys.stdout.write(f.readline().decode().lstrip(':')); sys.stdout.flush()\n"
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
    def __init__(self, understudy, net, folder, commit, standby, limits="", mirror=None, volume=None, address=None):
        self.understudy, self.net, self.folder, self.commit, self.standby = understudy, net, folder, commit, standby
        self.volume, self.address = volume, address
        for name in ("n1", "n2") if volume else ():
            os.makedirs(f"{volume}.{name}")
        volume and os.mkdir(volume)
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

    def on(self, at, *command):
        """A command of a machine's: what is a volume to both lies elsewhere on each."""
        inside = ["ip", "netns", "exec", self.net.names[at]]
        if self.volume:
            mount = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
            inside += ["sh", "-c", mount, "sh", f"{self.volume}.n{at + 1}", self.volume]
        return [*inside, *command]

    def start_node(self):
        command = self.on(1, self.understudy, "node", "--config", f"{self.folder}/n2.toml")
        self.node = subprocess.Popen(command, stderr=open(f"{self.folder}/node.log", "a"), env=self.elsewhere)
        until("the node listens", lambda: "listens" in open(f"{self.folder}/node.log").read())

    def end_node(self, how=signal.SIGTERM):
        self.node.send_signal(how)
        self.node.wait()
        os.truncate(f"{self.folder}/node.log", 0)

    def start(self, program, more=()):
        how = ["run", "--metrics", "9464", "--record", self.own] if self.standby else ["record", "-o", self.own]
        if self.address:
            how = ["run", "--standbys", str(int(self.standby)), "--record", self.own]
        command = self.on(0, "unshare", "--pid", "--fork", "--mount-proc", "--kill-child",
                          self.understudy, *how, "--name", "group", "--cluster", "n2", "--commit", self.commit,
                          "--cluster-config", f"{self.folder}/n1.toml", *(["--address", self.address] if self.address else []), *more, "--", *program)
        self.leader = subprocess.Popen(command, env=self.environment, stdout=open(f"{self.folder}/out", "w"),
                                       stderr=open(f"{self.folder}/err", "w"), start_new_session=True)
        self.init = first_process("it starts", self.leader)
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
        """What the other machine says of the program that it follows. One that begins once more, at an image, is not there for a moment."""
        command = ["ip", "netns", "exec", self.net.names[1], self.understudy, "status", "group", "--json"]
        told = subprocess.run(command, env=self.elsewhere, capture_output=True, text=True).stdout
        groups = json.loads(told)["groups"] if told.startswith("{") else []
        return groups[0] if groups else None

    def mirror_is(self, state):
        """Whether the other machine has a mirror in this state."""
        return (self.mirror() or {}).get("state") == state

    def mirror_is_near(self, bytes_behind=100_000):
        """Whether the other machine has applied all but so much of what it has."""
        told = (self.mirror() or {}).get("mirror") or {}
        return told.get("behind_bytes", bytes_behind) < bytes_behind

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
        if self.leader and self.leader.poll() is None and hasattr(self, "init"):
            self.kill()
        for process in (self.leader, self.node):
            if process and process.poll() is None:
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
