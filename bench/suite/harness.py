"""Starting, watching and ending what is measured, native or protected."""

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TICK_S = 1 / os.sysconf("SC_CLK_TCK")

NATIVE, ALONE, PROTECTED, RECORDED = "native", "alone", "protected", "recorded"
"""Without Understudy; with the runtime and no standby (--standbys 0); with a live standby; into a recording."""

UNPROTECTED = 4
"""How `status` ends while a process of the group has no standby: it says so all the same."""


class Failed(Exception):
    """A benchmark that cannot give a figure, in words for the report."""


class Missing(Failed):
    """What is measured is not on this machine, or does not work on it: no fault of ours."""


class Bench:
    """One invocation: binaries copied to a private folder, compiled programs, a state folder of its own."""

    def __init__(self, args):
        self.args, self.root = args, ROOT
        self.all_cores = os.sched_getaffinity(0)
        self.primary_core, self.other_core = (int(core) for core in args.cpus.split(":"))
        if not {self.primary_core, self.other_core} <= os.sched_getaffinity(0):
            sys.exit(f"bench/run: --cpus {args.cpus}: this process may not use both cores")
        self.load_before = os.getloadavg()[0]
        # Whatever is not the primary, this script and the supervisor included, stays off the primary's core.
        os.sched_setaffinity(0, {self.other_core})
        self.groups = 0

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="understudy-bench-")
        self.state = tempfile.mkdtemp(prefix="understudy-bench-", dir="/dev/shm")
        # A build in the meantime must not change what is measured half way through.
        source = self.args.bin or os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "release")
        for name in ("understudy", "libunderstudy.so"):
            path = os.path.join(source, name)
            if not os.path.exists(path):
                self.__exit__()
                sys.exit(f"bench/run: {path} is missing: run `make build` first")
            shutil.copy2(path, self.path(name))
        # Which `blackout` uses.
        if os.path.exists(os.path.join(source, "kit")):
            shutil.copy2(os.path.join(source, "kit"), self.path("kit"))
        self.understudy = self.path("understudy")
        self.environment = dict(os.environ, UNDERSTUDY_DIR=self.state)
        for name in ("lock", "clock", "gettimeofday", "getppid", "read", "write", "mcload", "gap", "touched"):
            self.compile(name)
        return self

    def __exit__(self, *_):
        self.stop_groups()
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.state, ignore_errors=True)

    def stop_groups(self):
        """Ends what has outlived its benchmark: a signal came, or who should have ended it was ended itself."""
        if not os.listdir(self.state):
            return
        asked = subprocess.run([self.understudy, "status", "--json"], capture_output=True, text=True, env=self.environment, check=False)
        for group in json.loads(asked.stdout or '{"groups": []}')["groups"]:
            if group["state"] != "ended":
                words = [self.understudy, "stop", group["name"], "--timeout", "10"]
                subprocess.run(words, capture_output=True, env=self.environment, check=False)

    def path(self, name):
        return os.path.join(self.folder, name)

    def compile(self, name):
        command = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", self.path(name), os.path.join(HERE, name + ".c"), "-lpthread"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            self.__exit__()
            sys.exit(f"bench/run: {' '.join(command)}\n{done.stderr}")

    def pinned(self, core):
        return lambda: os.sched_setaffinity(0, {core})

    def unpinned(self):
        os.sched_setaffinity(0, self.all_cores)

    def need_compiled(self, name):
        """The path of a program of this folder, compiled when it is first asked for."""
        if not os.path.exists(self.path(name)):
            self.compile(name)
        return self.path(name)

    def helper(self, argv, timeout):
        """Runs a load generator on the other core and returns its output."""
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, check=False, preexec_fn=self.pinned(self.other_core))
        except subprocess.TimeoutExpired:
            raise Failed(f"{os.path.basename(argv[0])} did not end within {timeout} s") from None
        if done.returncode:
            raise Failed(f"{os.path.basename(argv[0])} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-200:]}")
        return done.stdout

    def start(self, mode, argv, **options):
        return Run(self, mode, argv, **options)


