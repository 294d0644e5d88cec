# `reverse-continue` for a gdb that looks at a replay.
#
# Nothing goes back. The replay begins again, twice: the first one counts the stops up to the place where the program stands now,
# the second one stops at the last of these. What tells that place from others is the same in every replay: the thread's slot, how
# many events it has applied, its registers and what lies on its stack.

import json
import os
import signal
import subprocess
import tempfile
import time

import gdb

GIVEN = json.loads(r"""@GIVEN@""")
REGISTERS = ["rip", "rsp", "rbp", "rbx", "r12", "r13", "r14", "r15"]
STACK_BYTES = 512


def word(address, size):
    memory = gdb.selected_inferior().read_memory(address, size)
    return int.from_bytes(bytes(memory), "little")


def entry_of(slot):
    return GIVEN["entries"] + slot * GIVEN["entry_bytes"]


def slot_of(lwp):
    for slot in range(word(GIVEN["slots"], 4)):
        if word(entry_of(slot) + GIVEN["tid"], 4) == lwp:
            return slot
    return None


class Place:
    """Where the selected thread is."""

    def __init__(self):
        self.slot = slot_of(gdb.selected_thread().ptid[1])
        frame = gdb.newest_frame()
        self.registers = [int(frame.read_register(name)) & (2**64 - 1) for name in REGISTERS]
        # What the thread has applied.
        self.events = None
        if self.slot is not None:
            counts = range(GIVEN["counts"], GIVEN["counts_end"], 8)
            self.events = sum(word(entry_of(self.slot) + at, 8) for at in counts)
        try:
            memory = gdb.selected_inferior().read_memory(self.registers[1], STACK_BYTES)
            self.stack = bytes(memory)
        except gdb.MemoryError:
            self.stack = b""

    def is_near(self, other):
        """A loop without a call passes many such places."""
        own, others = self.registers[:2], other.registers[:2]
        return (self.slot, self.events, own) == (other.slot, other.events, others)

    def likeness(self, other):
        equal = sum(own == others for own, others in zip(self.stack, other.stack))
        return equal + STACK_BYTES * sum(own == others for own, others in zip(self.registers, other.registers))

    def is_same(self, other):
        return self.is_near(other) and (self.registers, self.stack) == (other.registers, other.stack)


class Present(gdb.Breakpoint):
    """Stops where the program stood, and notes what is like it."""

    def __init__(self, place, stops):
        super().__init__("*%#x" % place.registers[0], type=gdb.BP_HARDWARE_BREAKPOINT, internal=True)
        self.silent = True
        self.place = place
        self.stops = stops
        self.alike = []

    def stop(self):
        here = Place()
        if here.is_same(self.place):
            return True
        if here.is_near(self.place):
            self.alike.append((here.likeness(self.place), len(self.stops)))
        return False


class Replay:
    """The replay that this gdb has begun itself, if it has."""

    child = None
    event = None

    @classmethod
    def leave(cls):
        pid = gdb.selected_inferior().pid
        if pid and cls.child is None:
            # The one that gdb was begun for. It stays as it is, until gdb's end is its own.
            os.kill(pid, signal.SIGSTOP)
            gdb.execute("detach", to_string=True)
        cls.end()

    @classmethod
    def end(cls):
        if cls.child is not None:
            # First: until gdb has seen its end, the one that it is a child of waits.
            if gdb.selected_inferior().pid:
                gdb.execute("kill", to_string=True)
            cls.child.terminate()
            cls.child.wait()
            cls.child = None

    @classmethod
    def begin(cls):
        cls.leave()
        nothing = subprocess.DEVNULL
        with tempfile.TemporaryDirectory() as folder:
            told = os.path.join(folder, "held")
            command = GIVEN["command"][:2] + ["--held", told] + GIVEN["command"][2:]
            cls.child = subprocess.Popen(
                command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
            )
            pid = ""
            while not pid.endswith("\n") and cls.child.poll() is None:
                time.sleep(0.005)
                if os.path.exists(told):
                    with open(told) as file:
                        pid = file.read()
        if not pid:
            cls.end()
            raise gdb.GdbError("the replay cannot begin again: understudy replay says why")
        gdb.execute("attach " + pid, to_string=True)

    @classmethod
    def go_on(cls):
        """Up to the next stop, or the end."""
        cls.event = None
        try:
            gdb.execute("continue", to_string=True)
        except gdb.error:
            if gdb.selected_inferior().pid:
                raise

    @classmethod
    def is_at_end(cls):
        """Whether nothing of the recording is left. A program that was killed stands still there."""
        return not gdb.selected_inferior().pid or getattr(cls.event, "stop_signal", None) == "SIGSTOP"

    @classmethod
    def is_at_stop(cls, present):
        """Whether it stands where somebody has asked it to."""
        stopped = isinstance(cls.event, gdb.BreakpointEvent)
        return stopped and any(asked is not present for asked in cls.event.breakpoints)


