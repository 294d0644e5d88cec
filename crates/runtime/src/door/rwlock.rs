//! Read-write locks: one state word, and a sequence word each for sleeping readers and writers.
//!
//! Acquisitions take tickets of the object's hashed clock. Releases take none: an acquisition that needed the
//! release has a higher ticket than everything its releaser had logged before, and a standby that applies it
//! waits for the local release as well.
//!
//! Readers go first unless the lock was made to prefer writers, as in glibc.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};

use super::block::{Deadline, Wait};
use super::common::{self, Note};
use super::mutex::Patience;
use super::sync::{self, ALL, CLOCK_REALTIME, Caller, Outcome, errno, op};
use crate::raw::Timespec;
use crate::turns::doors::ordered_frame;

/// In the bytes of glibc's `pthread_rwlock_t`; owner, sharing and preference lie where its initialisers
/// have them.
#[repr(C)]
pub struct RwLock {
    /// Readers, or [`WRITER`].
    state: AtomicU32,
    writers_waiting: AtomicU32,
    readers_waiting: AtomicU32,
    /// What readers sleep on.
    readers_sequence: AtomicU32,
    /// What writers sleep on.
    writers_sequence: AtomicU32,
    pad: u32,
    writer: AtomicU32,
    shared: AtomicU32,
    pad2: [u32; 4],
    preference: AtomicU32,
    pad3: u32,
}

const _: () = {
    assert!(size_of::<RwLock>() == 56);
    assert!(core::mem::offset_of!(RwLock, writer) == 24);
    assert!(core::mem::offset_of!(RwLock, shared) == 28);
    assert!(core::mem::offset_of!(RwLock, preference) == 48);
};

const WRITER: u32 = 1 << 31;
const READERS_MAX: u32 = WRITER - 1;
/// `PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP`; the other kinds prefer readers, also in glibc.
const PREFER_WRITER: u32 = 2;