class Run:
    """One run of a program in one mode; a context manager that ends what it has started."""

    def __init__(self, bench, mode, argv, stdout=subprocess.DEVNULL, more=(), file=None, pinned=True, stdin=None):
        """`pinned`: the primary on its core and the rest on the other; otherwise both copies run wherever the kernel lets them."""
        self.bench, self.mode, self.argv = bench, mode, argv
        self.forgiven = 0
        bench.groups += 1
        self.name = f"bench-{os.getpid()}-{bench.groups}"
        self.log = open(bench.path(self.name + ".stderr"), "w+", encoding="utf-8", errors="replace")
        if mode == NATIVE:
            command, prepare = argv, bench.pinned(bench.primary_core) if pinned else bench.unpinned
        else:
            self.events_path = bench.path(self.name + ".events")
            command = [bench.understudy, "run", "-q", "--name", self.name, "--events", self.events_path]
            if mode == RECORDED:
                command += ["--lag-timeout", "10000", "--record", file or bench.path(self.name + ".understudy")]
            command += ["--standbys", "1" if mode == PROTECTED else "0"]
            command += [*(["--cpus", bench.args.cpus] if pinned else []), *more, "--", *argv]
            prepare = None if pinned else bench.unpinned
        self.process = subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=self.log, text=True, env=bench.environment, preexec_fn=prepare)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                for pid in self.pids():
                    end(pid)
                self.process.kill()
                self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()
        self.log.close()

    def events(self):
        """The lifecycle events so far."""
        if self.mode == NATIVE:
            return []
        try:
            with open(self.events_path, encoding="utf-8") as file:
                return [json.loads(line) for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return []

    def event(self, name):
        return next((event for event in self.events() if event["event"] == name), None)

    def pids(self):
        pids = [self.process.pid]
        for event in self.events():
            pids += [event[copy] for copy in ("primary", "standby") if event.get(copy)]
        return pids

    def primary(self):
        """Kernel's pid of the program itself."""
        if self.mode == NATIVE:
            return self.process.pid
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and self.process.poll() is None:
            for name in ("protected", "started"):
                event = self.event(name)
                if event and event.get("primary") and (name == "protected" or self.mode in (ALONE, RECORDED)):
                    return event["primary"]
            time.sleep(0.002)
        raise Failed(f"{self.argv[0]} did not become protected: {self.complaint()}")

    def standby(self):
        event = self.event("protected")
        return event and event.get("standby")

    def status(self):
        """This group's part of `status --json`."""
        done = subprocess.run([self.bench.understudy, "status", self.name, "--json"], capture_output=True, text=True, env=self.bench.environment, check=False)
        if done.returncode not in (0, UNPROTECTED):
            raise Failed(f"understudy status: {done.stderr.strip()[-200:]}")
        return json.loads(done.stdout)["groups"][0]

    def unprotected(self):
        """Why the group lost its standby, None if it has not: a figure from such a run says nothing."""
        if self.mode != PROTECTED:
            return None
        if not self.event("protected"):
            return "it never was protected: " + self.complaint()
        return next(iter(self.losses()[self.forgiven :]), None)

    def losses(self):
        """Why standbys were lost, each time."""
        lost = [event for event in self.events() if event["event"] in ("unprotected", "diverged", "standby_lost")]
        return [event.get("reason") or event.get("why") or event["event"] for event in lost]

    def begin(self):
        """The measurement begins: that a process had no standby for a moment before, as when it was made, is no matter."""
        self.forgiven = len(self.losses())

    def order(self):
        """How threads are ordered by now: "schedule", or "serial" in turns."""
        return next((event["order"] for event in reversed(self.events()) if event.get("order")), "schedule")

    def check_protected(self):
        why = self.unprotected()
        if why:
            raise Failed(f"{os.path.basename(self.argv[0])} lost its standby: {why}")

    def complaint(self):
        self.log.flush()
        with open(self.log.name, encoding="utf-8", errors="replace") as file:
            return file.read().strip()[-200:] or "no word why"

    def finish(self, timeout):
        """Waits for the program's own end and returns its output."""
        try:
            output, _ = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise Failed(f"{os.path.basename(self.argv[0])} ({self.mode}) did not end within {timeout} s") from None
        if self.process.returncode:
            raise Failed(f"{os.path.basename(self.argv[0])} ({self.mode}) ended with {self.process.returncode}: {self.complaint()}")
        self.check_protected()
        return output

    def await_port(self, port):
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return self
            time.sleep(0.01)
        raise Failed(f"{self.argv[0]} ({self.mode}) does not listen: {self.complaint()}")


class Strangers:
    """How much of the machine others use: all that is busy, without this script and what it has started and
    waited for. Interrupts count as strangers, so a few per cent of a core mean nothing."""

    def __init__(self):
        self.began = time.monotonic(), self.busy_s() - self.own_s()

    @staticmethod
    def busy_s():
        with open("/proc/stat", encoding="ascii") as file:
            user, nice, system, _idle, _wait, irq, softirq, steal = (int(field) for field in file.readline().split()[1:9])
        return (user + nice + system + irq + softirq + steal) * TICK_S

    @staticmethod
    def own_s():
        own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime

    def cores(self):
        """Cores' worth since the beginning."""
        began, foreign = self.began
        return (self.busy_s() - self.own_s() - foreign) / max(time.monotonic() - began, 1e-9)


def end(pid):
    """Kills one process that this invocation started."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def cpu_s(pid):
    """utime + stime of a process with all its threads, dead ones included, seconds. None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return (int(fields[11]) + int(fields[12])) * TICK_S


def memory_of(pids):
    """Bytes of processes; what they share counts once."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
                total += sum(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
        except (FileNotFoundError, ProcessLookupError):
            raise Failed(f"process {pid} is gone") from None
    return total


def cpu_exact_s(pid):
    """CPU time of the threads that live now, by the scheduler's own nanoseconds. For idle ones, where a tick of 10 ms is too coarse."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
            total += int(file.read().split()[0])
    return total / 1e9


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def fields(line):
    """`name=lock min_ns=1.5` as a dictionary."""
    return dict(part.split("=", 1) for part in line.split())


def need(program):
    path = shutil.which(program)
    if not path:
        raise Missing(f"{program} is not installed")
    return path


def lasts(seconds):
    """Says of a benchmark how long it takes with its defaults, for `--list`."""

    def told(benchmark):
        benchmark.seconds = seconds
        return benchmark

    return told
