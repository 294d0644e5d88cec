"""What trees of processes cost: children that live for a moment, and servers of several processes."""

import os
import pwd
import re
import shutil
import subprocess
import time

from harness import NATIVE, PROTECTED, TICK_S, Failed, Missing, free_port, lasts, need

FORKS = 2000
"""Children of one run of `forks`."""

COMMANDS = 1000
"""Commands of one run of `shell`."""

PAGE_BYTES = 10240
"""What a server of files answers with."""

CONNECTIONS = 16
"""Of one load."""

REQUESTS = 40000
"""Of one measurement."""

SETTLINGS = 4
"""Further loads before the measurement, while each costs a standby."""

RATE = 0.4
"""Of native's speed, for the measurement at one rate: a server that gets fewer requests at a time needs more time for each."""


SLOW_RATE = 0.15
"""The same where the processes take turns, and so share one processor."""

POSTGRES_PROCESSES = 6
"""Of a PostgreSQL to which nobody is connected."""


@lasts(15)
def forks(bench, results):
    """fork, exit and wait of a small child: time each"""
    forks = bench.need_compiled("forks")
    times = {NATIVE: [], PROTECTED: []}
    for turn in range(bench.args.rounds):
        for mode in times:
            with bench.start(mode, [forks, str(FORKS)], stdout=subprocess.PIPE) as run:
                output, _ = run.process.communicate(timeout=60)
                if run.process.returncode:
                    raise Failed(f"forks ({mode}): {run.complaint()}")
            median_us = int(output.split()[0]) / 1000
            times[mode].append(median_us)
            results.raw("fork, exit, wait", mode, turn, "median_us", median_us)
    results.ratio("fork, exit, wait of a small child", times[NATIVE], times[PROTECTED], 3, "us")


@lasts(60)
def shell(bench, results):
    """A shell with a thousand short commands: time of the whole"""
    script = f"i=0; while [ $i -lt {COMMANDS} ]; do {need('true')}; i=$((i + 1)); done"
    times = {NATIVE: [], PROTECTED: []}
    for turn in range(bench.args.rounds):
        for mode in times:
            started = time.monotonic()
            with bench.start(mode, [need("bash"), "-c", script]) as run:
                if run.process.wait(120):
                    raise Failed(f"bash ({mode}): {run.complaint()}")
            seconds = time.monotonic() - started
            times[mode].append(seconds)
            results.raw("a thousand commands", mode, turn, "seconds", seconds)
    results.ratio(f"bash with {COMMANDS} commands", times[NATIVE], times[PROTECTED], 4, "s")


@lasts(60)
def nginx(bench, results):
    """nginx, a master and two workers, files of 10 KB: CPU of all primaries a request"""
    files(bench, results, "nginx", lambda port, folder: nginx_command(port, folder, 2), 3, 1.10)


@lasts(70)
def apache(bench, results):
    """Apache's httpd with the event module: CPU of all primaries a request"""
    change = files(bench, results, "apache event", apache_command, 3, 1.10)
    results.compared("apache", f"{1 / (1 + change):.2f} x native's time of a request, event module, pages of 10 KB")
    results.server("Apache", [1 / (1 + change)])
    results.compared("apache throughput", f"{change:+.0%}, event module, 32 threads in two processes")


@lasts(80)
def haproxy(bench, results):
    """HAProxy with four threads before nginx: CPU of the primary a request"""

    def command(port, folder):
        argv, behind = haproxy_before_nginx(bench, port, folder)
        servers.append(behind)
        return argv

    servers = []
    try:
        files(bench, results, "haproxy", command, 1, 1.12)
    finally:
        for server in servers:
            server.terminate()
            server.wait()