impl RwLock {
    fn address(&self) -> usize {
        self.state.as_ptr() as usize
    }
    fn shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed) != 0
    }
    fn readers_must_wait(&self) -> bool {
        self.preference.load(Ordering::Relaxed) == PREFER_WRITER
            && self.writers_waiting.load(Ordering::SeqCst) != 0
    }

    /// `None`: not now.
    fn try_read(&self) -> Option<Outcome> {
        let mut state = self.state.load(Ordering::SeqCst);
        while state & WRITER == 0 && !self.readers_must_wait() {
            if state == READERS_MAX {
                return Some(Outcome::failed(errno::EAGAIN));
            }
            match common::exchange(Note::Take, &self.state, state, state + 1) {
                Ok(_) => return Some(Outcome::OK),
                Err(now) => state = now,
            }
        }
        None
    }

    fn try_write(&self) -> Option<Outcome> {
        common::exchange(Note::Take, &self.state, 0, WRITER).ok().map(|_| Outcome::OK)
    }

    fn read(&self, caller: Caller, patience: Patience) -> Outcome {
        if let Some(outcome) = self.try_read() {
            return outcome;
        }
        let wait = Queue { waiting: &self.readers_waiting, sequence: &self.readers_sequence };
        self.queue(caller, patience, wait, || self.try_read())
    }

    fn write(&self, caller: Caller, patience: Patience) -> Outcome {
        let outcome = self.try_write().unwrap_or_else(|| {
            let wait = Queue { waiting: &self.writers_waiting, sequence: &self.writers_sequence };
            let outcome = self.queue(caller, patience, wait, || self.try_write());
            if !outcome.acquired {
                // Readers may have stood back for this writer.
                self.wake_readers();
            }
            outcome
        });
        if outcome.acquired {
            self.is_of(caller);
        }
        outcome
    }

    fn is_of(&self, writer: Caller) {
        self.writer.store(writer.tid(), Ordering::Relaxed);
    }

    fn queue(
        &self,
        caller: Caller,
        patience: Patience,
        queue: Queue,
        attempt: impl Fn() -> Option<Outcome>,
    ) -> Outcome {
        let deadline = match patience.deadline() {
            Ok(deadline) => deadline,
            Err(error) => return Outcome::failed(error),
        };
        common::count_in(queue.waiting);
        let outcome = queue.sleep(caller, deadline, self.shared(), attempt);
        common::count_out(queue.waiting);
        outcome
    }

    fn wake_readers(&self) {
        if self.readers_must_wait() {
            return;
        }
        self.wake_waiting(&self.readers_waiting, &self.readers_sequence, ALL);
    }

    fn unlock(&self) {
        let caller = Caller::get();
        let pass = || {
            if self.is_writer(caller) {
                common::pass_over(&self.writer);
            }
        };
        if common::releases(caller, op::RELEASE, self.address(), finish_unlock, pass) {
            self.give_back();
        }
    }

    fn give_back(&self) {
        if self.state.load(Ordering::Relaxed) & WRITER != 0 {
            self.writer.store(0, Ordering::Relaxed);
        }
        let less = |state: u32| match state {
            // Not locked: undefined, and harmless in glibc.
            0 => None,
            _ if state & WRITER != 0 => Some(state & !WRITER),
            _ => Some(state - 1),
        };
        if common::update(Note::Give, &self.state, less).is_ok_and(|state| state & !WRITER <= 1) {
            self.wake_next();
        }
    }

    fn wake_next(&self) {
        self.wake_waiting(&self.writers_waiting, &self.writers_sequence, 1);
        self.wake_readers();
    }

    /// Who looks at the count and then sleeps looks at the sequence: it is moved before the wake.
    #[inline(always)]
    fn wake_waiting(&self, waiting: &AtomicU32, sequence: &AtomicU32, count: u32) {
        if waiting.load(Ordering::SeqCst) != 0 {
            sequence.fetch_add(1, Ordering::SeqCst);
            sync::wake(sequence.as_ptr(), count, self.shared());
        } else {
            sync::wake_in_order(sequence.as_ptr(), count);
        }
    }

    fn is_writer(&self, caller: Caller) -> bool {
        self.writer.load(Ordering::Relaxed) == caller.tid()
    }
}

/// At a promotion: an unlock that the log has.
fn finish_unlock(address: usize, made: bool) {
    // SAFETY: the guest's lock, which its thread has just given back.
    let lock = unsafe { &*(address as *const RwLock) };
    if made { lock.wake_next() } else { lock.give_back() }
}

/// Where one kind of waiter sleeps.
struct Queue<'a> {
    waiting: &'a AtomicU32,
    sequence: &'a AtomicU32,
}

impl Queue<'_> {
    fn sleep(
        &self,
        caller: Caller,
        deadline: Deadline,
        shared: bool,
        attempt: impl Fn() -> Option<Outcome>,
    ) -> Outcome {
        loop {
            // Read before the attempt: a release in between moves it on, and the sleep returns at once.
            let sequence = self.sequence.load(Ordering::SeqCst);
            if let Some(outcome) = attempt() {
                return outcome;
            }
            match caller.sleep(self.sequence, sequence, deadline, shared) {
                Wait::TimedOut => return Outcome::failed(errno::ETIMEDOUT),
                Wait::Follow => return Outcome::FOLLOW,
                Wait::Again | Wait::Interrupted => {}
            }
        }
    }
}

fn read(lock: &RwLock, patience: Patience) -> c_int {
    // Deterministic for the thread, so not logged.
    if !matches!(patience, Patience::Try) && lock.is_writer(Caller::get()) {
        return errno::EDEADLK;
    }
    let attempt = |caller| lock.read(caller, patience);
    let force = |caller| while !lock.read(caller, Patience::Block).acquired {};
    sync::acquire(op::READ, lock.address(), attempt, force)
}

fn write(lock: &RwLock, patience: Patience) -> c_int {
    if !matches!(patience, Patience::Try) && lock.is_writer(Caller::get()) {
        return errno::EDEADLK;
    }
    let attempt = |caller| lock.write(caller, patience);
    let force = |caller| while !lock.write(caller, Patience::Block).acquired {};
    sync::acquire_as(op::WRITE, lock.address(), attempt, force, |caller| lock.is_of(caller))
}

