"""Clients of a chain: each has one connection, and a ledger of its own that it compares each answer with.

usage: clients.py KIND NAME ADDRESS PORT

It goes on until its stdin ends; a line there has it wait for the next one. It says `connected`, and at the end
`well ANSWERS LONGEST_PAUSE_MS` and when that pause began, or what was wrong.
"""

import array
import os
import random
import select
import socket
import sys
import time

PATIENCE = 40
# Between two requests at the most, seconds.
PACE = float(os.environ.get("PACE", "0.01"))


class Wrong(Exception):
    pass


class Client:
    def __init__(self, name, address, port):
        self.name, self.chance = name, random.Random(name)
        self.answers, self.longest, self.last, self.began = 0, (0.0, 0.0), None, time.monotonic()
        self.socket = socket.create_connection((address, port), timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def answered(self):
        now = time.monotonic()
        if self.last:
            self.longest = max(self.longest, (now - self.last, self.last - self.began))
        self.last, self.answers = now, self.answers + 1

    def line(self):
        found = self.file.readline()
        if not found.endswith(b"\n"):
            raise Wrong(f"the connection has ended behind {self.answers} answers")
        self.answered()
        return found.rstrip()

    def waits(self):
        """Whether it is to go on, behind a pause that was asked for."""
        if not sys.stdin.readline():
            return False
        print("waits", flush=True)
        sys.stdin.readline()
        self.last = None
        return True

    def end(self):
        """What is to be looked at in the end."""

    def expect(self, wanted, told, what):
        if wanted != told:
            raise Wrong(f"{what} behind {self.answers} answers is {str(told)[:60]} instead of {str(wanted)[:60]}")


class Counts(Client):
    """A request is a name, and its answer is how often it has come."""

    number = 0

    def some(self):
        self.number += 1
        self.socket.sendall(f"{self.name}\n".encode())
        self.expect(self.number, int(self.line()), "the number")


class Knocks(Counts):
    """The same, each over a connection of its own. None is refused. One that the program has not accepted when its machine dies is
    reset, and its request may have been counted."""

    def __init__(self, *words):
        super().__init__(*words)
        self.address, self.resets, self.doubts = words[1:], 0, 0

    def some(self):
        try:
            self.socket.sendall(f"{self.name}\n".encode())
            told = int(self.line())
        except (ConnectionResetError, BrokenPipeError):
            self.resets, self.doubts = self.resets + 1, self.doubts + 1
        else:
            if not self.number < told <= self.number + 1 + self.doubts:
                raise Wrong(f"{told} came behind {self.number}, with {self.doubts} requests between that were reset")
            self.number, self.doubts = told, 0
        self.file.close(), self.socket.close()
        self.socket = socket.create_connection(self.address, timeout=PATIENCE)
        self.file = self.socket.makefile("rb")


class Pages(Client):
    """Uploads over HTTP, and the same downloaded. A request whose connection ends is made again over the next one: `resets` counts
    them, and either body may be there until that is done."""

    # Who only waits does not hear that its connection is reset.
    SILENCE = 5

    def __init__(self, *words):
        super().__init__(*words)
        self.address, self.resets, self.number = words[1:], 0, 0
        self.socket.settimeout(self.SILENCE)

    def connect(self):
        self.socket.close()
        self.resets += 1
        until = time.monotonic() + PATIENCE
        while True:
            try:
                # One that is silent may be of a machine that is gone.
                self.socket = socket.create_connection(self.address, timeout=2)
                self.socket.settimeout(self.SILENCE)
                self.file = self.socket.makefile("rb")
                return
            except OSError:
                if time.monotonic() > until:
                    raise Wrong("nobody serves any more") from None
                time.sleep(0.05)

    def request(self, words, body=b""):
        while True:
            try:
                head = f"{words} /{self.name} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
                self.socket.sendall(head.encode() + body)
                status, length = int(self.line().split()[1]), 0
                while line := self.line():
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                found = self.file.read(length)
                if len(found) < length:
                    raise Wrong("a part of an answer")
                return status, found
            except (Wrong, OSError):
                self.connect()

    def some(self):
        self.number += 1
        body = b"%d," % self.number * self.chance.choice([1, 100, 30000])
        status, _ = self.request("PUT", body)
        if status not in (201, 204):
            raise Wrong(f"an upload is answered by {status}")
        self.expect((200, body), self.request("GET"), f"what was uploaded as number {self.number}")


class Redis(Client):
    """Redis' requests, some at once, on keys that are this client's alone."""

    def __init__(self, *words):
        super().__init__(*words)
        self.number, self.text, self.fields, self.row, self.tail = 0, b"", {}, [], 0

    def request(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)

    def reply(self):
        line = self.line()
        kind, rest = line[:1], line[1:]
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        return int(rest) if kind == b":" else rest

    def one(self):
        """A request, and its answer by the ledger."""
        key = lambda what: f"{what}:{self.name}"
        what = self.chance.randrange(9)
        if what < 3:
            self.number += 1
            return self.request("INCR", key("number")), self.number
        if what == 3:
            self.text += b"%d," % self.number
            return self.request("APPEND", key("text"), b"%d," % self.number), len(self.text)
        if what == 4 and self.text:
            at = self.chance.randrange(len(self.text))
            return self.request("GETRANGE", key("text"), at, at + 5000), self.text[at : at + 5001]
        if what == 5:
            field = self.chance.randrange(20)
            self.fields[field] = self.fields.get(field, 0) + 3
            return self.request("HINCRBY", key("fields"), field, 3), self.fields[field]
        if what == 6:
            self.tail += 1
            self.row.append(b"%d" % self.tail)
            return self.request("RPUSH", key("row"), self.tail), len(self.row)
        if what == 7 and len(self.row) > 3:
            return self.request("LPOP", key("row")), self.row.pop(0)
        if len(self.text) > 40000:
            self.text = b"begun anew,"
            return self.request("SET", key("text"), self.text), b"OK"
        return self.request("STRLEN", key("text")), len(self.text)

    def some(self):
        all = [self.one() for _ in range(self.chance.choice([1, 1, 1, 4, 30]))]
        self.socket.sendall(b"".join(request for request, _ in all))
        for request, wanted in all:
            self.expect(wanted, self.reply(), f"the answer to {request[:80]}")

    def end(self):
        ask = lambda *words: (self.socket.sendall(self.request(*words)), self.reply())[1]
        self.expect(b"%d" % self.number, ask("GET", f"number:{self.name}"), "the number")
        self.expect(self.text, ask("GET", f"text:{self.name}") or b"", "the text")
        self.expect(self.row, ask("LRANGE", f"row:{self.name}", 0, -1), "the row")
        found = ask("HGETALL", f"fields:{self.name}")
        found = {int(name): int(value) for name, value in zip(found[::2], found[1::2])}
        self.expect(self.fields, found, "the fields")


class Follows(Counts):
    """The same, from wherever it stands."""

    def some(self):
        self.socket.sendall(b"x")
        number = int(self.line())
        self.expect(self.number + 1 if self.number else number, number, "the number")
        self.number = number


class Gets(Client):
    """A download of what `mover.c` makes, in requests that take a while."""

    BYTES = 12_000_000

    def __init__(self, *words):
        super().__init__(*words)
        self.wanted = array.array("Q", range(self.BYTES // 8)).tobytes()

    def some(self):
        self.socket.sendall(f"GET {self.BYTES}\n".encode())
        come = 0
        while come < self.BYTES:
            part = self.socket.recv(min(65536, self.BYTES - come))
            if not part:
                raise Wrong(f"the connection has ended behind {come} bytes")
            self.expect(self.wanted[come : come + len(part)], part, f"what came behind {come} bytes")
            come += len(part)
            self.answered()


class Puts(Gets):
    """An upload of the same."""

    def some(self):
        self.socket.sendall(f"PUT {self.BYTES}\n".encode())
        for at in range(0, self.BYTES, 65536):
            self.socket.sendall(self.wanted[at : at + 65536])
            self.answered()
        self.expect(self.BYTES, int(self.line()), "what had come")


class Stores(Client):
    """An upload over HTTP that is under way for a while, and the same downloaded, over one connection."""

    BYTES = int(os.environ.get("BYTES", "12000000"))

    def head(self, words, length):
        self.socket.sendall(f"{words} /{self.name} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode())

    def status(self):
        status, length = int(self.line().split()[1]), 0
        while line := self.line():
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        return status, length

    def part(self, at):
        """What is at this place: nothing that could be another place's."""
        return array.array("Q", range(self.number + at, self.number + min(at + 65536, self.BYTES), 8)).tobytes()

    number = 0

    def some(self):
        self.number += 1
        self.head("PUT", self.BYTES)
        for at in range(0, self.BYTES, 65536):
            self.socket.sendall(self.part(at))
            self.answered()
        status, length = self.status()
        if status not in (201, 204) or length:
            raise Wrong(f"an upload is answered by {status}, with {length} bytes")
        self.head("GET", 0)
        self.expect((200, self.BYTES), self.status(), "what a download begins with")
        for at in range(0, self.BYTES, 65536):
            wanted = self.part(at)
            found = self.file.read(len(wanted))
            if found != wanted:
                same = len(os.path.commonprefix([found, wanted]))
                raise Wrong(f"download {self.number} is another behind {at + same} bytes: {found[same : same + 24]} ({len(found)} of "
                            f"{len(wanted)} came) instead of {wanted[same : same + 24]}")
            self.answered()


class Fetches(Stores):
    """Downloads of one file, over one connection."""

    WANTED = array.array("Q", range(700_000)).tobytes()

    def some(self):
        self.socket.sendall(b"GET /page HTTP/1.1\r\nHost: x\r\n\r\n")
        self.expect((200, len(self.WANTED)), self.status(), "what a download begins with")
        for at in range(0, len(self.WANTED), 65536):
            wanted = self.WANTED[at : at + 65536]
            self.expect(wanted, self.file.read(len(wanted)), f"what came behind {at} bytes")
            self.answered()


KINDS = {"counts": Counts, "fetches": Fetches, "follows": Follows, "gets": Gets, "knocks": Knocks, "pages": Pages, "puts": Puts, "redis": Redis, "stores": Stores}


def main():
    kind, name, address, port = sys.argv[1:]
    try:
        client = KINDS[kind](name, address, int(port))
        print("connected", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0] or client.waits():
            client.some()
            # A machine that joins runs all that there was, while more comes: as fast as possible, it would catch up late or never.
            time.sleep(client.chance.random() * PACE)
        client.end()
    except (Wrong, OSError, ValueError) as why:
        print(f"{type(why).__name__}: {why}")
        return 1
    pause, at = client.longest
    resets = [f"{client.resets} resets"] if hasattr(client, "resets") else []
    print("well", client.answers, round(pause * 1000), f"{kind} at {at:.1f} s", *resets)
    return 0


if __name__ == "__main__":
    sys.exit(main())
