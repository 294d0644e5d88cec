#!/usr/bin/env python3
"""Programs with a scripted input, again and again in a computed order: is what they answer the same each time?

    tests/order/scripted.py target/release/understudy [RUNS] [--only PROGRAM]... [--order ORDER]...

pbzip2 compresses one file with four threads. memcached, redis, nginx and Apache are asked the same things over several connections,
one after the other: the next question is asked when the last one has been answered. Every second run has one processor, every third
one the least priority; the kernel places memory at random as it always does. Compared are all bytes that come out. What names the
moment (the header Date) is left out, and so is nothing else. A row says how many different outputs there were, and in how many runs
the order was guessed by time. A program that is not installed is skipped, and said to be. It fails where there is more than one output.

So is the digest of the order itself, turn by turn, at the program's end, where the world had no part in it: pbzip2's. A server waits for
its clients, and for its own timers beside them. When such a thread comes back into the order the world says, and the digest has its place.
Of those it is only said how many there were.
"""

import argparse
import collections
import hashlib
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

ORDERS = ["serial", "deterministic"]
LIMIT_S = 60
MODULES = "/usr/lib/apache2/modules"


class Place:
    """A run's folder, and its port."""

    def __init__(self, folder):
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def write(self, name, data):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
        os.utime(path, (1_000_000_000, 1_000_000_000))
        return path


def noise(count):
    """The same bytes each time; they compress to about half."""
    chance = random.Random(7)
    return bytes(chance.choice(b"abcdefghijklmnop") for _ in range(count))


def talk(port, script, ends):
    """Asks what the script says: (connection, bytes). Returns all answers, one after the other."""
    sockets, said = {}, b""
    for number, question in script:
        if number not in sockets:
            sockets[number] = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)
        sockets[number].sendall(question)
        answer = b""
        while not ends(answer):
            got = sockets[number].recv(65536)
            if not got:
                raise OSError(f"connection {number} ended behind {answer[-80:]!r}")
            answer += got
        said += b"%d:" % number + answer
    for end in sockets.values():
        end.close()
    return said


def http_ends(answer):
    head, found, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *(\d+)", head)
    return bool(found) and (length is None or len(body) >= int(length[1]))


def without_date(said):
    return re.sub(rb"Date: [^\r]*", b"Date", said)


def pbzip2(place):
    source = place.write("input", noise(1_200_000))
    return ["pbzip2", "-c", "-p4", "-b1", "-k", source], None


def memcached(place):
    script = []
    for turn in range(60):
        key = b"key%d" % (turn % 7)
        script.append((turn % 5, b"set %s 0 0 4\r\n%04d\r\nincr %s 3\r\nget %s\r\nmn\r\n" % (key, turn, key, key)))
    words = ["memcached", "-p", str(place.port), "-l", "127.0.0.1", "-t", "4", "-U", "0"]
    return words + (["-u", "root"] if os.geteuid() == 0 else []), lambda: talk(
        place.port, script, lambda answer: answer.endswith(b"MN\r\n"))


def redis(place):
    script = []
    for turn in range(60):
        script.append((turn % 5, b"RPUSH list %d\r\nINCRBY sum %d\r\nLRANGE list -3 -1\r\nPING end\r\n" % (turn, turn)))
    words = ["redis-server", "--port", str(place.port), "--bind", "127.0.0.1", "--save", "", "--dir", place.folder,
             "--daemonize", "no"]
    return words, lambda: talk(place.port, script, lambda answer: answer.endswith(b"$3\r\nend\r\n"))


def pages(place):
    for number in range(5):
        place.write(f"pages/{number}", noise(2000 * number + 10))
    return [(turn % 5, b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % (turn % 6)) for turn in range(60)]


def nginx(place):
    script = pages(place)
    text = f"""daemon off; master_process off; worker_processes 1; pid {place.folder}/pid; error_log {place.folder}/error.log;
thread_pool default threads=4; events {{ worker_connections 64; }}
http {{ access_log off; aio threads; server {{ listen 127.0.0.1:{place.port}; root {place.folder}/pages; }} }}
"""
    words = ["nginx", "-p", place.folder, "-c", place.write("nginx.conf", text.encode())]
    return words, lambda: without_date(talk(place.port, script, http_ends))


