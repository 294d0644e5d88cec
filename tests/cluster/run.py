#!/usr/bin/env python3
"""Two machines: the log of a server on one is kept on the other, and the first one dies.

Machines are network namespaces joined by a veth pair; the leader's has a pid namespace of its own, and dies whole by a SIGKILL of its
first process. Clients count meanwhile. What the other machine keeps must then be the beginning of what the dead one had on its disk,
hold what was acknowledged, and replay to its end: it shows each answer that a client had and that was acknowledged. The link is cut
and joined again, the other machine's process is ended, its disk is full: the server serves on, `status` says why, and shipping
resumes.

usage: run.py UNDERSTUDY [RUNS]
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import chain
import chain_programs
import gate
import join
import takeover
import trouble
from machines import HERE, PORT, PATIENCE, Clients, Cluster, Failed, Net, all_is_there, replayed, run, until


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
        for program in ("counter", "mover", "forker", "ponder"):
            run("gcc", "-O2", "-pthread", "-o", f"{place}/{program}", f"{HERE}/{program}.c")
        only = os.environ.get("ONLY", "")
        cases = [(die, seed) for seed in range(runs)] + [(takeover.follows, 0)]
        cases += [(takeover.takes_over, seed) for seed in range(runs)]
        cases += [(over, 0) for over in (takeover.over_lease, takeover.over_redis, takeover.over_files, takeover.over_many, takeover.over_nginx)]
        cases += [(takeover.over_postgres, seed) for seed in range(min(runs, 4))]
        cases += [(other_side, 0), (slow_link, 0), (slow_link, 1), (costs, 0)]
        cases += [(case, seed) for seed in range(runs) for case in (gate.gate_counter, gate.gate_redis, gate.gate_moves)]
        cases += [(gate.gate_opens, 0), (gate.gate_shuts, 0), (gate.gate_ends, 0)]
        cases += [(case, 0) for case in trouble.KINDS]
        cases += [(case, seed) for seed in range(int(os.environ.get("FIRST", "0")), runs) for case in chain.KINDS + chain_programs.KINDS]
        cases += [(case, seed) for seed in range(max(1, runs // 2)) for case in join.KINDS]
        nets = {"gate": gate.Hub, "trouble": gate.Hub, "chain": chain.Machines, "chain_programs": chain.Machines, "join": chain.Machines}
        for case, seed in (one for one in cases if only in one[0].__name__):
            folder = f"{place}/{case.__name__}-{seed}"
            os.mkdir(folder)
            try:
                with nets.get(case.__module__, Net)() as net:
                    words = case(understudy, net, folder, seed)
                passed, skipped = (passed, skipped + 1) if words is None else (passed + 1, skipped)
                print(f"{'skip' if words is None else 'pass'}  {case.__name__} {seed}: {words}", flush=True)
            except (Failed, ValueError, subprocess.SubprocessError, OSError) as why:
                failed += 1
                if "DEBUG" in os.environ: import traceback; traceback.print_exc()
                print(f"FAIL  {case.__name__} {seed}: {why}", flush=True)
                for name in ("err", "node.log", *(f"n{at}.log" for at in range(1, 9))):
                    path = f"{folder}/{name}"
                    os.path.exists(path) and print(f"--- {name}\n{open(path).read()[-1500:]}")
    finally:
        if "KEEP" not in os.environ:
            shutil.rmtree(place, ignore_errors=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
