//! What a gate, and the rebuilding of connections, ask of the kernel for which there is no safe call.
//!
//! # Safety
//! Every call gives the kernel an address and the size of one value that lives on this stack, or that the caller has lent.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// What a call has said.
fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Sets an option of a socket.
///
/// # Errors
/// The kernel's.
pub fn set<T: Copy>(socket: impl AsFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    let bytes = size_of::<T>() as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads one `T`.
    checked(unsafe { libc::setsockopt(fd, level, name, (&raw const *value).cast(), bytes) }).map(drop)
}

/// Sets an option that is a list.
///
/// # Errors
/// The kernel's.
pub fn set_all<T: Copy>(socket: impl AsFd, level: i32, name: i32, values: &[T]) -> io::Result<()> {
    let bytes = size_of_val(values) as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads as many bytes as the slice has.
    checked(unsafe { libc::setsockopt(fd, level, name, values.as_ptr().cast(), bytes) }).map(drop)
}

/// An option of a socket that is a number.
///
/// # Errors
/// The kernel's.
pub fn get(socket: impl AsFd, level: i32, name: i32) -> io::Result<i32> {
    let (mut value, mut bytes) = (0i32, 4 as libc::socklen_t);
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes one number, and how long it is.
    checked(unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut bytes) })?;
    Ok(value)
}

/// The kernel's `struct ifreq`.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    value: [u8; 24],
}

impl Request {
    fn of(name: &str) -> Request {
        let mut request = Request { name: [0; libc::IFNAMSIZ], value: [0; 24] };
        let bytes = name.len().min(libc::IFNAMSIZ - 1);
        request.name[..bytes].copy_from_slice(&name.as_bytes()[..bytes]);
        request
    }

    fn ask(&mut self, socket: impl AsFd, number: u64) -> io::Result<()> {
        let fd = socket.as_fd().as_raw_fd();
        // SAFETY: the kernel reads and writes one `struct ifreq`, which this is as long as.
        checked(unsafe { libc::ioctl(fd, number as _, &raw mut *self) }).map(drop)
    }
}

/// A new device whose packets this process reads, and which is gone with it.
///
/// # Errors
/// The kernel's: no right (CAP_NET_ADMIN), or no such devices.
pub fn tun(name: &str) -> io::Result<File> {
    const TUNSETIFF: u64 = 0x4004_54ca;
    const IFF_TUN: u16 = 1;
    const IFF_NO_PI: u16 = 0x1000;
    let device = rustix::fs::open(
        "/dev/net/tun",
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC | rustix::fs::OFlags::NONBLOCK,
        rustix::fs::Mode::empty(),
    )?;
    let mut request = Request::of(name);
    request.value[..2].copy_from_slice(&(IFF_TUN | IFF_NO_PI).to_ne_bytes());
    request.ask(&device, TUNSETIFF)?;
    Ok(device.into())
}

fn socket(domain: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: makes a descriptor, which is nobody else's.
    let fd = checked(unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) })?;
    // SAFETY: it was made a moment ago.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// How large the packets of a device may be, its number, and its address below IP.
///
/// # Errors
/// There is no such device.
pub fn device(name: &str) -> io::Result<(u32, i32, [u8; 6])> {
    let any = socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    let ask = |number| -> io::Result<[u8; 24]> {
        let mut request = Request::of(name);
        request.ask(&any, number)?;
        Ok(request.value)
    };
    let number = |value: [u8; 24]| i32::from_ne_bytes([value[0], value[1], value[2], value[3]]);
    let largest = number(ask(libc::SIOCGIFMTU)?) as u32;
    let index = number(ask(libc::SIOCGIFINDEX)?);
    let below = ask(libc::SIOCGIFHWADDR)?;
    Ok((largest, index, [below[2], below[3], below[4], below[5], below[6], below[7]]))
}

/// A socket that sends whole IP packets, which have this mark.
///
/// # Errors
/// The kernel's: no right (CAP_NET_RAW).
pub fn sender(mark: u32) -> io::Result<OwnedFd> {
    let sender = socket(libc::AF_INET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, libc::IPPROTO_RAW)?;
    set(&sender, libc::SOL_SOCKET, libc::SO_MARK, &mark)?;
    let room = 8 << 20;
    set(&sender, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &room)?;
    Ok(sender)
}

/// A socket that gets a copy of each TCP packet that comes to an address of this machine.
///
/// # Errors
/// The kernel's: no right (CAP_NET_RAW).
pub fn hearer() -> io::Result<OwnedFd> {
    let hearer = socket(libc::AF_INET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, libc::IPPROTO_TCP)?;
    let room = 8 << 20;
    set(&hearer, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &room)?;
    Ok(hearer)
}

/// Bytes in a connection's queue that are not acknowledged, and of these, those that have not been sent.
///
/// # Errors
/// The kernel's.
pub fn waiting(socket: impl AsFd) -> io::Result<(i32, i32)> {
    const SIOCOUTQNSD: u64 = 0x894b;
    let fd = socket.as_fd().as_raw_fd();
    let ask = |number: u64| -> io::Result<i32> {
        let mut bytes = 0i32;
        // SAFETY: the kernel writes one number.
        checked(unsafe { libc::ioctl(fd, number as _, &raw mut bytes) })?;
        Ok(bytes)
    };
    let unsent = ask(SIOCOUTQNSD)?;
    Ok((ask(libc::TIOCOUTQ)?, unsent))
}