def apache(place):
    script = pages(place)
    user = "User www-data\nGroup www-data\n" if os.geteuid() == 0 else ""
    here = place.folder
    text = f"""ServerRoot {here}
ServerName localhost
PidFile {here}/pid
DefaultRuntimeDir {here}
Listen 127.0.0.1:{place.port}
LoadModule mpm_event_module {MODULES}/mod_mpm_event.so
LoadModule authz_core_module {MODULES}/mod_authz_core.so
ErrorLog {here}/error.log
DocumentRoot {here}/pages
StartServers 1
ServerLimit 1
ThreadsPerChild 8
MaxRequestWorkers 8
{user}<Directory {here}/pages>
    Require all granted
</Directory>
"""
    os.chmod(here, 0o755)
    words = ["apache2", "-f", place.write("httpd.conf", text.encode()), "-DFOREGROUND"]
    return words, lambda: without_date(talk(place.port, script, http_ends))


PROGRAMS = {"pbzip2": pbzip2, "memcached": memcached, "redis": redis, "nginx": nginx, "apache": apache}
BINARIES = {"redis": "redis-server", "apache": "apache2"}


def order_of(events):
    """Digest, turns that the world has placed, guesses and turns, as the last event of a group has them."""
    try:
        with open(events) as file:
            ended = [event for event in map(json.loads, file) if event["event"] == "ended"]
        return tuple(ended[-1]["order_" + name] for name in ["digest", "placed", "guessed", "turns"])
    except (OSError, ValueError, LookupError):
        return None


def one(understudy, order, program, folder, number):
    """What comes out of one run, and its order."""
    events = os.path.join(folder, "events")
    return answers(understudy, order, program, folder, number, events), order_of(events)


def answers(understudy, order, program, folder, number, events):
    place = Place(folder)
    words, ask = PROGRAMS[program](place)
    name = f"scripted-{os.getpid()}-{number}"
    around = (["taskset", "-c", "0"] if number % 2 else []) + (["nice", "-n", "19"] if number % 3 == 2 else [])
    command = [*around, understudy, "run", "-q", "--name", name, "--standbys", "0", "--order", order]
    command += ["--events", events, "--", *words]
    # Into a file, which takes all at once: a pipe would be the world's to read.
    output = os.path.join(folder, "output")
    with open(output, "wb") as file:
        group = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL)
    try:
        if ask is None:
            group.communicate(timeout=LIMIT_S)
            with open(output, "rb") as file:
                return file.read() if group.returncode == 0 else b"exit %d" % group.returncode
        until = time.time() + LIMIT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", place.port), timeout=1).close()
                break
            except OSError:
                if time.time() > until or group.poll() is not None:
                    return b"does not listen"
                time.sleep(0.02)
        return ask()
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__}: {error}".encode()
    finally:
        if group.poll() is None:
            subprocess.run([understudy, "stop", name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            group.communicate(timeout=LIMIT_S)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("understudy")
    parser.add_argument("runs", type=int, nargs="?", default=6)
    parser.add_argument("--only", action="append", choices=list(PROGRAMS))
    parser.add_argument("--order", action="append", choices=ORDERS)
    asked = parser.parse_args()
    understudy, passed, wrong, skipped = os.path.abspath(asked.understudy), 0, [], 0
    for program in asked.only or PROGRAMS:
        if shutil.which(BINARIES.get(program, program)) is None:
            print(f"skipped: {program} is not installed", flush=True)
            skipped += 1
            continue
        for order in asked.order or ORDERS:
            outputs, orders, began = collections.Counter(), collections.Counter(), time.time()
            for number in range(asked.runs):
                folder = tempfile.mkdtemp(prefix="scripted-")
                try:
                    out, computed = one(understudy, order, program, folder, number)
                finally:
                    shutil.rmtree(folder, ignore_errors=True)
                is_error = len(out) < 200
                outputs[out.decode(errors="replace") if is_error else hashlib.sha256(out).hexdigest()[:16]] += 1
                orders[computed] += 1
            all_orders = list(orders.elements())
            guessed = sum(1 for computed in all_orders if computed and computed[2] != 0)
            placed = sum(1 for computed in all_orders if not computed or computed[1] != 0)
            digests = len({computed and computed[0] for computed in all_orders})
            told = f"{digests} orders, the world had a part in {placed}"
            if all(computed and computed[3] == 0 for computed in all_orders):
                told = "no order in its first process, which has one thread"
            print(f"{program} {order}: {len(outputs)} of {asked.runs}; {guessed} guessed; {told}; {time.time() - began:.0f} s",
                  flush=True)
            is_one_order = digests == 1 or placed + guessed != 0
            if len(outputs) == 1 and is_one_order and not any(len(output) != 16 for output in outputs):
                passed += 1
            else:
                wrong.append(f"{program} {order}: {dict(outputs)}, orders {dict(orders)}")
    for line in wrong:
        print("more than one output, or order:", line)
    print(f"{passed} passed, {len(wrong)} failed, {skipped} skipped")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
