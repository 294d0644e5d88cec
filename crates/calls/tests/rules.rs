//! What must hold for each row, whatever the call.

use us_calls::{Class, Door, FdUse, In, Order, Out, Policy, Row, SignalDoor, TABLE};

fn rows() -> impl Iterator<Item = &'static Row> {
    TABLE.iter().flatten()
}

fn out_args(out: &Out) -> Vec<u8> {
    match *out {
        Out::Fixed { arg, .. }
        | Out::Always { arg, .. }
        | Out::Result { arg }
        | Out::ResultItems { arg, .. }
        | Out::Msghdr { arg }
        | Out::Mmsghdr { arg }
        | Out::MmsgLens { arg }
        | Out::FileHandle { arg }
        | Out::Msgbuf { arg }
        | Out::XattrArgs { arg } => vec![arg],
        Out::ResultUpTo { arg, len_arg }
        | Out::ArgBytes { arg, len_arg }
        | Out::SockLen { arg, len_arg }
        | Out::Pages { arg, len_arg } => vec![arg, len_arg],
        Out::ResultItemsUpTo { arg, count_arg, .. }
        | Out::ArgItems { arg, count_arg, .. }
        | Out::Iovec { arg, count_arg } => vec![arg, count_arg],
        Out::FdSet { arg, nfds_arg } => vec![arg, nfds_arg],
        Out::NodeMask { arg, bits_arg } => vec![arg, bits_arg],
        Out::CapData { arg, header_arg } => vec![arg, header_arg],
        Out::ByCommand { arg, cmd_arg } => vec![arg, cmd_arg],
        Out::Ioctl | Out::Fcntl | Out::Prctl => vec![],
    }
}

fn in_args(input: &In) -> Vec<u8> {
    match *input {
        In::Scalar { arg }
        | In::Int { arg }
        | In::Str { arg }
        | In::Fixed { arg, .. }
        | In::Msghdr { arg }
        | In::StrArray { arg } => vec![arg],
        In::Bytes { arg, len_arg } | In::SockAddr { arg, len_arg } | In::Msgbuf { arg, len_arg } => {
            vec![arg, len_arg]
        }
        In::Items { arg, count_arg, .. }
        | In::Iovec { arg, count_arg }
        | In::IovecLens { arg, count_arg }
        | In::Mmsghdr { arg, count_arg }
        | In::Pollfds { arg, count_arg } => vec![arg, count_arg],
        In::FdSet { arg, nfds_arg } => vec![arg, nfds_arg],
        In::SockOpt | In::Ioctl | In::Fcntl | In::Prctl => vec![],
    }
}

fn fd_args(fd: FdUse) -> Vec<u8> {
    match fd {
        FdUse::Uses(a)
        | FdUse::UsesAt(a)
        | FdUse::CreatesFrom(a)
        | FdUse::CreatesAt(a)
        | FdUse::CreatesUnless(a)
        | FdUse::Closes(a)
        | FdUse::Message(a) => vec![a],
        FdUse::UsesTwo(a, b) | FdUse::UsesAtTwo(a, b) => vec![a, b],
        FdUse::ClosesRange { first, last } => vec![first, last],
        FdUse::CreatesPair { arg } => vec![arg],
        FdUse::Dups { from, to } => [Some(from), to].into_iter().flatten().collect(),
        FdUse::None | FdUse::Creates | FdUse::Command | FdUse::InMemory | FdUse::Process => vec![],
    }
}

#[test]
fn arguments_are_registers() {
    for row in rows() {
        let args = row.outs.iter().flat_map(out_args).chain(row.inputs.iter().flat_map(in_args));
        for arg in args.chain(fd_args(row.fd)) {
            assert!(arg <= 5, "{}: argument {arg}", row.name);
        }
    }
}

#[test]
fn what_needs_explaining_is_explained() {
    for row in rows() {
        let needs = matches!(
            row.policy,
            Policy::Refused | Policy::Denied(_) | Policy::Declined(_) | Policy::Special(_)
        );
        assert!(!needs || !row.why.is_empty(), "{} has no why", row.name);
        assert!(row.why.len() <= 100, "{}: one short clause", row.name);
        assert!(!row.sticky || row.policy == Policy::Refused, "{}: only refused calls stick", row.name);
    }
}

#[test]
fn local_and_denied_calls_leave_no_trace_in_the_log() {
    for row in rows().filter(|row| matches!(row.policy, Policy::Local | Policy::Denied(_))) {
        let silent = row.outs.is_empty() && row.inputs.is_empty() && row.order == Order::None && !row.blocks;
        assert!(silent && row.fd == FdUse::None, "{}", row.name);
    }
}

#[test]
fn no_local_call_takes_a_descriptor_in_its_mirror() {
    // A standby's table is in the future: a descriptor that a mirrored call needs may be closed by then.
    for row in rows().filter(|row| row.policy == Policy::Special(Door::Mirror)) {
        assert_eq!(row.fd, FdUse::None, "{}", row.name);
    }
}

#[test]
fn an_argument_is_input_in_one_way() {
    for row in rows() {
        // A pointer must not also be digested as a number: addresses differ between copies.
        let numbers: Vec<u8> = row
            .inputs
            .iter()
            .filter_map(|input| match *input {
                In::Scalar { arg } | In::Int { arg } => Some(arg),
                _ => None,
            })
            .collect();
        let pointers = row.outs.iter().filter_map(|out| out_args(out).first().copied()).chain(
            row.inputs
                .iter()
                .filter(|input| !matches!(input, In::Scalar { .. } | In::Int { .. }))
                .filter_map(|input| in_args(input).first().copied()),
        );
        for pointer in pointers {
            assert!(
                !numbers.contains(&pointer),
                "{}: argument {pointer} is a pointer and a number",
                row.name
            );
        }
        let mut unique = numbers.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), numbers.len(), "{}: an argument twice", row.name);
    }
}

