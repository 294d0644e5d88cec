"""Chains of deaths under real programs."""

import shutil
import sqlite3
import sys

from chain import gated
from clients import Fetches
from machines import PORT, Failed, until
from takeover import digests


# Counts for each name that it is told, in a database and in a journal.
COUNTS_IN_FILES = """
import os, selectors, socket, sqlite3, sys
port, folder = int(sys.argv[1]), sys.argv[2]
base = sqlite3.connect(f"{folder}/base", isolation_level=None)
base.execute("CREATE TABLE counts (name TEXT PRIMARY KEY, number INTEGER)")
journal = os.open(f"{folder}/journal", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
listener, all = socket.create_server(("", port)), selectors.DefaultSelector()
all.register(listener, selectors.EVENT_READ)
while True:
    for key, _ in all.select():
        if key.fileobj is listener:
            client = listener.accept()[0]
            all.register(client, selectors.EVENT_READ, client.makefile("rb"))
            continue
        name = key.data.readline().decode().strip()
        if not name:
            all.unregister(key.fileobj), key.fileobj.close()
            continue
        base.execute("INSERT INTO counts VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET number = number + 1", [name])
        (number,) = base.execute("SELECT number FROM counts WHERE name = ?", [name]).fetchone()
        os.write(journal, f"{name} {number}\\n".encode())
        if number % 50 == 0:
            with open(f"{folder}/new", "w") as file: file.write(f"{name} {number}")
            os.rename(f"{folder}/new", f"{folder}/last")
        key.fileobj.sendall(b"%d\\n" % number)
"""


def equal_files(here, after, clients):
    """Both machines' volumes, while nobody asks for anything."""
    for one in clients:
        one.waits(True)
    until(f"files of {after.name} that are those of {here.name}", lambda: digests(here.own) == digests(after.own), 10)
    for one in clients:
        one.waits(False)


def chain_files(understudy, net, folder, seed):
    """A database and a journal in a volume: each number is there once."""
    volume = f"{folder}/volume"
    return gated(understudy, net, folder, seed, ["counts"], [sys.executable, "-c", COUNTS_IN_FILES, str(PORT), volume], volume,
                 before=equal_files, behind=all_is_there)


def all_is_there(last, told):
    """What each client has counted is in the files of the last machine, once, and in its order."""
    with open(f"{last.own}/journal") as journal:
        lines = journal.read().split("\n")[:-1]
    base = sqlite3.connect(f"file:{last.own}/base?mode=ro", uri=True)
    for name, (many, *_) in told.items():
        wanted = [f"{name} {number + 1}" for number in range(many)]
        found = [line for line in lines if line.startswith(f"{name} ")]
        kept = base.execute("SELECT number FROM counts WHERE name = ?", [name]).fetchone()
        if found != wanted or kept != (many,):
            raise Failed(f"{name} has counted to {many}; the journal has {len(found)} lines, up to {found[-1:]}, and the base {kept}")


def chain_redis(understudy, net, folder, seed):
    """Redis under clients that compare each answer; every other time with an append-only file in a volume."""
    if not shutil.which("redis-server"):
        return None
    program = ["redis-server", "--port", str(PORT), "--save", "", "--protected-mode", "no"]
    volume = f"{folder}/volume" if seed % 2 else None
    if volume:
        program += ["--dir", volume, "--appendonly", "yes"]
    return gated(understudy, net, folder, seed, ["redis"], program, volume)


def nginx(understudy, net, folder, seed, clients, processes, most, **more):
    """nginx with a folder that takes uploads of so many bytes at most, under clients of this kind."""
    if not shutil.which("nginx"):
        return None
    volume = f"{folder}/volume"
    with open(f"{folder}/nginx.conf", "w") as file:
        file.write(f"daemon off; {processes}; user root; error_log stderr; pid {volume}/pid; events {{}}\n"
                   f"http {{ access_log off; sendfile off; client_body_temp_path {volume}/temp; server {{ listen {PORT}; root {volume};\n"
                   f"dav_methods PUT; client_max_body_size {most}; }} }}\n")
    return gated(understudy, net, folder, seed, [clients], ["nginx", "-c", f"{folder}/nginx.conf"], volume, **more)


def chain_children(understudy, net, folder, seed):
    """nginx's worker goes on with its connections beside its master. Memory that the two share is in the log, with a standby on the
    first machine and without."""
    return nginx(understudy, net, folder, seed, "pages", "worker_processes 1", "10m")


def chain_stores(understudy, net, folder, seed):
    """nginx alone, without workers: uploads and downloads that are under way at each death go on over their connections, and the
    files of both machines are equal."""
    return nginx(understudy, net, folder, seed, "stores", "master_process off", "2g", before=equal_files)


def chain_workers(understudy, net, folder, seed):
    """nginx with two workers: downloads that are under way at each death go on over their connections."""
    if not shutil.which("nginx"):
        return None
    with open(f"{folder}/page", "wb") as file:
        file.write(Fetches.WANTED)
    with open(f"{folder}/nginx.conf", "w") as file:
        file.write(f"daemon off; worker_processes 2; user root; error_log stderr; pid {folder}/pid; events {{}}\n"
                   f"http {{ access_log off; sendfile off; server {{ listen {PORT}; root {folder}; }} }}\n")
    return gated(understudy, net, folder, seed, ["fetches"], ["nginx", "-c", f"{folder}/nginx.conf"])


KINDS = [chain_redis, chain_files, chain_children, chain_workers, chain_stores]
