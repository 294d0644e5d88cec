//! The kernel, and the dead primary's slots, as a judgement sees them. By the poller, while nobody acts; and by a primary that
//! forks, where every other thread stands still.

use us_world::{Counts, Kernel, Part, TcpFigures, Touched};

use crate::door::{pattern, witness};
use crate::fdtable::{self, Shadow};
use crate::standby::files;
use crate::standby::settle::place_of;
use crate::{proc, raw};

/// The kernel of this machine, which has the objects.
pub struct Own;

impl Kernel for Own {
    const PATTERN_MAX: u64 = pattern::PATTERN_MAX as u64;

    fn tcp(&mut self, fd: i32) -> Option<TcpFigures> {
        use crate::kernel::POLLPRI;
        const POLLERR: i64 = linux_raw_sys::general::POLLERR as i64;
        use crate::kernel::SIOCATMARK;
        const SIOCINQ: u64 = 0x541b;
        const SIOCOUTQ: u64 = 0x5411;
        use crate::kernel::{IPPROTO_TCP, TCP_INFO};
        let mut info = [0u64; 32];
        let mut len = 256u32;
        let (mut inq, mut outq, mut at_mark) = (0i32, 0i32, 0i32);
        let args = [fd as u64, IPPROTO_TCP, TCP_INFO, info.as_mut_ptr() as u64, &raw mut len as u64, 0];
        // SAFETY: the kernel writes at most 256 bytes of struct tcp_info, and three ints.
        unsafe {
            if raw::call6(raw::nr::GETSOCKOPT, args) != 0
                || raw::call3(raw::nr::IOCTL, fd as u64, SIOCINQ, &raw mut inq as u64) != 0
                || raw::call3(raw::nr::IOCTL, fd as u64, SIOCOUTQ, &raw mut outq as u64) != 0
                || raw::call3(raw::nr::IOCTL, fd as u64, SIOCATMARK, &raw mut at_mark as u64) != 0
            {
                return None;
            }
        }
        let poll = raw::poll(fd, POLLPRI);
        // tcpi_bytes_acked is at byte 120, tcpi_bytes_received at 128.
        Some(TcpFigures {
            state: info[0] as u8,
            acked: info[15],
            received: info[16],
            unread: inq as u64,
            unacknowledged: outq as u64,
            is_broken: poll & POLLERR != 0,
            has_mark: at_mark != 0 || poll & POLLPRI as i64 != 0,
        })
    }

    fn queued(&mut self, fd: i32) -> Option<u64> {
        fdtable::queued(fd)
    }

    fn event_count(&mut self, fd: i32) -> Option<u64> {
        let mut text = [0u8; 512];
        let text = proc::describe(fd, &mut text)?;
        let label = b"eventfd-count:";
        let at = text.windows(label.len()).position(|window| window == label)? + label.len();
        let digits = text[at..].iter().skip_while(|byte| **byte == b' ' || **byte == b'\t');
        let digits = digits.map_while(|byte| char::from(*byte).to_digit(16));
        Some(digits.fold(0, |count, digit| count << 4 | u64::from(digit)))
    }

    fn position(&mut self, fd: i32) -> Option<u64> {
        fdtable::position(fd)
    }

    fn size(&mut self, fd: i32) -> Option<u64> {
        fdtable::size(fd)
    }

    fn set_position(&mut self, fd: i32, position: u64) -> bool {
        // SAFETY: the position of the guest's own file, to where it was. Nobody acts.
        unsafe { raw::call3(raw::nr::LSEEK, fd as u64, position, 0) >= 0 }
    }

    fn lies_at(&mut self, part: &Part, from: u64, bytes: u64) -> Option<bool> {
        files::lies_at(part, from, bytes)
    }

    fn came_from(&mut self, part: &Part, from: u64, bytes: u64) -> Option<bool> {
        files::came_from(part, from, bytes)
    }

    fn touched(&mut self, part: &Part) -> Touched {
        match pattern::touched(place_of(part.slot)) {
            None => Touched::Unprepared,
            Some(None) => Touched::Beyond,
            Some(Some(got)) => Touched::UpTo(got as u64),
        }
    }

    fn first_word(&mut self, part: &Part) -> u64 {
        // SAFETY: the reserved slot of a dead primary, where the kernel has put eight bytes.
        unsafe { witness::data_of(place_of(part.slot)).cast::<u64>().read_unaligned() }
    }

    fn whole_records(&mut self, part: &Part, bytes: u64) -> u64 {
        const EVENT: u64 = 16;
        let mut name = [0u8; 64];
        let whole = match proc::object_name(part.fd, &mut name) {
            _ if bytes == 0 => 0,
            Some(b"anon_inode:[timerfd]" | b"anon_inode:[eventfd]") => bytes.next_multiple_of(8),
            Some(b"anon_inode:[signalfd]") => bytes.next_multiple_of(128),
            Some(b"anon_inode:inotify" | b"anon_inode:[inotify]") => {
                let data = witness::data_of(place_of(part.slot));
                let mut end = 0;
                while end < bytes && end + EVENT <= part.len {
                    // SAFETY: within the reserved slot; the length of the name is an event's last word.
                    let name = unsafe { data.add(end as usize + 12).cast::<u32>().read_unaligned() };
                    end += EVENT + u64::from(name);
                }
                end
            }
            _ => bytes,
        };
        whole.min(part.len)
    }
}

/// What a descriptor has moved so far, as the kernel has it.
pub fn baseline(fd: i32, shadow: &Shadow) -> Counts {
    shadow.kind().baseline(fd, shadow.is_shut(), &mut Own)
}

/// The same, where the kernel's figures are exact.
pub fn exact(fd: i32, shadow: &Shadow) -> Option<Counts> {
    shadow.kind().exact(fd, shadow.is_shut(), &mut Own)
}
