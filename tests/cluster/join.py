"""A machine that has nothing of a program joins by an image of it, follows, and takes over."""

import contextlib
import os
import random
import shutil
import sys
import time

from chain import Client, Machine, end, strict, whole_segments
from gate import ADDRESS
from machines import PORT, SCRIPT, Failed, run, until

# So long the program runs before anybody follows, seconds.
BEFORE = float(os.environ.get("BEFORE", "6"))


@contextlib.contextmanager
def there(understudy, net, folder, program, image_after_ms, standbys):
    """The first machine runs the program, and the second one is there to join. These, and clients to be added: all are ended behind it."""
    run("sh", SCRIPT, folder, "n1", "n2", "n3", "n4")
    machines, clients = [Machine(understudy, net, folder, at, None) for at in range(3)], []
    try:
        for machine in machines[1:]:
            path = f"{folder}/{machine.name}.toml"
            text = open(path).read()
            open(path, "w").write(text.replace("[standby]\n", f"[standby]\nimage_after_ms = {image_after_ms}\n"))
        first = machines[0]
        first.start("run", "--standbys", str(standbys), "--record", f"{folder}/own.understudy", "--name", "group", "--cluster", "n2",
                    "--cluster-config", f"{folder}/n1.toml", "--address", f"{ADDRESS}/24%net0", "--", *program)
        until("it serves", first.listens)
        yield machines, clients
    finally:
        for one in clients:
            one.kill()
        end(machines)


def near(machine):
    """Its mirror if that has begun at an image, follows, and is not far behind."""
    status = machine.status()
    mirror = status.get("mirror") or {}
    return status.get("state") == "following" and mirror.get("joined_at") and mirror["behind_us"] < 300_000 and mirror


def joined(understudy, net, folder, seed, program, kinds, many, before=None):
    """Clients count for a while; a fresh machine joins; the first one dies at a random moment. Then the next one joins, and so on."""
    chance = random.Random(seed)
    with there(understudy, net, folder, program, 1000, seed % 2) as (machines, clients):
        clients += [Client(net, kinds[at % len(kinds)], f"client{at}") for at in range(many)]
        before and before(machines[0])
        time.sleep(BEFORE)
        words = []
        for here, after in zip(machines, machines[1:]):
            after.start_node()
            # The program's machine asks for it every few seconds.
            until(f"{after.name} is sent the log", lambda: "is kept in" in open(after.log).read())
            began = time.monotonic()
            try:
                mirror = until(f"{after.name} begins at an image, follows, and is near", lambda: near(after), 30)
            except Failed as why:
                raise Failed(f"{why}: {after.ask(understudy, 'status', 'group').stdout}") from None
            took = time.monotonic() - began
            # One that is in the log already may be too old to be of use: then another one is asked for.
            time.sleep(1.5)
            mirror = until(f"{after.name} stays near", lambda: near(after), 30)
            at = mirror["joined_at"]
            # Not how long it took: that says how busy this machine is.
            if here is machines[0] and at < mirror["events"] / 2:
                raise Failed(f"{after.name} begins at event {at} of {mirror['events']}")
            strict(here)
            time.sleep(chance.uniform(0.3, 1.5))
            for one in clients:
                one.still_asks()
            here.die()
            live = after.take_over()
            whole_segments(after)
            words.append(f"{after.name} near after {took:.1f} s, from event {at} on of {mirror['events']}, live in {live:.0f} ms")
            time.sleep(chance.uniform(0, 0.5))
        time.sleep(chance.uniform(0.3, 1))
        told = [one.ended() for one in clients]
        pause = max(pause for _, pause, _ in told)
        return f"{sum(answers for answers, *_ in told)} answers, longest pause {pause} ms; {'; '.join(words)}"


def join_counts(understudy, net, folder, seed):
    """A program that computes."""
    return joined(understudy, net, folder, seed, [f"{folder}/../ponder", str(PORT)], ["counts"], 1)


def join_redis(understudy, net, folder, seed):
    """redis, which has had much to do before."""
    if not shutil.which("redis-server") or not shutil.which("redis-benchmark"):
        return None

    def loads(machine):
        told = machine.ask("redis-benchmark", "-p", str(PORT), "-n", "1500000", "-P", "16", "-c", "4", "-r", "10000", "-t", "set,lpush", "-q")
        if told.returncode:
            raise Failed(f"no load: {told.stdout} {told.stderr}")

    program = ["redis-server", "--port", str(PORT), "--save", "", "--protected-mode", "no"]
    return joined(understudy, net, folder, seed, program, ["redis"], 3, loads)


def dies(here, after, clients):
    """The machine dies, and the other one takes over."""
    strict(here)
    for one in clients:
        one.still_asks()
    here.die()
    live = after.take_over()
    time.sleep(1)
    return f"{sum(one.ended()[0] for one in clients)} answers, live in {live:.0f} ms"


def join_refused(understudy, net, folder, seed):
    """A program of which no image is taken: `status` says why, and the machine follows from the beginning."""
    program = [f"{folder}/../ponder", str(PORT), "child"]
    with there(understudy, net, folder, program, 300, seed % 2) as ((here, after, _), clients):
        clients.append(Client(net, "counts", "client0"))
        time.sleep(BEFORE / 2)
        after.start_node()
        wanted = "from its log's beginning (it has, or had, several processes)"
        until("a reason", lambda: wanted in after.ask(understudy, "status", "group").stdout)
        near = lambda: (mirror := after.status().get("mirror")) and mirror["events"] and mirror["behind_us"] < 300_000
        until("it is near", lambda: near() and time.sleep(0.5) is None and near(), 60)
        return dies(here, after, clients)


def join_astray(understudy, net, folder, seed):
    """A race has a machine that follows go another way; it comes back by an image."""
    program = [f"{folder}/../ponder", str(PORT)]
    with there(understudy, net, folder, program, 1000, seed % 2) as ((here, after, _), clients):
        after.start_node()
        until("following", after.follows)
        clients.append(Client(net, "counts", "client0"))
        code = (f"import socket;s=socket.create_connection(('{ADDRESS}',{PORT}),timeout=20);f=s.makefile('rb')\n"
                "for _ in range(40): s.sendall(b'r'); f.readline()")
        race = lambda: run("ip", "netns", "exec", net.names[-1], sys.executable, "-c", code)
        # An image that was asked for before may be of a moment behind the race: then it takes another one.
        until("it has gone another way", lambda: race() and time.sleep(0.5) is None and "went another way" in open(after.log).read(), 60)
        # From then on it is a minute from one image to the next.
        mirror = until("it follows again", lambda: near(after), 120)
        until("the first machine knows", lambda: "cannot take over" not in here.ask(understudy, "status", "group").stdout)
        return f"from event {mirror['joined_at']} on; {dies(here, after, clients)}"


KINDS = [join_counts, join_redis, join_refused, join_astray]
