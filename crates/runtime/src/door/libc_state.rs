//! glibc's other locks: families of functions with state in common, each a domain of its own.
//!
//! Without a domain several threads race for a lazy first call (the time zone's file, a name service module)
//! or for the order of results (`rand`, key numbers, exit handlers), and the copies differ.
//!
//! The locks are leaves: no function of a domain enters another domain while it holds its own, but for name
//! services, whose modules read the environment; the environment calls nobody. None of them runs code of the guest
//! that could wait for another thread. For that reason these have no door: `dlopen` and `dlclose` (run
//! constructors), `qsort`, `bsearch`, `scandir`, `ftw` (callbacks), `exit` (runs handlers; registering one has
//! a door). Hosts, users and services may block on the network; they are domains apart, so that
//! a resolver inside the program can at most wait for its own kind.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use us_abi::Header;
use us_abi::event::EventKind;

use super::block::{Deadline, Wait};
use super::forward::Domain;
use super::process;
use super::sync::{self, Caller, Outcome, op};
use crate::above::above;
use crate::lock::Lock;
use crate::raw::nr;
use crate::real::REGISTER_ATFORK;
use crate::thread::{Mode, Thread};
use crate::{clock, forward_doors, state, tls};

/// One family's lock. Recursive: a handler that interrupts one of these functions may call another.
pub(super) struct Family {
    lock: Lock,
    /// Its thread pointer: a number may be two threads', since the kernel gives those of dead primaries' threads away.
    owner: AtomicU64,
    depth: AtomicU32,
}

impl Family {
    pub(super) const fn new() -> Family {
        Family { lock: Lock::new(), owner: AtomicU64::new(0), depth: AtomicU32::new(0) }
    }

    fn take(&self, caller: Caller) -> Outcome {
        let sleep = |word: &_, value| caller.sleep(word, value, Deadline::None, false) != Wait::Follow;
        if !self.lock.take_with(sleep) {
            return Outcome::FOLLOW;
        }
        self.owner.store(tls::thread_pointer(), Ordering::Relaxed);
        // In a forked child the last holder may have been a thread of its parent's, in the middle of anything.
        self.depth.store(0, Ordering::Relaxed);
        Outcome::OK
    }