@lasts(150)
def postgres(bench, results):
    """PostgreSQL under pgbench -S: CPU of all primaries a transaction"""
    versions = "/usr/lib/postgresql"
    if not os.path.isdir(versions):
        raise Missing("postgresql is not installed")
    programs = os.path.join(versions, sorted(os.listdir(versions))[-1], "bin")
    prefix = []
    folder = os.path.join(bench.state, "postgres")
    os.makedirs(folder)
    understudy, environment = bench.understudy, bench.environment
    if os.geteuid() == 0:
        prefix = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        user = pwd.getpwnam("postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
        os.chmod(bench.state, 0o711)
        # For the events.
        os.chmod(bench.folder, 0o777)
        # Understudy as that user, with a folder of that user's for its groups; its events stay with us.
        bench.understudy = written(bench.folder, "understudy-as-user", f"#!/bin/sh\nexec {' '.join(prefix)} {understudy} \"$@\"\n")
        os.chmod(bench.understudy, 0o755)
        bench.environment = dict(environment, UNDERSTUDY_DIR=os.path.join(folder, "groups"))
    try:
        data = os.path.join(folder, "data")
        tool([*prefix, os.path.join(programs, "initdb"), "-A", "trust", "-U", "postgres", "--no-sync", "-D", data])

        def command(port):
            argv = [os.path.join(programs, "postgres"), "-D", data, "-p", str(port), "-k", folder, "-c", "fsync=off", "-c", "listen_addresses=127.0.0.1"]
            return argv

        options = ["-h", "127.0.0.1", "-U", "postgres"]

        def load(run, port, per_second=0):
            pace = ["-R", str(int(per_second))] if per_second else []
            before = tree_cpu_s(run)
            output = bench.helper([os.path.join(programs, "pgbench"), "-S", "-n", "-c", "4", "-t", "5000", *pace, "-p", str(port), *options, "postgres"], 120)
            found = re.search(r"tps = ([0-9.]+)", output)
            if not found or "processed: 20000/20000" not in output:
                raise Failed(f"pgbench: {output[-200:]}")
            return (tree_cpu_s(run) - before) / 20000 * 1e6, float(found.group(1))

        def measured(mode, turn, native_speed):
            port = free_port()
            argv = command(port)
            with bench.start(mode, [*prefix, *argv] if mode == NATIVE else argv) as run:
                run.await_port(port)
                await_tree(run, POSTGRES_PROCESSES)
                if turn == 0 and mode == NATIVE:
                    bench.helper([os.path.join(programs, "pgbench"), "-i", "-q", "-s", "2", "-p", str(port), *options, "postgres"], 60)
                load(run, port)
                await_tree(run, POSTGRES_PROCESSES)
                run.begin()
                busy_us, per_s = load(run, port)
                paced_us, _ = load(run, port, (native_speed or per_s) * SLOW_RATE)
                run.check_protected()
                await_tree(run, POSTGRES_PROCESSES)
            results.raw("postgres", mode, turn, "cpu_us_per_transaction", busy_us)
            results.raw("postgres", mode, turn, "transactions_per_s", per_s)
            results.raw("postgres", mode, turn, "cpu_us_per_transaction_at_one_rate", paced_us)
            return busy_us, paced_us, per_s

        busy, paced, speed, doubt = in_pairs(bench, results, "postgres", measured)
        change = sum(speed[PROTECTED]) / sum(speed[NATIVE]) - 1
        what = "postgres, pgbench -S: CPU a transaction"
        results.ratio(what, busy[NATIVE], busy[PROTECTED], 1.20, "us", doubt=f"throughput {change:+.0%}: its processes take turns{doubt}")
        results.ratio(f"{what}, at {SLOW_RATE:.0%} of the speed that native had", paced[NATIVE], paced[PROTECTED], 1.20, "us")
    finally:
        bench.understudy, bench.environment = understudy, environment


def files(bench, results, label, command, processes, limit):
    """CPU of a tree that serves one file, native and protected in turn: as fast as the load asks, and then at one rate for both."""
    bench.need_compiled("httpload")

    in_turns = []

    def measured(mode, turn, native_speed):
        port = free_port()
        folder = os.path.join(bench.folder, f"{label.replace(' ', '-')}-{turn}-{mode}")
        os.makedirs(os.path.join(folder, "pages"))
        try:
            with open(os.path.join(folder, "pages", "page"), "wb") as file:
                file.write(os.urandom(PAGE_BYTES))
            os.chmod(bench.folder, 0o711)
            with bench.start(mode, command(port, folder)) as run:
                run.await_port(port)
                await_tree(run, processes)
                settle(bench, run, port, processes)
                busy_us, per_s = serve(bench, run, port, REQUESTS)
                # One that both can keep up with.
                paced_us, _ = serve(bench, run, port, REQUESTS, (native_speed or per_s) * RATE)
                run.check_protected()
                await_tree(run, processes)
        finally:
            shutil.rmtree(folder)
        results.raw(label, mode, turn, "cpu_us_per_request", busy_us)
        results.raw(label, mode, turn, "requests_per_s", per_s)
        results.raw(label, mode, turn, "cpu_us_per_request_at_one_rate", paced_us)
        in_turns.append(run.order() == "serial")
        return busy_us, paced_us, per_s

    busy, paced, speed, doubt = in_pairs(bench, results, label, measured)
    if any(in_turns):
        doubt += f"; in turns in {sum(in_turns)} rounds"
    change = sum(speed[PROTECTED]) / sum(speed[NATIVE]) - 1
    results.ratio(f"{label}: CPU a request", busy[NATIVE], busy[PROTECTED], limit, "us", doubt=f"throughput {change:+.0%}: the load generator shares a core with the standbys{doubt}")
    results.ratio(f"{label}: CPU a request, at {RATE:.0%} of the speed that native had", paced[NATIVE], paced[PROTECTED], limit, "us")
    return change


def in_pairs(bench, results, label, measured):
    """Three figures of `measured(mode, turn, native's third)`, each by mode, of the rounds in which no standby was lost while it
    measured; and a doubt that names the others."""
    figures, lost = [{NATIVE: [], PROTECTED: []} for _ in range(3)], []
    for turn in range(bench.args.server_rounds):
        try:
            native = measured(NATIVE, turn, 0)
            protected = measured(PROTECTED, turn, native[2])
        except Missing:
            raise
        except Failed as why:
            # Half a pair compares with nothing.
            lost.append(str(why))
            continue
        for of, *pair in zip(figures, native, protected):
            for mode, value in zip((NATIVE, PROTECTED), pair):
                of[mode].append(value)
    if len(lost) == bench.args.server_rounds:
        raise Failed(f"in every round: {lost[-1]}")
    if lost:
        results.failures.append(label)
    return *figures, f"; {len(lost)} of {bench.args.server_rounds} rounds lost: {lost[-1]}" if lost else ""


def settle(bench, run, port, processes):
    """Warms up. A server that races takes turns after some divergences, and is measured as it is then."""
    for requests in (2000, *[REQUESTS // 4] * SETTLINGS):
        run.begin()
        serve(bench, run, port, requests)
        await_tree(run, processes)
        if run.mode == NATIVE or run.unprotected() is None:
            break
    run.begin()


def serve(bench, run, port, requests, per_second=0):
    """Processor time of all primaries a request, us, and how many came in a second."""
    before = tree_cpu_s(run)
    output = bench.helper([bench.path("httpload"), str(port), str(CONNECTIONS), str(requests), "/page", str(PAGE_BYTES), str(per_second)], 120)
    return (tree_cpu_s(run) - before) / requests * 1e6, float(output.split()[1])


def written(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def nginx_command(port, folder, workers, connections=256):
    os.makedirs(folder, exist_ok=True)
    places = "".join(f"{what}_temp_path {folder}/{what};" for what in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    pages = os.path.join(folder if os.path.isdir(os.path.join(folder, "pages")) else os.path.dirname(folder), "pages")
    user = "user root;" if os.geteuid() == 0 else ""
    text = f"""{user} daemon off; worker_processes {workers}; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections {connections}; }}
http {{ access_log off; keepalive_requests 100000000; keepalive_timeout 600s; {places}
server {{ listen 127.0.0.1:{port}; root {pages}; }} }}
"""
    return [need("nginx"), "-p", folder, "-e", f"{folder}/error.log", "-c", written(folder, "nginx.conf", text)]


def nginx_room(connections):
    """With less than a sixteenth of its places free, nginx ends connections that wait."""
    return connections * 5 // 4


def haproxy_before_nginx(bench, port, folder, connections=256):
    """HAProxy's command, and the nginx behind it, which runs already."""
    haproxy, behind = need("haproxy"), free_port()
    argv = nginx_command(behind, os.path.join(folder, "behind"), 1, nginx_room(connections))
    server = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=bench.pinned(bench.other_core))
    text = f"""global
    nbthread 4
    maxconn {connections}
defaults
    mode http
    timeout connect 60s
    timeout client 60s
    timeout server 60s
    http-reuse never
frontend bench
    bind 127.0.0.1:{port}
    default_backend behind
backend behind
    server one 127.0.0.1:{behind}
"""
    return [haproxy, "-db", "-f", written(folder, "haproxy.cfg", text)], server


def apache_command(port, folder):
    modules = "/usr/lib/apache2/modules"
    user = "User www-data\nGroup www-data\n" if os.geteuid() == 0 else ""
    text = f"""ServerRoot {folder}
ServerName localhost
PidFile {folder}/pid
DefaultRuntimeDir {folder}
Listen 127.0.0.1:{port}
LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule authz_core_module {modules}/mod_authz_core.so
ErrorLog {folder}/error.log
DocumentRoot {folder}/pages
MaxKeepAliveRequests 0
KeepAliveTimeout 600
StartServers 2
ServerLimit 2
ThreadsPerChild 16
MaxRequestWorkers 32
MinSpareThreads 1
MaxSpareThreads 32
{user}<Directory {folder}/pages>
Require all granted
</Directory>
"""
    return [need("apache2"), "-DFOREGROUND", "-f", written(folder, "httpd.conf", text)]


def tool(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    if done.returncode:
        raise Failed(f"{command[-1]}: {done.stderr.strip()[-200:]}")


def await_tree(run, processes):
    """Waits until so many processes are there, each with a standby that follows."""
    deadline = time.monotonic() + 20
    while run.mode != NATIVE:
        found = [process for process in run.status()["processes"] if process["standbys"]]
        if len(found) >= processes:
            return
        if time.monotonic() > deadline:
            raise Failed(f"{len(found)} processes of {processes} are protected")
        time.sleep(0.05)


def tree_cpu_s(run):
    """Processor time of all primaries, and of their children that have ended, s."""
    if run.mode == NATIVE:
        pids = descendants(run.process.pid)
    else:
        pids = [process["primary"]["pid"] for process in run.status()["processes"] if process["primary"]]
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                # Behind the name: utime, stime, cutime and cstime are the twelfth to the fifteenth.
                total += sum(int(field) for field in file.read().rsplit(") ", 1)[1].split()[11:15])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total * TICK_S


def descendants(pid):
    found = [pid]
    for parent in found:
        try:
            with open(f"/proc/{parent}/task/{parent}/children", encoding="utf-8") as file:
                found += [int(child) for child in file.read().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


BENCHMARKS = {"forks": forks, "shell": shell, "nginx": nginx, "apache": apache, "haproxy": haproxy, "postgres": postgres}
