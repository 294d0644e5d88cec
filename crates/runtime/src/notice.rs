//! The death notice: a node of ours at the head of the thread's robust list.
//!
//! glibc has registered a list for each thread and keeps robust mutexes in it; the kernel walks it when the
//! thread dies, before the address space is torn down, and writes FUTEX_OWNER_DIED into our word.

use core::sync::atomic::Ordering;

use us_abi::slot;

use crate::raw;
use crate::thread::{self, Thread};

/// Registers the calling thread, whose effects are real from now on.
pub fn register(thread: &Thread, tid: u32) {
    if thread::is_beyond(thread.slot()) {
        return;
    }
    let Some([head, _]) = raw::robust_list().filter(|[head, _]| *head != 0) else { return };
    let entry = thread.entry();
    let notice = &entry.notice;
    let node = notice.next.as_ptr() as u64;
    let first = head as *mut u64;
    // SAFETY: glibc's list head: a link, then the distance from a node to its futex word. Only this thread
    // changes its list. An insertion is two stores, the second of which makes it visible to the kernel.
    unsafe {
        let next = first.read_volatile();
        if next != node {
            notice.next.store(next, Ordering::Relaxed);
            notice.word.store(tid, Ordering::Release);
            if next != head {
                // A robust mutex that is held already (at a promotion): its removal goes by its back link, which lies
                // before its link. The lowest bit of a link marks priority inheritance.
                ((next & !1) as *mut u64).sub(1).write(node);
            }
            first.write_volatile(node);
        } else {
            notice.word.store(tid, Ordering::Release);
        }
    }
    entry.primary_tid.store(tid, Ordering::Relaxed);
    entry.guest_tid.store(thread.guest_tid(), Ordering::Relaxed);
    entry.state.store(slot::RUNNING, Ordering::Release);
}

/// Takes the calling thread's notice out of its robust list: a copy that is forked now must not carry on a list with
/// a node in memory that it shares with us.
pub fn withdraw() {
    let Some([head, _]) = raw::robust_list().filter(|[head, _]| *head != 0) else { return };
    let mut link = head;
    // As many as the kernel would follow.
    for _ in 0..2048 {
        // SAFETY: glibc's list of this thread: nodes are robust mutexes that it holds, and our notice.
        unsafe {
            let next = (link as *const u64).read_volatile();
            if next & !1 == head || next == 0 {
                return;
            }
            if next.wrapping_sub(us_abi::SEGMENT_ADDRESS as u64) < us_abi::SEGMENT_BYTES as u64 {
                let after = (next as *const u64).read_volatile();
                if after & !1 != head {
                    ((after & !1) as *mut u64).sub(1).write(link);
                }
                (link as *mut u64).write_volatile(after);
                return;
            }
            link = next & !1;
        }
    }
}
