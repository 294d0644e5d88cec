//! The rules as they were: one function for all kinds, and lists by slot.

use us_world::{Copy, Kernel, Kind, Part, Stream, Told, Touched, Verdict};

use crate::{Fake, SLOTS};

type List = [Option<Verdict>; SLOTS];

fn put(list: &mut List, slot: u32, verdict: Verdict) {
    list[slot as usize].get_or_insert(verdict);
}

fn shares(total: u64, lens: &[u64], moved: &mut [u64]) -> bool {
    if let [len] = lens {
        moved[0] = total;
        return total <= *len;
    }
    if lens.len() > 16 {
        let all = lens.iter().try_fold(0u64, |sum, len| sum.checked_add(*len));
        let is_all = all == Some(total) && !lens.contains(&0);
        moved.iter_mut().zip(lens).for_each(|(moved, len)| *moved = if is_all { *len } else { 0 });
        return is_all || total == 0;
    }
    let mut found = None;
    for chosen in 0u32..1 << lens.len() {
        let whole = |at: usize| chosen >> at & 1 != 0;
        let sum = lens.iter().enumerate().filter(|(at, _)| whole(*at)).map(|(_, len)| *len);
        if sum.fold(0u64, u64::saturating_add) == total && found.replace(chosen).is_some() {
            return false;
        }
    }
    let Some(chosen) = found else { return false };
    for (at, (moved, len)) in moved.iter_mut().zip(lens).enumerate() {
        *moved = if chosen >> at & 1 != 0 { *len } else { 0 };
    }
    true
}

fn share(all: &[&Part], out: bool, total: Option<u64>, list: &mut List) {
    let mut left = total;
    let mut silent = Vec::new();
    for part in all.iter().filter(|part| part.is_output() == out) {
        match part.told {
            Told::Moved(moved) => {
                left = left.and_then(|left| left.checked_sub(moved.into()));
                put(list, part.slot, Verdict::Moved(moved.into()));
            }
            Told::Nothing => put(list, part.slot, Verdict::Again),
            Told::None if !part.entered => put(list, part.slot, Verdict::Again),
            Told::None => silent.push(*part),
        }
    }
    let lens: Vec<u64> = silent.iter().map(|part| part.len).collect();
    let mut moved = vec![0; lens.len()];
    let known = left.is_some_and(|left| shares(left, &lens, &mut moved));
    for (part, moved) in silent.iter().zip(&moved) {
        put(list, part.slot, if known { Verdict::Moved(*moved) } else { Verdict::Unknown });
    }
}

pub fn verdicts(parts: &[Part], kernel: &mut Fake) -> List {
    let mut list = [None; SLOTS];
    for pair in parts.windows(2) {
        let [to, from] = pair else { continue };
        if to.slot != from.slot || to.copy != Copy::Undoable {
            continue;
        }
        let (Some(into), Some(out_of)) = (to.stream, from.stream) else { continue };
        if into.kind != Kind::File || out_of.kind != Kind::File {
            continue;
        }
        for (part, stream) in [(to, into), (from, out_of)] {
            let moved = moved_on(part.fd, &stream, kernel);
            if part.entered && moved.is_some_and(|moved| moved > 0 && moved <= part.len) {
                kernel.set_position(part.fd, stream.written);
            }
        }
        put(&mut list, to.slot, Verdict::Again);
    }
    for call in parts.chunk_by(|one, next| one.slot == next.slot) {
        let part = call[0];
        if list[part.slot as usize].is_some() {
            continue;
        }
        match part.stream {
            Some(shadow) => {
                let same = |other: &&Part| {
                    other.stream.is_some_and(|other| shadow.key != 0 && other.key == shadow.key)
                };
                let all: Vec<&Part> = parts.iter().filter(same).collect();
                stream(part.fd, &shadow, &all, kernel, &mut list);
            }
            None => {
                put(&mut list, part.slot, if part.entered { Verdict::Unknown } else { Verdict::Again });
            }
        }
        if let Some(from) = call.iter().find(|part| part.copy != Copy::No && !part.is_output()) {
            source(from, kernel, &mut list);
        }
    }
    list
}

fn source(from: &Part, kernel: &mut Fake, list: &mut List) {
    let Some(shadow) = from.stream else { return };
    let moved = match shadow.kind {
        Kind::File => moved_on(from.fd, &shadow, kernel),
        Kind::Pipe if shadow.is_private => {
            let logged = shadow.written.checked_sub(shadow.read);
            logged.zip(kernel.queued(from.fd)).and_then(|(logged, now)| logged.checked_sub(now))
        }
        _ => None,
    };
    if let (Some(moved), Some(Verdict::Unknown)) = (moved, list[from.slot as usize]) {
        list[from.slot as usize] = Some(if moved == 0 { Verdict::Again } else { Verdict::Moved(moved) });
    }
}

