//! Sockets: what the kernel tells of one, and how it is made again.
//!
//! What has no state at a peer's is as it was: listeners, and sockets of messages (UDP, raw, packets, netlink, local), which may
//! send to one address and hear from it alone. A connection is not: it has broken.

use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use checkpoint::{Head, Object, Socket};

use super::descriptors::{Open, Then, is_given};
use super::raw;
use crate::gate::kernel;

/// Options that a socket keeps: level, and names. Only those are noted that a new socket has otherwise. They are set in this
/// order: the kind of service of a packet (`IP_TOS`) changes the socket's priority.
const OPTIONS: [(i32, &[i32]); 9] = [
    (libc::IPPROTO_IP, &IP),
    (libc::IPPROTO_IPV6, &IPV6),
    (
        libc::SOL_SOCKET,
        &[
            libc::SO_REUSEADDR,
            libc::SO_REUSEPORT,
            libc::SO_KEEPALIVE,
            libc::SO_BROADCAST,
            libc::SO_PASSCRED,
            libc::SO_PASSSEC,
            libc::SO_OOBINLINE,
            libc::SO_DONTROUTE,
            libc::SO_NO_CHECK,
            libc::SO_RCVLOWAT,
            libc::SO_SNDBUF,
            libc::SO_RCVBUF,
            libc::SO_PRIORITY,
            libc::SO_MARK,
            libc::SO_TIMESTAMP,
            libc::SO_TIMESTAMPNS,
            libc::SO_TIMESTAMPING,
            libc::SO_RXQ_OVFL,
            libc::SO_PEEK_OFF,
            libc::SO_LINGER,
            libc::SO_RCVTIMEO,
            libc::SO_SNDTIMEO,
            libc::SO_BINDTODEVICE,
        ],
    ),
    (
        libc::IPPROTO_TCP,
        &[
            libc::TCP_NODELAY,
            libc::TCP_CORK,
            libc::TCP_KEEPIDLE,
            libc::TCP_KEEPINTVL,
            libc::TCP_KEEPCNT,
            libc::TCP_SYNCNT,
            libc::TCP_LINGER2,
            libc::TCP_DEFER_ACCEPT,
            libc::TCP_WINDOW_CLAMP,
            libc::TCP_USER_TIMEOUT,
            libc::TCP_FASTOPEN,
            libc::TCP_NOTSENT_LOWAT,
            libc::TCP_CONGESTION,
        ],
    ),
    (libc::IPPROTO_UDP, &[libc::UDP_CORK, libc::UDP_ENCAP, libc::UDP_SEGMENT, libc::UDP_GRO]),
    (SOL_RAW, &[ICMP_FILTER]),
    (libc::IPPROTO_ICMPV6, &[ICMP6_FILTER]),
    (libc::SOL_PACKET, &[libc::PACKET_AUXDATA, libc::PACKET_ORIGDEV]),
    (
        libc::SOL_NETLINK,
        &[
            libc::NETLINK_PKTINFO,
            libc::NETLINK_BROADCAST_ERROR,
            libc::NETLINK_NO_ENOBUFS,
            libc::NETLINK_LISTEN_ALL_NSID,
            libc::NETLINK_CAP_ACK,
            libc::NETLINK_EXT_ACK,
            libc::NETLINK_GET_STRICT_CHK,
            libc::NETLINK_LIST_MEMBERSHIPS,
        ],
    ),
];

const IP: [i32; 19] = [
    libc::IP_TRANSPARENT,
    libc::IP_FREEBIND,
    libc::IP_BIND_ADDRESS_NO_PORT,
    libc::IP_HDRINCL,
    libc::IP_TOS,
    libc::IP_TTL,
    libc::IP_MINTTL,
    libc::IP_PKTINFO,
    libc::IP_RECVTTL,
    libc::IP_RECVTOS,
    libc::IP_RECVOPTS,
    libc::IP_RETOPTS,
    libc::IP_RECVERR,
    libc::IP_RECVORIGDSTADDR,
    libc::IP_MTU_DISCOVER,
    libc::IP_MULTICAST_IF,
    libc::IP_MULTICAST_TTL,
    libc::IP_MULTICAST_LOOP,
    libc::IP_MULTICAST_ALL,
];

