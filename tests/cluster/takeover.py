"""The other machine runs the program from its log, and takes over."""

import glob
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time

from machines import PORT, Clients, Cluster, Failed, all_is_there, run, until


def follows(understudy, net, folder, seed):
    """The other machine runs the program from its log, also over a failover of the program's and over a cut link; what it must not
    follow it keeps."""
    cluster = Cluster(understudy, net, folder, "memory", standby=True, mirror="")
    clients = None
    try:
        cluster.start_node()
        cluster.start([f"{folder}/../counter", str(PORT)])
        clients = Clients(net.names[0])
        until("following", lambda: cluster.mirror_is("following"))
        cluster.kill_primary()
        net.cut(True)
        until("apart", lambda: cluster.mirror_is("apart"))
        before = clients.seen
        until("it serves on", lambda: clients.seen > before + 50)
        net.cut(False)
        until("following again", lambda: cluster.mirror_is("following"))
        floor, out = all_is_there(cluster, clients), cluster.copy().replace(".understudy", ".out")
        until("it shows all of that", lambda: len(open(out).read().split()) >= floor, 10)
        told = [cluster.mirror() for _ in range(20) if time.sleep(0.1) is None]
        behind = [one["mirror"] for one in told if one]
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


def asked(net, command):
    """What a program in the other namespace says to a client there."""
    return subprocess.run(["ip", "netns", "exec", net.names[1], *command], capture_output=True, text=True).stdout.strip()


class Elsewhere:
    """The program after it has been taken over, on the other machine."""

    def __init__(self, cluster):
        self.cluster = cluster

    def ask(self, *words):
        command = ["ip", "netns", "exec", self.cluster.net.names[1], self.cluster.understudy, *words]
        return subprocess.run(command, env=self.cluster.elsewhere, capture_output=True, text=True)

    def take_over(self):
        """The operator's word; until the first answer, ms."""
        began, told = time.monotonic(), None
        while told is None or told.returncode:
            told = self.ask("failover", "group")
            # The end of the link may not have been noticed.
            if told.returncode and "is there, and runs it" not in told.stderr or time.monotonic() > began + 5:
                raise Failed(f"no take-over: {told.stderr.strip()}")
        until("an answer", lambda: asked(self.cluster.net, self.first), 20)
        return (time.monotonic() - began) * 1000, told.stdout.strip()

    def comes_by_itself(self):
        began = time.monotonic()
        until("an answer without a word", lambda: asked(self.cluster.net, self.first), 20)
        return (time.monotonic() - began) * 1000, "it took over by itself"

    def is_protected(self):
        until("protected there", lambda: (self.cluster.mirror() or {}).get("state") == "protected")

    def end(self):
        self.ask("stop", "group", "--timeout", "1")


# Servers that count: each answers a byte with a number and a line's end.
COUNTS_IN_A_FILE = """
import os, socket, sqlite3, sys
port, folder = int(sys.argv[1]), sys.argv[2]
base = sqlite3.connect(f"{folder}/base", isolation_level=None)
base.execute("CREATE TABLE IF NOT EXISTS counter (n INTEGER)")
base.execute("INSERT INTO counter VALUES (0)")
listener = socket.create_server(("", port))
journal, number = os.open(f"{folder}/journal", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600), 0
import selectors
all = selectors.DefaultSelector()
all.register(listener, selectors.EVENT_READ)
while True:
    for key, _ in all.select():
        if key.fileobj is listener:
            all.register(listener.accept()[0], selectors.EVENT_READ)
            continue
        try:
            if not key.fileobj.recv(1): raise OSError
            base.execute("UPDATE counter SET n = n + 1")
            (number,) = base.execute("SELECT n FROM counter").fetchone()
            os.write(journal, b"%d\\n" % number)
            if number % 50 == 0:
                with open(f"{folder}/new", "w") as file: file.write(str(number))
                os.rename(f"{folder}/new", f"{folder}/last")
            key.fileobj.sendall(b"%d\\n" % number)
        except OSError:
            all.unregister(key.fileobj), key.fileobj.close()
"""

MANY_THINGS = """
import os, select, signal, socket, sys, threading, time
port = int(sys.argv[1])
# A thread that wants the interpreter asks for it by a flag that is read without a lock: docs/LIMITS.md, note 12.
sys.setswitchinterval(3600)
lock, number, ticks, beats = threading.Lock(), 0, 0, 0
r, w = os.pipe()
event = os.eventfd(0)
left, right = socket.socketpair()
def tick(*_):
    global ticks
    ticks += 1
signal.signal(signal.SIGALRM, tick)
signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
def beat():
    global beats
    while True:
        time.sleep(0.01)
        with lock: beats += 1
threading.Thread(target=beat, daemon=True).start()
def count():
    # By a pipe, an eventfd and a pair of sockets.
    global number
    while True:
        os.read(r, 1)
        os.eventfd_write(event, 1)
        os.eventfd_read(event)
        number += 1
        left.sendall(b"%d\\n" % number)
threading.Thread(target=count, daemon=True).start()
def serve(client):
    try:
        while client.recv(1):
            with lock:
                os.write(w, b"x")
                answer = right.recv(99)
            client.sendall(answer)
    except OSError:
        pass
    client.close()
listener = socket.create_server(("", port))
waits = select.epoll()
waits.register(listener.fileno(), select.EPOLLIN)
while True:
    for _ in waits.poll():
        threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()
"""