    /// Enters on the clock of `object`: the family's own address, or that of one of many objects.
    pub(super) fn enter_for(&self, object: usize) {
        if self.lock.is_held() && self.owner.load(Ordering::Relaxed) == tls::thread_pointer() {
            self.depth.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let force = |caller| while self.take(caller) == Outcome::FOLLOW {};
        sync::acquire(op::LIBC, object, |caller| self.take(caller), force);
    }

    pub(super) fn leave(&self) {
        if self.depth.load(Ordering::Relaxed) != 0 {
            self.depth.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        self.owner.store(0, Ordering::Relaxed);
        let word = self.lock.word();
        sync::wake_next(word, 1, self.lock.free(), false);
    }
}

impl Domain for &Family {
    fn enter(&self, _caller: Caller) {
        self.enter_for(&raw const **self as usize);
    }
    fn leave(&self) {
        Family::leave(self);
    }
}

/// The generators of `rand`, `random` and `drand48`.
static RANDOM: Family = Family::new();
/// The environment.
static ENVIRONMENT: Family = Family::new();
/// The time zone and the buffers of `localtime`.
static TIME_ZONE: Family = Family::new();
/// Host names.
static HOSTS: Family = Family::new();
/// Services, protocols and networks.
static SERVICES: Family = Family::new();
/// Users and groups.
static USERS: Family = Family::new();
/// The connection to the system log.
static SYSLOG: Family = Family::new();
/// The locale and message catalogues.
static LOCALE: Family = Family::new();
/// The modules of `iconv`.
static CONVERSION: Family = Family::new();
/// The list of exit handlers.
static EXIT_HANDLERS: Family = Family::new();
/// What a fork holds from before to behind the system call: which of two threads forks first is in the log by the call,
/// and a standby's thread that has come first to libc's own locks would keep the other from it for ever.
static FORKING: Family = Family::new();
/// In the constructor: [`await_turn`] is called by every fork of libc's behind the guest's own handlers, since the first
/// to be registered is the last to be called, and before libc takes its locks.
pub fn order_forks() {
    static IN_LIBRARY: u8 = 0;
    type Handler = Option<extern "C" fn()>;
    type Register = extern "C" fn(Handler, Handler, Handler, *const u8) -> i32;
    let register = REGISTER_ATFORK.get();
    if !register.is_null() {
        // SAFETY: libc's function of this type, which keeps the addresses; the library is never unloaded.
        unsafe {
            let register = core::mem::transmute::<*mut core::ffi::c_void, Register>(register);
            register(Some(await_turn), None, None, &raw const IN_LIBRARY);
        }
    }
}

/// A standby's thread takes no lock of libc's before its fork is next, and the log says how it ended. With the allocator's
/// in its hands it would wait for a thread that needs memory to come to its own event: an earlier one, or, where the
/// primary was killed in the fork, any of those that have to be applied before the fork is settled.
extern "C" fn await_turn() {
    // SAFETY: the calling thread's own block.
    let Some(thread) = (unsafe { tls::current().as_mut() }) else { return };
    thread.lately.is_before_fork = true;
    while thread.calls() == Mode::Replay {
        let Some(header) = thread.peek() else {
            if state::LIVE.load(Ordering::Acquire) {
                return above().go_live(thread);
            }
            thread.wait_more();
            continue;
        };
        match EventKind::from_u8(header.kind) {
            Some(EventKind::Signal) => thread.take_signal(),
            Some(EventKind::Enter) if begins_fork(thread, &header) => {}
            Some(EventKind::Again) if thread.begun().is_fork => {
                // In a replay: it was not made, and is begun again by the dead primary's successor.
                thread.begun_mut().is_fork = false;
                thread.doubt.set_open(false);
                thread.take_front(&header);
            }
            // Of whatever else comes next its own door makes sure.
            _ => return,
        }
    }
}

/// Behind a place where a thread stood still that may now be a standby's: it was perhaps among the locks that libc takes for a fork,
/// before one that another thread had. In the primary that one came first, and here it may come later than we, who then wait for
/// its events with the lock. Turns leave nobody else there.
pub fn goes_on_in_fork(thread: &mut Thread) {
    if !thread.lately.is_before_fork || state::is_serial() {
        return;
    }
    while thread.calls() == Mode::Replay && !state::LIVE.load(Ordering::Acquire) {
        let Some(header) = thread.peek() else {
            thread.wait_more();
            continue;
        };
        // No handler of the guest's can run here.
        if header.kind != EventKind::Enter as u8 || !begins_fork(thread, &header) {
            return;
        }
    }
}

/// Begins the fork by its `Enter`, if it is that which comes next and it has not begun.
fn begins_fork(thread: &mut Thread, enter: &Header) -> bool {
    let is_next = !thread.begun().is_fork && u64::from(enter.call) == nr::CLONE;
    if is_next {
        process::begin_fork(thread);
    }
    is_next
}

/// The numbers of thread-specific keys.
static KEYS: Family = Family::new();

const DIRECTORIES: usize = 64;
/// Directory streams, by address.
static DIRECTORY: [Family; DIRECTORIES] = [const { Family::new() }; DIRECTORIES];

/// One directory stream.
struct Directory(u64);

impl Directory {
    fn family(&self) -> &'static Family {
        &DIRECTORY[clock::number(self.0 as usize) as usize % DIRECTORIES]
    }
}

impl Domain for Directory {
    fn enter(&self, _caller: Caller) {
        self.family().enter_for(self.0 as usize);
    }
    fn leave(&self) {
        self.family().leave();
    }
}

forward_doors! { u64,
    fork = FORK, |_| &FORKING;
    rand = RAND, |_| &RANDOM;
    srand = SRAND, |_| &RANDOM;
    random = RANDOM, |_| &RANDOM;
    srandom = SRANDOM, |_| &RANDOM;
    initstate = INITSTATE, |_| &RANDOM;
    setstate = SETSTATE, |_| &RANDOM;
    lrand48 = LRAND48, |_| &RANDOM;
    nrand48 = NRAND48, |_| &RANDOM;
    mrand48 = MRAND48, |_| &RANDOM;
    jrand48 = JRAND48, |_| &RANDOM;
    srand48 = SRAND48, |_| &RANDOM;
    seed48 = SEED48, |_| &RANDOM;
    lcong48 = LCONG48, |_| &RANDOM;
    getenv = GETENV, |_| &ENVIRONMENT;
    secure_getenv = SECURE_GETENV, |_| &ENVIRONMENT;
    setenv = SETENV, |_| &ENVIRONMENT;
    unsetenv = UNSETENV, |_| &ENVIRONMENT;
    putenv = PUTENV, |_| &ENVIRONMENT;
    clearenv = CLEARENV, |_| &ENVIRONMENT;
    localtime = LOCALTIME, |_| &TIME_ZONE;
    localtime_r = LOCALTIME_R, |_| &TIME_ZONE;
    gmtime = GMTIME, |_| &TIME_ZONE;
    gmtime_r = GMTIME_R, |_| &TIME_ZONE;
    mktime = MKTIME, |_| &TIME_ZONE;
    timelocal = TIMELOCAL, |_| &TIME_ZONE;
    timegm = TIMEGM, |_| &TIME_ZONE;
    strftime = STRFTIME, |_| &TIME_ZONE;
    strftime_l = STRFTIME_L, |_| &TIME_ZONE;
    wcsftime = WCSFTIME, |_| &TIME_ZONE;
    wcsftime_l = WCSFTIME_L, |_| &TIME_ZONE;
    tzset = TZSET, |_| &TIME_ZONE;
    ctime = CTIME, |_| &TIME_ZONE;
    ctime_r = CTIME_R, |_| &TIME_ZONE;
    strptime = STRPTIME, |_| &TIME_ZONE;
    getaddrinfo = GETADDRINFO, |_| &HOSTS;
    getnameinfo = GETNAMEINFO, |_| &HOSTS;
    gethostbyname = GETHOSTBYNAME, |_| &HOSTS;
    gethostbyname_r = GETHOSTBYNAME_R, |_| &HOSTS;
    gethostbyname2 = GETHOSTBYNAME2, |_| &HOSTS;
    gethostbyname2_r = GETHOSTBYNAME2_R, |_| &HOSTS;
    gethostbyaddr = GETHOSTBYADDR, |_| &HOSTS;
    gethostbyaddr_r = GETHOSTBYADDR_R, |_| &HOSTS;
    getservbyname = GETSERVBYNAME, |_| &SERVICES;
    getservbyname_r = GETSERVBYNAME_R, |_| &SERVICES;
    getservbyport = GETSERVBYPORT, |_| &SERVICES;
    getservbyport_r = GETSERVBYPORT_R, |_| &SERVICES;
    getprotobyname = GETPROTOBYNAME, |_| &SERVICES;
    getprotobyname_r = GETPROTOBYNAME_R, |_| &SERVICES;
    getprotobynumber = GETPROTOBYNUMBER, |_| &SERVICES;
    getprotobynumber_r = GETPROTOBYNUMBER_R, |_| &SERVICES;
    getnetbyname = GETNETBYNAME, |_| &SERVICES;
    getnetbyname_r = GETNETBYNAME_R, |_| &SERVICES;
    getnetbyaddr = GETNETBYADDR, |_| &SERVICES;
    getpwnam = GETPWNAM, |_| &USERS;
    getpwnam_r = GETPWNAM_R, |_| &USERS;
    getpwuid = GETPWUID, |_| &USERS;
    getpwuid_r = GETPWUID_R, |_| &USERS;
    getpwent = GETPWENT, |_| &USERS;
    getpwent_r = GETPWENT_R, |_| &USERS;
    setpwent = SETPWENT, |_| &USERS;
    endpwent = ENDPWENT, |_| &USERS;
    getgrnam = GETGRNAM, |_| &USERS;
    getgrnam_r = GETGRNAM_R, |_| &USERS;
    getgrgid = GETGRGID, |_| &USERS;
    getgrgid_r = GETGRGID_R, |_| &USERS;
    getgrent = GETGRENT, |_| &USERS;
    getgrent_r = GETGRENT_R, |_| &USERS;
    setgrent = SETGRENT, |_| &USERS;
    endgrent = ENDGRENT, |_| &USERS;
    getgrouplist = GETGROUPLIST, |_| &USERS;
    initgroups = INITGROUPS, |_| &USERS;
    getspnam = GETSPNAM, |_| &USERS;
    getspnam_r = GETSPNAM_R, |_| &USERS;
    openlog = OPENLOG, |_| &SYSLOG;
    vsyslog = VSYSLOG, |_| &SYSLOG;
    __vsyslog_chk = X_VSYSLOG_CHK, |_| &SYSLOG;
    closelog = CLOSELOG, |_| &SYSLOG;
    setlogmask = SETLOGMASK, |_| &SYSLOG;
    setlocale = SETLOCALE, |_| &LOCALE;
    newlocale = NEWLOCALE, |_| &LOCALE;
    freelocale = FREELOCALE, |_| &LOCALE;
    duplocale = DUPLOCALE, |_| &LOCALE;
    localeconv = LOCALECONV, |_| &LOCALE;
    bindtextdomain = BINDTEXTDOMAIN, |_| &LOCALE;
    bind_textdomain_codeset = BIND_TEXTDOMAIN_CODESET, |_| &LOCALE;
    textdomain = TEXTDOMAIN, |_| &LOCALE;
    gettext = GETTEXT, |_| &LOCALE;
    dgettext = DGETTEXT, |_| &LOCALE;
    dcgettext = DCGETTEXT, |_| &LOCALE;
    ngettext = NGETTEXT, |_| &LOCALE;
    dngettext = DNGETTEXT, |_| &LOCALE;
    dcngettext = DCNGETTEXT, |_| &LOCALE;
    iconv_open = ICONV_OPEN, |_| &CONVERSION;
    iconv_close = ICONV_CLOSE, |_| &CONVERSION;
    __cxa_atexit = X_CXA_ATEXIT, |_| &EXIT_HANDLERS;
    on_exit = ON_EXIT, |_| &EXIT_HANDLERS;
    __cxa_at_quick_exit = X_CXA_AT_QUICK_EXIT, |_| &EXIT_HANDLERS;
    pthread_key_create = PTHREAD_KEY_CREATE, |_| &KEYS;
    pthread_key_delete = PTHREAD_KEY_DELETE, |_| &KEYS;
    tss_create = TSS_CREATE, |_| &KEYS;
    tss_delete = TSS_DELETE, |_| &KEYS;
    readdir = READDIR, |a| Directory(a[0]);
    readdir64 = READDIR64, |a| Directory(a[0]);
    readdir_r = READDIR_R, |a| Directory(a[0]);
    readdir64_r = READDIR64_R, |a| Directory(a[0]);
    rewinddir = REWINDDIR, |a| Directory(a[0]);
    seekdir = SEEKDIR, |a| Directory(a[0]);
    telldir = TELLDIR, |a| Directory(a[0]);
}

forward_doors! { f64,
    drand48 = DRAND48, |_| &RANDOM;
    erand48 = ERAND48, |_| &RANDOM;
}