const IPV6: [i32; 19] = [
    libc::IPV6_V6ONLY,
    libc::IPV6_TRANSPARENT,
    libc::IPV6_FREEBIND,
    libc::IPV6_TCLASS,
    libc::IPV6_UNICAST_HOPS,
    libc::IPV6_RECVPKTINFO,
    libc::IPV6_RECVHOPLIMIT,
    libc::IPV6_RECVTCLASS,
    libc::IPV6_RECVRTHDR,
    libc::IPV6_RECVHOPOPTS,
    libc::IPV6_RECVDSTOPTS,
    libc::IPV6_RECVERR,
    libc::IPV6_RECVORIGDSTADDR,
    libc::IPV6_MTU_DISCOVER,
    libc::IPV6_DONTFRAG,
    libc::IPV6_MULTICAST_IF,
    libc::IPV6_MULTICAST_HOPS,
    libc::IPV6_MULTICAST_LOOP,
    libc::IPV6_MULTICAST_ALL,
];

const SOL_RAW: i32 = 255;
const ICMP_FILTER: i32 = 1;
const ICMP6_FILTER: i32 = 1;

/// The kernel doubles what is set, and has a second name for who may pass over the limit.
const BUFFERS: [(i32, i32); 2] =
    [(libc::SO_SNDBUF, libc::SO_SNDBUFFORCE), (libc::SO_RCVBUF, libc::SO_RCVBUFFORCE)];

// ---- What there is ----

