//! Operations and events in words, for people who read a trace.

use std::fmt;

use crate::program::{Op, Src};
use crate::world::{Event, HASHED, KERNEL, Kind, NO_CLOCK};

impl fmt::Display for Src {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Src::Const(x) => write!(f, "{x}"),
            Src::Var(v) => write!(f, "var{v}"),
            Src::Reg(r) => write!(f, "r{r}"),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Op::Lock(m) => write!(f, "lock m{m}"),
            Op::Unlock(m) => write!(f, "unlock m{m}"),
            Op::Try(m, r) => write!(f, "r{r} = trylock m{m}"),
            Op::CondWait(c, m) => write!(f, "wait c{c} with m{m}"),
            Op::TimedWait(c, m, r) => write!(f, "r{r} = timedwait c{c} with m{m}"),
            Op::Signal(c) => write!(f, "signal c{c}"),
            Op::Broadcast(c) => write!(f, "broadcast c{c}"),
            Op::Post(s) => write!(f, "post s{s}"),
            Op::Wait(s) => write!(f, "wait s{s}"),
            Op::TryWait(s, r) => write!(f, "r{r} = trywait s{s}"),
            Op::Rd(_) => write!(f, "rdlock"),
            Op::Wr(_) => write!(f, "wrlock"),
            Op::RwUnlock(_) => write!(f, "rwunlock"),
            Op::Barrier(n, r) => write!(f, "r{r} = barrier of {n}"),
            Op::OnceEnter(o, to) => write!(f, "once o{o}, else go to {to}"),
            Op::OnceLeave(o) => write!(f, "once o{o} done"),
            Op::OnceAbort(o) => write!(f, "once o{o} failed"),
            Op::Create(slot, entry, r) => write!(f, "r{r} = create T{slot} at {entry}"),
            Op::Join(slot) => write!(f, "join T{slot}"),
            Op::Open(from, r) => write!(f, "r{r} = accept from listener {from}"),
            Op::Dup(from, r) => write!(f, "r{r} = dup(r{from})"),
            Op::DupTo(from, number, r) => write!(f, "r{r} = dup2(r{from}, {number})"),
            Op::Make(r) => write!(f, "r{r} = eventfd()"),
            Op::Close(r) => write!(f, "close(r{r})"),
            Op::Write(r, src, 1) => write!(f, "write(r{r}, {src})"),
            Op::Write(r, src, len) => write!(f, "write(r{r}, {src}, {len} bytes)"),
            Op::Read(from, r) => write!(f, "r{r} = read(r{from})"),
            Op::Append(v, k) => write!(f, "var{v} = 4 var{v} + {k}"),
            Op::Set(v, k) => write!(f, "var{v} = {k}"),
            Op::Inc(v) => write!(f, "var{v} += 1"),
            Op::Dec(v) => write!(f, "var{v} -= 1"),
            Op::Load(r, v) => write!(f, "r{r} = var{v}"),
            Op::Store(v, r) => write!(f, "var{v} = r{r}"),
            Op::IfVar(v, x, to) => write!(f, "if var{v} == {x} go to {to}"),
            Op::IfReg(r, x, to) => write!(f, "if r{r} == {x} go to {to}"),
            Op::Goto(to) => write!(f, "go to {to}"),
            Op::End => write!(f, "end"),
        }
    }
}

/// A clock's name.
#[must_use]
pub fn clock(number: u8) -> String {
    match number {
        KERNEL => "kernel".into(),
        HASHED => "hashed".into(),
        m => format!("m{m}"),
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Turn => return write!(f, "Turn {}", self.ticket),
            Kind::Return => write!(f, "Return {}", self.a)?,
            Kind::Part => write!(f, "Return (part) {}", self.a)?,
            kind => write!(f, "{kind:?}")?,
        }
        if self.clock == NO_CLOCK {
            Ok(())
        } else {
            write!(f, ", ticket {} {}", clock(self.clock), self.ticket)
        }
    }
}