fn stream(fd: i32, shadow: &Stream, all: &[&Part], kernel: &mut Fake, list: &mut List) {
    match shadow.kind {
        Kind::Tcp | Kind::TcpAccepted => connection(fd, shadow, all, kernel, list),
        Kind::File => file(fd, shadow, all, kernel, list),
        Kind::Append => append(fd, shadow, all, kernel, list),
        Kind::Pipe if shadow.is_private => pipe(fd, shadow, all, kernel, list),
        Kind::Event if shadow.is_private => event(fd, shadow, all, kernel, list),
        _ => opaque(all, kernel, list),
    }
}

fn connection(fd: i32, shadow: &Stream, all: &[&Part], kernel: &mut Fake, list: &mut List) {
    let Some(now) = kernel.tcp(fd) else {
        share(all, true, None, list);
        return share(all, false, None, list);
    };
    let syn = shadow.kind == Kind::Tcp;
    let fin_queued = matches!(now.state, 4 | 5 | 6 | 9 | 11) || now.state == 7 && shadow.is_shut;
    let fin = matches!(now.state, 6 | 8 | 9 | 11) || now.state == 7 && !now.is_broken;
    let extra = u64::from(syn) + u64::from(fin_queued);
    let sent = now.acked.checked_add(now.unacknowledged).and_then(|all| all.checked_sub(extra));
    let sent = sent.and_then(|all| all.checked_sub(shadow.written));
    let read = now.received.checked_sub(now.unread);
    let came = |fin: bool| {
        read.and_then(|read| read.checked_sub(shadow.read)).and_then(|read| read.checked_sub(fin.into()))
    };
    let closed = now.state == 7 && !now.is_broken && (now.acked > 0 || !syn);
    let lost = closed && came(false) == Some(0) && sent == Some(0) && !shadow.has_failed;
    if lost && let Some(first) = all.iter().find(|part| part.entered) {
        put(list, first.slot, Verdict::Failed);
    }
    share(all, true, sent, list);
    share(all, false, came(fin).or_else(|| came(false)), list);
}

fn pipe(fd: i32, shadow: &Stream, all: &[&Part], kernel: &mut Fake, list: &mut List) {
    let (mut readers, mut least, mut most, mut seen) = (0, 0, 0, true);
    for part in all.iter().filter(|part| !part.is_output() && part.entered) {
        let (low, high) = match kernel.touched(part) {
            Touched::UpTo(got) => (got, if got == 0 { 0 } else { part.len }),
            Touched::Beyond => (Fake::PATTERN_MAX, part.len),
            Touched::Unprepared => (0, part.len),
        };
        seen &= matches!(kernel.touched(part), Touched::UpTo(_));
        readers += 1;
        least += low;
        most += high;
    }
    let writers: Vec<_> = all.iter().filter(|part| part.is_output() && part.entered).collect();
    let write_len = writers.iter().fold(0u64, |sum, part| sum.saturating_add(part.len));
    let whole = writers.len() == 1 && write_len <= 4096;
    let most = if readers > 1 { least } else { most };
    let figures = kernel.queued(fd).zip(shadow.written.checked_sub(shadow.read));
    let answer = figures.and_then(|(queued, logged)| {
        let mut answers = (least..=most).filter_map(|read| {
            let written = (queued + read).checked_sub(logged)?;
            let possible = written == 0 || written == write_len || !whole;
            (possible && written <= write_len).then_some((written, read))
        });
        let first = answers.next()?;
        (seen || answers.next().is_none()).then_some(first)
    });
    share(all, true, answer.map(|(written, _)| written), list);
    for part in all.iter().filter(|part| !part.is_output()) {
        let verdict = match (answer, kernel.touched(part)) {
            _ if !part.entered => Verdict::Again,
            (Some((_, read)), _) if readers == 1 => Verdict::Moved(read),
            (_, Touched::UpTo(got)) => Verdict::Moved(got),
            _ => Verdict::Unknown,
        };
        put(list, part.slot, verdict);
    }
}

fn event(fd: i32, shadow: &Stream, all: &[&Part], kernel: &mut Fake, list: &mut List) {
    let mut taken = 0;
    for part in all.iter().filter(|part| !part.is_output()) {
        let touched = kernel.touched(part);
        let got = part.entered && !matches!(touched, Touched::Unprepared | Touched::UpTo(0));
        if got {
            taken += kernel.first_word(part);
        }
        put(list, part.slot, if got { Verdict::Moved(8) } else { Verdict::Again });
    }
    let logged = shadow.written.checked_sub(shadow.read);
    let now = kernel.event_count(fd);
    let added = now.zip(logged).and_then(|(now, logged)| (now + taken).checked_sub(logged));
    let mut sums = [None; SLOTS];
    share(all, true, added, &mut sums);
    for part in all.iter().filter(|part| part.is_output()) {
        let verdict = match sums[part.slot as usize] {
            Some(Verdict::Moved(added)) if added > 0 => Verdict::Moved(8),
            Some(Verdict::Unknown) => Verdict::Unknown,
            _ => Verdict::Again,
        };
        put(list, part.slot, verdict);
    }
}