def digests(folder):
    """What is in the files of a folder, by their names; of one that goes away meanwhile, what is like nothing else."""
    found = {}
    for at, _, names in os.walk(folder):
        for name in names:
            try:
                with open(f"{at}/{name}", "rb") as file:
                    found[os.path.relpath(f"{at}/{name}", folder)] = hashlib.sha256(file.read()).hexdigest()
            except FileNotFoundError:
                found[name] = object()
    return found


def takes_over(understudy, net, folder, seed, program=None, request=b"x", volume=None, is_calm=True, lease=""):
    """The machine dies whole; by the operator's word the other one goes on. No counter is below what was committed."""
    own = volume and f"{folder}/volume"
    cluster = Cluster(understudy, net, folder, "memory", standby=seed % 2 == 0,
                      mirror=f"volumes = ['{own}']" if volume else lease, volume=own)
    other, clients = Elsewhere(cluster), None
    chance = random.Random(seed)
    try:
        cluster.start_node()
        cluster.start([word.replace('{volume}', own or '') for word in program or [f"{folder}/../counter", str(PORT)]])
        clients = Clients(net.names[0], request=request)
        until("following", lambda: cluster.mirror_is("following"))
        time.sleep(chance.uniform(0.3, 1))
        if is_calm:
            floor = all_is_there(cluster, clients)
        else:
            clients.pause.clear()
            time.sleep(1)
            floor = clients.seen
            clients.pause.set()
        words = ""
        if volume:
            clients.pause.clear()
            until("equal files", lambda: digests(f"{own}.n1") == digests(f"{own}.n2"), 10)
            words = f", {len(digests(f'{own}.n2'))} files were equal"
            clients.pause.set()
        time.sleep(chance.uniform(0.1, 0.5))
        if other.ask("failover", "group").returncode == 0:
            raise Failed("it takes over from a program that runs")
        cluster.kill()
        seen = clients.seen
        code = f"import socket;s=socket.create_connection(('127.0.0.1',{PORT}));s.sendall({request!r});print(int(s.recv(99).decode().lstrip(':')))"
        other.first = [sys.executable, "-c", code]
        took, told = other.comes_by_itself() if lease else other.take_over()
        first = int(asked(net, other.first)) - 1
        if os.environ.get("DEBUG"):
            print(other.ask("status", "group").stdout, other.ask("status", "group", "--json").stdout[:2000])
        if first < floor:
            raise Failed(f"it goes on at {first}, and {floor} was committed")
        other.is_protected()
        if int(asked(net, other.first)) != first + 2:
            raise Failed("it does not count on")
        pid = str(cluster.mirror()["processes"][0]["primary"]["pid"])
        os.kill(int(pid), signal.SIGKILL)
        until("a failover there", lambda: (cluster.mirror() or {"epoch": 0})["epoch"] == 1)
        if int(asked(net, other.first)) != first + 3:
            raise Failed("it does not count on behind a failover there")
        return f"{seen} seen, {floor} committed at least, goes on at {first}{words}; first answer {took:.0f} ms after the word; {told}"
    finally:
        other.end()
        clients and clients.end()
        cluster.end()


def over_lease(understudy, net, folder, seed):
    return takes_over(understudy, net, folder, seed, lease="lease_ms = 500")


def over_redis(understudy, net, folder, seed):
    if not shutil.which("redis-server"):
        return None
    program = ["redis-server", "--port", str(PORT), "--save", "", "--dir", "{volume}", "--appendonly", "yes"]
    return takes_over(understudy, net, folder, seed, program, b"INCR k\r\n", True, is_calm=False)


def over_files(understudy, net, folder, seed):
    program = [sys.executable, "-c", COUNTS_IN_A_FILE, str(PORT), "{volume}"]
    return takes_over(understudy, net, folder, seed, program, volume=True)


def over_many(understudy, net, folder, seed):
    return takes_over(understudy, net, folder, seed, [sys.executable, "-c", MANY_THINGS, str(PORT)], is_calm=False)