/// No option that is looked at is longer.
const OPTION_BYTES: usize = 256;

/// The bytes of an option of a socket, `None` if it has none of that name.
pub fn get_all(socket: impl AsFd, level: i32, name: i32) -> Option<Vec<u8>> {
    let mut value = vec![0u8; OPTION_BYTES];
    let mut bytes = OPTION_BYTES as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes as many bytes as there is room for, and how many these were.
    let told =
        checked(unsafe { libc::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &raw mut bytes) });
    // The kernel says how long it is where there is no room for it.
    value.truncate(if told.is_ok() && bytes as usize <= OPTION_BYTES { bytes as usize } else { 0 });
    (!value.is_empty()).then_some(value)
}

/// Bytes that the other side has acknowledged, by a `struct tcp_info`; of a kernel that does not say, `None`.
pub fn acknowledged(info: &[u8]) -> Option<u64> {
    const ACKNOWLEDGED: usize = 120;
    let figure = info.get(ACKNOWLEDGED..ACKNOWLEDGED + size_of::<u64>())?;
    figure.try_into().ok().map(u64::from_ne_bytes)
}

/// Makes a connected socket one that is not.
///
/// # Errors
/// The kernel's.
pub fn part(socket: impl AsFd) -> io::Result<()> {
    let nobody = libc::sockaddr { sa_family: libc::AF_UNSPEC as u16, sa_data: [0; 14] };
    let bytes = size_of_val(&nobody) as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads one address.
    checked(unsafe { libc::connect(fd, &raw const nobody, bytes) }).map(drop)
}

/// An IPv4 address as the kernel has it.
fn address(address: [u8; 4], port: u16) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address) },
        sin_zero: [0; 8],
    }
}

/// Sends a whole packet to where its head says.
///
/// # Errors
/// The kernel's.
pub fn send(sender: impl AsFd, packet: &[u8]) -> io::Result<()> {
    let to = match packet.get(16..20) {
        Some(to) => address([to[0], to[1], to[2], to[3]], 0),
        None => return Ok(()),
    };
    let bytes = size_of_val(&to) as libc::socklen_t;
    let fd = sender.as_fd().as_raw_fd();
    // SAFETY: the kernel reads the packet and one address.
    let sent =
        unsafe { libc::sendto(fd, packet.as_ptr().cast(), packet.len(), 0, (&raw const to).cast(), bytes) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Tells everybody on a device's network that this address is to be found there from now on.
///
/// # Errors
/// The kernel's.
pub fn announce(name: &str, own: [u8; 4]) -> io::Result<()> {
    const ARP: u16 = 0x0806;
    let (_, index, below) = device(name)?;
    let packets = socket(libc::AF_PACKET, libc::SOCK_DGRAM, 0)?;
    // Ethernet and IPv4; a question, and an answer.
    for kind in [1u8, 2] {
        let mut packet = vec![0, 1, 8, 0, 6, 4, 0, kind];
        packet.extend_from_slice(&below);
        packet.extend_from_slice(&own);
        packet.extend_from_slice(if kind == 1 { &[0; 6] } else { &[0xff; 6] });
        packet.extend_from_slice(&own);
        let to = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: ARP.to_be(),
            sll_ifindex: index,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 6,
            sll_addr: [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0],
        };
        let bytes = size_of_val(&to) as libc::socklen_t;
        // SAFETY: the kernel reads the packet and one address.
        let sent = unsafe {
            let fd = packets.as_raw_fd();
            libc::sendto(fd, packet.as_ptr().cast(), packet.len(), 0, (&raw const to).cast(), bytes)
        };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The kernel's answer about one connection: a message of `sock_diag`.
///
/// # Errors
/// The kernel's.
pub fn diagnose(question: &[u8], answer: &mut [u8]) -> io::Result<usize> {
    const NETLINK_SOCK_DIAG: i32 = 4;
    let socket = socket(libc::AF_NETLINK, libc::SOCK_RAW, NETLINK_SOCK_DIAG)?;
    rustix::net::send(&socket, question, rustix::net::SendFlags::empty())?;
    let (bytes, _) = rustix::net::recv(&socket, answer, rustix::net::RecvFlags::empty())?;
    Ok(bytes)
}

/// Binds a socket to one end of a connection, and connects it to the other one. `mapped`: it is a socket of IPv6.
///
/// # Errors
/// The kernel's.
pub fn join(socket: impl AsFd, own: &gate::End, other: &gate::End, mapped: bool) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    for (end, connects) in [(own, false), (other, true)] {
        let four = address(end.address, end.port);
        let mut six = [0u8; 28];
        six[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
        six[2..4].copy_from_slice(&end.port.to_be_bytes());
        six[18..20].fill(0xff);
        six[20..24].copy_from_slice(&end.address);
        let (at, bytes): (*const libc::sockaddr, usize) = match mapped {
            true => (six.as_ptr().cast(), six.len()),
            false => ((&raw const four).cast(), size_of_val(&four)),
        };
        // SAFETY: the kernel reads one address of that many bytes, both of which live here.
        checked(unsafe {
            match connects {
                true => libc::connect(fd, at, bytes as libc::socklen_t),
                false => libc::bind(fd, at, bytes as libc::socklen_t),
            }
        })?;
    }
    Ok(())
}