fn opaque(all: &[&Part], kernel: &mut Fake, list: &mut List) {
    for part in all {
        let verdict = match part.told {
            Told::Nothing => Verdict::Again,
            Told::Moved(moved) => Verdict::Moved(moved.into()),
            Told::None if !part.entered => Verdict::Again,
            Told::None if part.is_output() => Verdict::Unknown,
            Told::None => match kernel.touched(part) {
                Touched::UpTo(got) => Verdict::Moved(kernel.whole_records(part, got)),
                _ => Verdict::Unknown,
            },
        };
        put(list, part.slot, verdict);
    }
}

fn moved_on(fd: i32, shadow: &Stream, kernel: &mut Fake) -> Option<u64> {
    kernel.position(fd).and_then(|now| now.checked_sub(shadow.written))
}

fn by_place(fd: i32, shadow: &Stream, all: &[&Part], kernel: &mut Fake, list: &mut List) -> bool {
    let may_be_told = |part: &Part| part.is_told || !(part.is_output() || part.is_in_slot);
    if all.iter().any(|part| part.from.is_none() && (part.entered || may_be_told(part))) {
        return false;
    }
    let place = |kernel: &mut Fake, part: &Part| match part.is_output() && shadow.kind == Kind::Append {
        true => kernel.size(fd),
        false => kernel.position(fd),
    };
    let places: Vec<_> = all.iter().map(|part| place(kernel, part)).collect();
    let entered = all.iter().filter(|part| part.entered).count();
    if all.iter().zip(&places).any(|(part, place)| part.entered && place.is_none()) {
        return false;
    }
    for (part, place) in all.iter().zip(places) {
        let Some((from, now)) = part.from.filter(|_| part.entered).zip(place) else {
            put(list, part.slot, Verdict::Again);
            continue;
        };
        let verdict = match now.checked_sub(from) {
            Some(0) => Verdict::Again,
            Some(moved) if part.is_output() => match kernel.lies_at(part, from, moved) {
                Some(true) => Verdict::Moved(part.len),
                _ if moved < part.len => Verdict::Moved(moved),
                Some(false) => Verdict::Again,
                None => Verdict::Moved(part.len),
            },
            Some(moved) => match kernel.came_from(part, from, moved.min(part.len)) {
                Some(true) => Verdict::Moved(moved.min(part.len)),
                Some(false) => Verdict::Again,
                None if moved <= part.len && entered == 1 && kernel.set_position(fd, from) => Verdict::Again,
                None => Verdict::Unknown,
            },
            None => Verdict::Unknown,
        };
        put(list, part.slot, verdict);
    }
    true
}

fn file(fd: i32, shadow: &Stream, all: &[&Part], kernel: &mut Fake, list: &mut List) {
    if by_place(fd, shadow, all, kernel, list) {
        return;
    }
    let moved = moved_on(fd, shadow, kernel);
    let is_one = all.len() == 1;
    if is_one && all[0].is_output() {
        return share(all, true, moved, list);
    }
    let wanted = all.iter().fold(0u64, |sum, part| sum.saturating_add(part.len));
    let undone = match moved {
        Some(0) => true,
        Some(moved) if moved <= wanted => kernel.set_position(fd, shadow.written),
        _ => false,
    };
    for part in all {
        let verdict = match moved {
            _ if undone || !part.entered => Verdict::Again,
            Some(moved) if is_one => Verdict::Moved(moved),
            _ => Verdict::Unknown,
        };
        put(list, part.slot, verdict);
    }
}

fn append(fd: i32, shadow: &Stream, all: &[&Part], kernel: &mut Fake, list: &mut List) {
    if by_place(fd, shadow, all, kernel, list) {
        return;
    }
    if all.iter().any(|part| !part.is_output()) {
        return file(fd, shadow, all, kernel, list);
    }
    let entered: Vec<_> = all.iter().filter(|part| part.entered).collect();
    let wanted = entered.iter().fold(0u64, |sum, part| sum.saturating_add(part.len));
    match kernel.position(fd).map(|now| now.checked_sub(shadow.written)) {
        Some(Some(moved)) if moved > wanted && entered.len() == 1 => share(all, true, Some(wanted), list),
        Some(moved) => share(all, true, moved, list),
        None => share(all, true, None, list),
    }
}