/// The number of a socket; none of what is no socket.
fn number_of(open: &Open) -> Option<u64> {
    open.name.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// The number of a pair of local sockets both of whose ends the program has: that of the lower end.
fn pair_of(domain: i32, open: &Open, all: &[Open]) -> Option<u64> {
    let own = number_of(open).filter(|_| domain == libc::AF_UNIX)?;
    // A socket of messages may send to one that does not send back: those are no pair.
    let peer = raw::local_peer(own).filter(|peer| raw::local_peer(*peer) == Some(own))?;
    all.iter().any(|other| number_of(other) == Some(peer)).then_some(own.min(peer))
}

/// The number of a pair of local sockets whose other end was the program's, and is nobody's any more: what has come is to be read to its
/// end, as from a [pipe](super::descriptors::is_given).
fn left_of_pair(domain: i32, open: &Open, socket: &OwnedFd) -> Option<u64> {
    let is_left = domain == libc::AF_UNIX && raw::is_alone(socket) && !is_given(open, socket);
    number_of(open).filter(|_| is_left)
}

/// What is behind a descriptor of a socket.
///
/// # Errors
/// What no checkpoint can have, in words.
pub(super) fn describe(open: &Open, all: &[Open], then: Then) -> Result<Object, String> {
    let socket = open.of.borrow(open.fd)?;
    let of = |name| {
        raw::option(&socket, libc::SOL_SOCKET, name).ok_or(format!("descriptor {} is no socket", open.fd))
    };
    let (domain, kind, protocol) = (of(libc::SO_DOMAIN)?, of(libc::SO_TYPE)?, of(libc::SO_PROTOCOL)?);
    let listens = of(libc::SO_ACCEPTCONN)? != 0;
    let peer = raw::peer(&socket);
    let has_peer = if domain == libc::AF_NETLINK { has_group(&peer) } else { !peer.is_empty() };
    let values = options(&socket, (domain, kind, protocol));
    if then == Then::Ends && matches!(domain, libc::AF_INET | libc::AF_INET6) {
        // Whoever goes on wants the addresses at once, which the kernel would keep for what has become of the connections.
        let _ = raw::set_option(&socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
        if has_peer {
            raw::reset_at_close(&socket);
        }
    }
    // Two that have names find each other by them.
    let is_datagram = kind == libc::SOCK_DGRAM;
    let has_own = is_datagram && has_name(domain, &raw::name(&socket));
    let left = || left_of_pair(domain, open, &socket).filter(|_| has_peer && !is_datagram);
    if let Some(number) = pair_of(domain, open, all).or_else(left).filter(|_| !listens && !has_own) {
        let content = raw::waiting(&socket)
            .map_err(|cause| format!("cannot look into descriptor {}: {cause}", open.fd))?;
        // The kernel doubles what is set.
        let room = raw::option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF).unwrap_or(0) / 2;
        let tells_sender = of(libc::SO_PASSCRED)? != 0;
        return Ok(Object::Pair {
            room,
            number,
            kind,
            content,
            is_shut: raw::is_at_end(&socket),
            tells_sender,
        });
    }
    let is_of_messages = !matches!(kind, libc::SOCK_STREAM | libc::SOCK_SEQPACKET);
    // Nobody finds a local peer again that has no name.
    let is_found = is_of_messages && (domain != libc::AF_UNIX || has_name(domain, &peer));
    if domain == libc::AF_UNIX
        && !listens
        && (!has_peer || is_found)
        && !raw::waiting(&socket).is_ok_and(|all| all.is_empty())
    {
        return Err(format!("descriptor {} is a local socket with messages that nobody has read", open.fd));
    }
    let goes_on = then == Then::IsFollowed && open.fd > 2;
    if !listens && has_peer && (open.fd <= 2 || !is_found) && !goes_on {
        return Ok(if open.fd <= 2 { Object::Inherited(open.fd) } else { Object::Broken { domain } });
    }
    Ok(Object::Socket(Socket {
        domain,
        kind,
        protocol,
        name: raw::name(&socket),
        backlog: listens.then(|| raw::backlog(&socket).unwrap_or(libc::SOMAXCONN)),
        values,
        peer: if has_peer { peer } else { Vec::new() },
        loses: is_of_messages && rustix::io::ioctl_fionread(&socket).is_ok_and(|bytes| bytes > 0),
        filter: raw::filter(&socket),
    }))
}

/// Whether it is connected: what it sends is acknowledged, or told to be lost.
pub(super) fn is_connection(socket: &Socket) -> bool {
    let is_of_messages = !matches!(socket.kind, libc::SOCK_STREAM | libc::SOCK_SEQPACKET);
    socket.backlog.is_none() && !socket.peer.is_empty() && !is_of_messages
}

/// Whether an address of netlink is anybody's: number, or groups.
fn has_group(address: &[u8]) -> bool {
    address.get(4..12).is_some_and(|bytes| bytes.iter().any(|byte| *byte != 0))
}

/// Level, name and bytes.
type Value = (i32, i32, Vec<u8>);

/// What a new socket of this kind has otherwise.
fn options(socket: &OwnedFd, (domain, kind, protocol): (i32, i32, i32)) -> Vec<Value> {
    let new = raw::socket(domain, kind, protocol).ok();
    let all = OPTIONS.iter().flat_map(|(level, names)| names.iter().map(|name| (*level, *name)));
    let other = |(level, name)| {
        let bytes = kernel::get_all(socket, level, name)?;
        let usual = new.as_ref().and_then(|new| kernel::get_all(new, level, name));
        let is_usual = usual.map_or_else(|| bytes.iter().all(|byte| *byte == 0), |usual| usual == bytes);
        (!is_usual).then_some((level, name, bytes))
    };
    all.filter_map(other).collect()
}

// ---- How it is made again ----

/// A listener, or a socket of messages.
///
/// # Errors
/// What cannot be had, in words.
pub(super) fn make(socket: &Socket) -> Result<OwnedFd, String> {
    let Socket { domain, kind, protocol, name, backlog, values, peer, filter, .. } = socket;
    let cannot = |what: String| move |cause: io::Error| format!("cannot {what}: {cause}");
    let socket = raw::socket(*domain, *kind, *protocol).map_err(cannot("make a socket".into()))?;
    for value in values {
        // What this kernel does not know, or we may not, it does without.
        let _ = set(&socket, value);
    }
    if !filter.is_empty() {
        raw::set_filter(&socket, filter).map_err(cannot("filter packets".into()))?;
    }
    if *domain == libc::AF_NETLINK {
        join(&socket, name, values).map_err(cannot("listen to the kernel".into()))?;
    } else if has_name(*domain, name) {
        match bind(&socket, *domain, name) {
            // What is left of a connection has the address of its listener.
            Err(_) if backlog.is_none() && *kind == libc::SOCK_STREAM => {}
            // The kernel has drawn it, for answers of its peer.
            Err(_) if !peer.is_empty() && *domain != libc::AF_UNIX => {}
            bound => bound.map_err(cannot(format!("take {}", words(*domain, name))))?,
        }
    }
    if let Some(backlog) = backlog {
        raw::listen(&socket, *backlog).map_err(cannot("listen".into()))?;
    }
    Ok(socket)
}

/// Has those of the sockets that have been `made` send to their peers, when all are there that the program has. Who is not there may
/// come again: the program hears of it when it sends.
pub(super) fn connect(head: &Head, made: &[RawFd]) {
    for (object, fd) in head.objects.iter().zip(made) {
        match object {
            Object::Socket(socket) if !socket.peer.is_empty() && *fd >= 0 => {
                let _ = raw::connect(*fd, &socket.peer);
            }
            _ => {}
        }
    }
}

fn set(socket: &OwnedFd, (level, name, bytes): &Value) -> io::Result<()> {
    let buffer = BUFFERS.iter().find(|(buffer, _)| (*level, *name) == (libc::SOL_SOCKET, *buffer));
    match (buffer, bytes.first_chunk()) {
        // Once it has an address.
        _ if is_membership(*level, *name) => Ok(()),
        (Some((_, by_right)), Some(doubled)) => {
            let room = i32::from_ne_bytes(*doubled) / 2;
            kernel::set(socket, *level, *by_right, &room)
                .or_else(|_| kernel::set(socket, *level, *name, &room))
        }
        _ => kernel::set_all(socket, *level, *name, bytes),
    }
}

fn is_membership(level: i32, name: i32) -> bool {
    (level, name) == (libc::SOL_NETLINK, libc::NETLINK_LIST_MEMBERSHIPS)
}

/// Gives a socket of netlink its number, or another where somebody has that, and its groups.
fn join(socket: &OwnedFd, name: &[u8], values: &[Value]) -> io::Result<()> {
    let Some(number) = name.get(4..8).filter(|number| **number != [0; 4]) else { return Ok(()) };
    let address = |number: &[u8]| [&name[..4], number, &[0; 4]].concat();
    raw::bind(socket, &address(number)).or_else(|_| raw::bind(socket, &address(&[0; 4])))?;
    let groups = values.iter().filter(|of| is_membership(of.0, of.1)).flat_map(|of| &of.2);
    for (byte, bits) in groups.enumerate() {
        for group in (0..8).filter(|bit| bits & 1 << bit != 0).map(|bit| byte as i32 * 8 + bit + 1) {
            kernel::set(socket, libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP, &group)?;
        }
    }
    Ok(())
}

/// Whether a socket's own address says anything: its family comes first.
pub(super) fn has_name(domain: i32, name: &[u8]) -> bool {
    match domain {
        libc::AF_UNIX => name.len() > 2,
        _ => name.get(2..4).is_some_and(|port| port != [0, 0]),
    }
}

/// The path of a local socket's address, if it has one.
fn path(domain: i32, name: &[u8]) -> Option<&Path> {
    let bytes = name.get(2..).filter(|_| domain == libc::AF_UNIX)?;
    let path = bytes.split(|byte| *byte == 0).next().filter(|path| !path.is_empty())?;
    Some(Path::new(std::ffi::OsStr::from_bytes(path)))
}

fn words(domain: i32, name: &[u8]) -> String {
    match (path(domain, name), name.get(2..4)) {
        (Some(path), _) => path.display().to_string(),
        (None, Some([high, low])) if domain != libc::AF_UNIX => {
            format!("port {}", u16::from_be_bytes([*high, *low]))
        }
        _ => "its address".into(),
    }
}

fn bind(socket: &OwnedFd, domain: i32, name: &[u8]) -> io::Result<()> {
    // What has become of the connections that the last one had may keep its place for a minute.
    let reuse = |value| raw::set_option(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, value);
    let before = raw::option(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR).unwrap_or(0);
    let _ = reuse(1);
    let first = raw::bind(socket, name);
    let _ = reuse(before);
    // The file of a socket at which nobody listens any more is its own.
    let is_left = |path: &Path| {
        fs::metadata(path).is_ok_and(|status| status.file_type().is_socket())
            && UnixStream::connect(path).is_err()
    };
    match path(domain, name).filter(|path| first.is_err() && is_left(path)) {
        Some(path) => {
            fs::remove_file(path)?;
            raw::bind(socket, name)
        }
        None => first,
    }
}

/// A connection whose other end is gone.
pub(super) fn broken(domain: i32) -> io::Result<OwnedFd> {
    if domain == libc::AF_UNIX {
        return Ok(UnixStream::pair()?.0.into());
    }
    let listener = TcpListener::bind(if domain == libc::AF_INET6 { "[::1]:0" } else { "127.0.0.1:0" })?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    raw::reset_at_close(&listener.accept()?.0);
    Ok(one.into())
}