/// glibc checks the time before it tries the lock.
///
/// # Safety
/// `time` must be readable.
unsafe fn checked(clock: c_int, time: *const Timespec) -> Result<Patience, c_int> {
    // SAFETY: the caller's promise.
    unsafe { sync::deadline(clock, time) }.map(|_| Patience::Until(clock, time))
}

/// `pthread_rwlock_init`, from glibc's attribute object: preference, then sharing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_init(lock: *mut RwLock, attribute: *const [u32; 2]) -> c_int {
    // SAFETY: null or the guest's attribute.
    let [preference, shared] = unsafe { attribute.as_ref() }.copied().unwrap_or([0; 2]);
    // SAFETY: the guest's bytes, of which nobody else knows yet.
    let this = unsafe {
        lock.write_bytes(0, 1);
        &*lock
    };
    this.preference.store(preference, Ordering::Relaxed);
    this.shared.store(shared, Ordering::Release);
    0
}

/// `pthread_rwlock_destroy`: nothing to free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_destroy(_lock: *const RwLock) -> c_int {
    0
}

macro_rules! untimed {
    ($($name:ident = $how:ident, $patience:ident;)*) => { $(
        #[doc = concat!("`", stringify!($name), "`.")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(_lock: *const RwLock) -> c_int {
            unsafe extern "C" fn body(lock: *const RwLock) -> c_int {
                // SAFETY: the guest's lock.
                $how(unsafe { &*lock }, Patience::$patience)
            }
            ordered_frame!(ACQUIRES, body)
        }
    )* };
}
untimed! {
    pthread_rwlock_rdlock = read, Block;
    pthread_rwlock_wrlock = write, Block;
    pthread_rwlock_tryrdlock = read, Try;
    pthread_rwlock_trywrlock = write, Try;
    __pthread_rwlock_rdlock = read, Block;
    __pthread_rwlock_wrlock = write, Block;
    __pthread_rwlock_tryrdlock = read, Try;
    __pthread_rwlock_trywrlock = write, Try;
}

macro_rules! timed {
    ($($timed:ident, $clocked:ident = $how:ident;)*) => { $(
        #[doc = concat!("`", stringify!($timed), "`.")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $timed(lock: *const RwLock, time: *const Timespec) -> c_int {
            // SAFETY: the guest's lock and time.
            unsafe { $clocked(lock, CLOCK_REALTIME, time) }
        }
        #[doc = concat!("`", stringify!($clocked), "`.")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $clocked(_lock: *const RwLock, _clock: c_int, _time: *const Timespec) -> c_int {
            unsafe extern "C" fn body(lock: *const RwLock, clock: c_int, time: *const Timespec) -> c_int {
                // SAFETY: the guest's time.
                match unsafe { checked(clock, time) } {
                    // SAFETY: the guest's lock.
                    Ok(patience) => $how(unsafe { &*lock }, patience),
                    Err(error) => error,
                }
            }
            ordered_frame!(ACQUIRES, body)
        }
    )* };
}
timed! {
    pthread_rwlock_timedrdlock, pthread_rwlock_clockrdlock = read;
    pthread_rwlock_timedwrlock, pthread_rwlock_clockwrlock = write;
}

/// `pthread_rwlock_unlock`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_unlock(_lock: *const RwLock) -> c_int {
    ordered_frame!(CHANGES, unlock)
}

unsafe extern "C" fn unlock(lock: *const RwLock) -> c_int {
    // SAFETY: the guest's lock.
    unsafe { &*lock }.unlock();
    0
}

/// The name under which old libraries know [`pthread_rwlock_unlock`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __pthread_rwlock_unlock(lock: *const RwLock) -> c_int {
    // SAFETY: the guest's lock.
    unsafe { pthread_rwlock_unlock(lock) }
}