def over_nginx(understudy, net, folder, seed):
    """Static files, over connections that are kept."""
    if not shutil.which("nginx"):
        return None
    cluster = Cluster(understudy, net, folder, "memory", standby=False, mirror="")
    other = Elsewhere(cluster)
    with open(f"{folder}/page", "w") as file:
        file.write("x" * 20000)
    with open(f"{folder}/nginx.conf", "w") as file:
        file.write(f"daemon off; master_process off; error_log {folder}/nginx.log; pid {folder}/nginx.pid; events {{}}\n"
                   f"http {{ access_log off; server {{ listen {PORT}; root {folder}; }} }}\n")
    code = ("import http.client as h; c=h.HTTPConnection('127.0.0.1',%d,timeout=5)\n"
            "for _ in range(5): c.request('GET','/page'); print(len(c.getresponse().read()))" % PORT)
    other.first = [sys.executable, "-c", code]
    try:
        cluster.start_node()
        cluster.start(["nginx", "-c", f"{folder}/nginx.conf"])
        until("following", lambda: cluster.mirror_is("following"))
        before = subprocess.run(["ip", "netns", "exec", net.names[0], *other.first], capture_output=True, text=True).stdout.strip()
        time.sleep(0.5)
        cluster.kill()
        took, told = other.take_over()
        if asked(net, other.first) != before or before.split() != ["20000"] * 5:
            raise Failed("another page")
        other.is_protected()
        return f"first answer {took:.0f} ms after the word; {told}"
    finally:
        other.end()
        cluster.end()


def over_postgres(understudy, net, folder, seed):
    """PostgreSQL recorded in turns, which is how a log has what its processes share: all of them go on, with each row that was
    committed and none twice, and are protected there."""
    found = glob.glob("/usr/lib/postgresql/*/bin/postgres")
    if not found or not shutil.which("setpriv"):
        return None
    chance, home, volume = random.Random(seed), os.path.dirname(found[0]), f"{folder}/volume"
    as_user = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
    cluster = Cluster(understudy, net, folder, "memory", standby=False, mirror=f"volumes = ['{volume}']", volume=volume)
    other, load, told = Elsewhere(cluster), None, f"{folder}/told"
    # What a killed one leaves behind is on neither machine's disk.
    before = set(glob.glob("/dev/shm/PostgreSQL.*"))
    sql = [f"{home}/psql", "-h", "127.0.0.1", "-p", str(PORT), "-U", "postgres", "-qtA"]

    def asks(at, query):
        return subprocess.run(["ip", "netns", "exec", net.names[at], *sql, "-c", query], capture_output=True, text=True).stdout.strip()

    def seen():
        with open(told) as file:
            return file.read().count("\n")

    try:
        for path in (os.path.dirname(folder), folder):
            os.chmod(path, 0o711)
        for name in ("n1", "n2"):
            shutil.chown(f"{volume}.{name}", "postgres", "postgres")
        run(*as_user, f"{home}/initdb", "-D", f"{volume}.n1/data", "-A", "trust", "-U", "postgres")
        with open(f"{volume}.n1/data/postgresql.conf", "a") as file:
            file.write(f"port = {PORT}\nunix_socket_directories = ''\nautovacuum = off\nmax_parallel_workers = 0\n")
        run("cp", "-a", f"{volume}.n1/data", f"{volume}.n2")
        cluster.start_node()
        cluster.start([*as_user, f"{home}/postgres", "-D", f"{volume}/data"], ["--order", "serial"])
        until("it serves", lambda: asks(0, "SELECT 1") == "1", 20)
        asks(0, "CREATE TABLE rows (number serial PRIMARY KEY)")
        with open(told, "w") as file:
            adds = ["sh", "-c", 'yes "INSERT INTO rows DEFAULT VALUES RETURNING number;" | "$@"', "sh", *sql]
            load = subprocess.Popen(["ip", "netns", "exec", net.names[0], *adds], stdout=file, stderr=subprocess.DEVNULL)
        until("following", lambda: cluster.mirror_is("following"))
        until("rows", lambda: seen() > 100)
        time.sleep(chance.uniform(0.3, 1))
        floor, committed = seen(), os.path.getsize(cluster.own)
        until("all of that is acknowledged", lambda: (cluster.is_shipping() or {}).get("committed_bytes", 0) >= committed + 100_000)
        cluster.kill()
        load.wait()
        last = seen()
        other.first = [*sql, "-c", "SELECT 1"]
        took, said = other.take_over()
        many = asks(1, "SELECT count(*), max(number) FROM rows")
        rows = int(many.split("|")[0])
        # The last one may have been committed, and its answer lost with the machine.
        if many != f"{rows}|{rows}" or not floor <= rows <= last + 1:
            raise Failed(f"{many} rows there; {floor} were committed, and {last} seen")
        other.is_protected()
        primary = cluster.mirror()["processes"][0]["primary"]["pid"]
        os.kill(primary, signal.SIGKILL)
        until("a failover there", lambda: (cluster.mirror() or {"epoch": 0})["epoch"] > 0)
        more = asks(1, "INSERT INTO rows DEFAULT VALUES; SELECT count(*) FROM rows")
        if more != str(rows + 1):
            raise Failed(f"{more} rows behind a failover there and one more; {rows} were there")
        return f"{last} rows seen, {floor} committed at least, {rows} there; first answer {took:.0f} ms after the word; {said}"
    finally:
        other.end()
        load and load.kill()
        cluster.end()
        for left in set(glob.glob("/dev/shm/PostgreSQL.*")) - before:
            os.unlink(left)