class Unsaid:
    """What gdb says meanwhile goes to a file. Of stops it tells on its own output alone, whatever is asked of a command."""

    def __enter__(self):
        gdb.flush()
        self.output = os.dup(1)
        self.file = tempfile.TemporaryFile()
        os.dup2(self.file.fileno(), 1)
        return self

    def length(self):
        gdb.flush()
        return os.fstat(1).st_size

    def said(self, start):
        """From there on."""
        return os.pread(1, self.length() - start, start).decode(errors="replace")

    def __exit__(self, *_):
        gdb.flush()
        os.dup2(self.output, 1)
        os.close(self.output)
        self.file.close()


def on_stop(event):
    Replay.event = event


def stops_before(place):
    """The slot of each stop up to that place, or up to the end. `None`: it has not come there again."""
    stops = []
    Replay.begin()
    present = Present(place, stops) if place else None
    try:
        while True:
            Replay.go_on()
            if Replay.is_at_end():
                break
            here = Place()
            by_signal = isinstance(Replay.event, gdb.SignalEvent)
            if place and (here.is_same(place) or by_signal and here.is_near(place)):
                return stops
            if Replay.is_at_stop(present):
                stops.append(here.slot)
        if not place:
            return stops
        return stops[: max(present.alike)[1]] if present.alike else None
    finally:
        if present:
            present.delete()


class ReverseContinue(gdb.Command):
    """Go back to the last breakpoint or watchpoint before this place, or to the last but N - 1.
Usage: reverse-continue [N]
The replay begins again, from the state that it was begun with: see `understudy replay --from`."""

    def __init__(self):
        super().__init__("reverse-continue", gdb.COMMAND_RUNNING)

    def invoke(self, argument, from_tty):
        back = int(gdb.parse_and_eval(argument)) if argument else 1
        place = None if Replay.is_at_end() else Place()
        with Unsaid() as unsaid:
            said = self.go_back(back, place, unsaid)
        gdb.write(said)

    def go_back(self, back, place, unsaid):
        stops = stops_before(place)
        if stops is None:
            raise gdb.GdbError("the replay has not come to this place again: it is at its end now")
        if not 0 < back <= len(stops):
            raise gdb.GdbError("no stop before this place: set a breakpoint or a watchpoint, or begin at an earlier event")
        slot = stops[-back]
        left = stops[: len(stops) - back + 1].count(slot)
        Replay.begin()
        while left:
            start = unsaid.length()
            Replay.go_on()
            if Replay.is_at_end():
                raise gdb.GdbError("the replay ended before the stop that the one before it had made")
            if Replay.is_at_stop(None) and Place().slot == slot:
                left -= 1
        return unsaid.said(start)


gdb.events.stop.connect(on_stop)
ReverseContinue()
# Without it (gdb 11) the other replay ends by itself, with its parent.
if hasattr(gdb.events, "gdb_exiting"):
    gdb.events.gdb_exiting.connect(lambda _: Replay.end())
gdb.execute("set exec-file-mismatch off")