#[test]
fn a_descriptor_used_is_a_descriptor_compared() {
    for row in rows().filter(|row| matches!(row.policy, Policy::Recorded)) {
        for fd in fd_args(row.fd) {
            let compared = row.inputs.contains(&In::Int { arg: fd });
            assert!(compared, "{}: descriptor argument {fd} is not in the digest", row.name);
        }
    }
}

#[test]
fn descriptors_are_made_and_unmade_in_order() {
    for row in rows().filter(|row| row.policy != Policy::Refused) {
        let (enter, ret) = match row.fd {
            FdUse::Creates | FdUse::CreatesAt(_) | FdUse::CreatesFrom(_) | FdUse::CreatesPair { .. } => {
                (false, true)
            }
            FdUse::Dups { to: None, .. } => (false, true),
            FdUse::Dups { to: Some(_), .. } => (true, true),
            FdUse::Closes(_) | FdUse::ClosesRange { .. } | FdUse::Process | FdUse::CreatesUnless(_) => {
                (true, false)
            }
            _ => continue,
        };
        assert!(!enter || row.order.at_entry(), "{} closes: ticket at entry", row.name);
        assert!(!ret || row.order.at_return(), "{} creates: ticket at return", row.name);
        // The generic path keeps no shadow table.
        assert!(matches!(row.policy, Policy::Special(_)), "{} needs a door", row.name);
    }
}

#[test]
fn input_is_ordered_at_return_and_output_at_entry() {
    for row in
        rows().filter(|row| !matches!(row.policy, Policy::Refused | Policy::Denied(_) | Policy::Declined(_)))
    {
        match row.class {
            Class::Read => assert!(row.order.at_return(), "{}", row.name),
            Class::Write => assert!(row.order.at_entry(), "{}", row.name),
            Class::Poll if row.blocks => assert!(row.order.at_return(), "{}", row.name),
            _ => {}
        }
        if row.policy == Policy::Special(Door::Signal(SignalDoor::Send)) {
            assert_eq!(row.order, Order::Enter, "{}", row.name);
        }
    }
}

#[test]
fn what_consumes_goes_through_a_door() {
    // Bytes taken out of the kernel by a generic call would die with the primary before they are logged.
    for row in rows().filter(|row| row.class == Class::Read) {
        assert!(matches!(row.policy, Policy::Special(_)), "{}", row.name);
        assert!(!row.outs.is_empty(), "{}", row.name);
    }
}

#[test]
fn releasing_calls_take_their_ticket_at_entry() {
    let releasing = [
        "write",
        "writev",
        "sendto",
        "sendmsg",
        "close",
        "kill",
        "tgkill",
        "unlink",
        "unlinkat",
        "connect",
        "shutdown",
        "listen",
        "bind",
        "epoll_ctl",
        "clone",
        "fork",
        "exit",
        "exit_group",
        "execve",
        "rename",
        "msgsnd",
        "semop",
        "futex",
        "futex_wake",
        "ftruncate",
        "setsockopt",
        "chdir",
        "setuid",
        "munmap",
    ];
    let acquiring = [
        "read",
        "recvfrom",
        "recvmsg",
        "accept",
        "accept4",
        "open",
        "openat",
        "stat",
        "newfstatat",
        "epoll_wait",
        "wait4",
        "waitid",
        "poll",
        "select",
        "semop",
        "flock",
        "mkdir",
        "rename",
        "getdents64",
        "access",
        "futex",
    ];
    for (names, entry) in [(&releasing[..], true), (&acquiring[..], false)] {
        for name in names {
            let row = rows().find(|row| row.name == *name).expect(name);
            assert!(if entry { row.order.at_entry() } else { row.order.at_return() }, "{name}");
        }
    }
}

#[test]
fn guests_exist() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../guests");
    for row in rows().filter(|row| !row.guest.is_empty()) {
        let sources = ["c", "cc", "cpp"].map(|ext| format!("{folder}/{}.{ext}", row.guest));
        assert!(
            sources.iter().any(|path| std::path::Path::new(path).exists()),
            "{}: no guest {}",
            row.name,
            row.guest
        );
    }
    let without: Vec<_> = rows()
        .filter(|row| row.guest.is_empty() && !matches!(row.policy, Policy::Denied(_) | Policy::Declined(_)))
        .map(|row| row.name)
        .collect();
    println!("{} rows without a guest: {}", without.len(), without.join(" "));
}

#[test]
fn a_row_stays_small() {
    // The runtime walks the table at each trapped call; it is mapped into every guest.
    assert!(size_of::<Option<Row>>() <= 128, "{} bytes", size_of::<Option<Row>>());
}

#[test]
fn what_only_observes_releases_nobody_and_does_not_wait() {
    for row in TABLE.iter().flatten().filter(|row| row.observes) {
        assert!(
            !row.order.at_entry() && !row.blocks,
            "{}: it observes, and yet others wait for it",
            row.name
        );
        assert!(
            matches!(row.fd, FdUse::None | FdUse::Uses(_) | FdUse::UsesAt(_)),
            "{}: {:?}",
            row.name,
            row.fd
        );
        assert!(!matches!(row.class, Class::Read | Class::Write | Class::Poll), "{}", row.name);
    }
}
