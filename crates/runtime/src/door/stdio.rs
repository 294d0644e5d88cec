//! Streams: every libc function that locks one is a door on that stream.
//!
//! The stream's own lock is taken first, libc's and recursive, then the ticket: what the function does to the
//! buffer, and the write or read that follows from it, happen in the same order in every copy. Functions that
//! touch libc's list of streams (`fopen`, `fclose`, `popen`) have no door: opening a FIFO blocks until
//! another thread opens the other end. For the same reason `fflush(NULL)` is ordered among its like only.
//!
//! The `_unlocked` functions are the business of whoever holds `flockfile`, which is a door.

use core::arch::naked_asm;
use core::ffi::{c_int, c_void};

use super::forward::Domain;
use super::sync::{self, Caller, Outcome, errno, op};
use crate::thread::Mode;
use crate::turns::doors::Scope;
use crate::{forward_doors, real};

unsafe extern "C" {
    // By symbol, not looked up: an executable may have a copy of its own, and only the loader knows.
    static stdin: *mut c_void;
    static stdout: *mut c_void;
    static stderr: *mut c_void;
}

/// A stream by its address; null stands for all of them.
struct Stream(u64);

/// What one of the three standard variables holds now; the guest may assign to them.
fn standard(variable: *const *mut c_void) -> Stream {
    // SAFETY: one of libc's variables above.
    Stream(unsafe { variable.read() } as u64)
}

impl Stream {
    fn lock(&self, caller: Caller) {
        let mark = |takes| {
            if let Some(thread) = caller.thread() {
                thread.takes_libc_lock = takes;
            }
        };
        mark(true);
        self.ask(&real::FLOCKFILE);
        mark(false);
    }

    fn ask(&self, lock: &real::Real) -> c_int {
        if self.0 == 0 {
            return 0;
        }
        let lock = lock.get();
        // SAFETY: libc's three lock functions have this type; the stream is the guest's.
        unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn(u64) -> c_int>(lock)(self.0) }
    }

    /// The outcome of an attempt, unless this became a standby's thread inside libc's function: then the log has it, and
    /// what has been taken out of turn is given back.
    fn unless_follows(&self, caller: Caller, outcome: Outcome) -> Outcome {
        if caller.mode() != Mode::Replay {
            return outcome;
        }
        if outcome.acquired {
            self.ask(&real::FUNLOCKFILE);
        }
        Outcome::FOLLOW
    }

    fn try_lock(&self) -> Outcome {
        if self.ask(&real::FTRYLOCKFILE) == 0 { Outcome::OK } else { Outcome::failed(errno::EBUSY) }
    }
}

impl Domain for Stream {
    fn enter(&self, _caller: Caller) {
        let attempt = |caller| {
            self.lock(caller);
            self.unless_follows(caller, Outcome::OK)
        };
        sync::acquire(op::STREAM, self.0 as usize, attempt, |caller| self.lock(caller));
    }
    fn leave(&self) {
        self.ask(&real::FUNLOCKFILE);
    }
}

/// `flockfile`: a section of the guest's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flockfile(stream: u64) {
    let _door = Scope::begin(stream as usize);
    Stream(stream).enter(Caller::get());
}

/// `ftrylockfile`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftrylockfile(stream: u64) -> c_int {
    let _door = Scope::begin(stream as usize);
    let stream = Stream(stream);
    let attempt = |caller| stream.unless_follows(caller, stream.try_lock());
    let failed = sync::acquire(op::STREAM, stream.0 as usize, attempt, |caller| stream.lock(caller));
    if failed == 0 { 0 } else { -1 }
}

/// `funlockfile`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn funlockfile(stream: u64) {
    let _door = Scope::begin(stream as usize);
    Stream(stream).leave();
}

forward_doors! { u64,
    vfprintf = VFPRINTF, |a| Stream(a[0]);
    vfscanf = VFSCANF, |a| Stream(a[0]);
    __isoc99_vfscanf = X_ISOC99_VFSCANF, |a| Stream(a[0]);
    __isoc23_vfscanf = X_ISOC23_VFSCANF, |a| Stream(a[0]);
    vfwprintf = VFWPRINTF, |a| Stream(a[0]);
    vfwscanf = VFWSCANF, |a| Stream(a[0]);
    __isoc99_vfwscanf = X_ISOC99_VFWSCANF, |a| Stream(a[0]);
    __isoc23_vfwscanf = X_ISOC23_VFWSCANF, |a| Stream(a[0]);
    __vfprintf_chk = X_VFPRINTF_CHK, |a| Stream(a[0]);
    __vfwprintf_chk = X_VFWPRINTF_CHK, |a| Stream(a[0]);
    fgetc = FGETC, |a| Stream(a[0]);
    getc = GETC, |a| Stream(a[0]);
    _IO_getc = IO_GETC, |a| Stream(a[0]);
    fgetwc = FGETWC, |a| Stream(a[0]);
    getwc = GETWC, |a| Stream(a[0]);
    fflush = FFLUSH, |a| Stream(a[0]);
    fseek = FSEEK, |a| Stream(a[0]);
    fseeko = FSEEKO, |a| Stream(a[0]);
    fseeko64 = FSEEKO64, |a| Stream(a[0]);
    ftell = FTELL, |a| Stream(a[0]);
    ftello = FTELLO, |a| Stream(a[0]);
    ftello64 = FTELLO64, |a| Stream(a[0]);
    rewind = REWIND, |a| Stream(a[0]);
    fgetpos = FGETPOS, |a| Stream(a[0]);
    fgetpos64 = FGETPOS64, |a| Stream(a[0]);
    fsetpos = FSETPOS, |a| Stream(a[0]);
    fsetpos64 = FSETPOS64, |a| Stream(a[0]);
    setvbuf = SETVBUF, |a| Stream(a[0]);
    setbuf = SETBUF, |a| Stream(a[0]);
    setbuffer = SETBUFFER, |a| Stream(a[0]);
    setlinebuf = SETLINEBUF, |a| Stream(a[0]);
    clearerr = CLEARERR, |a| Stream(a[0]);
    getw = GETW, |a| Stream(a[0]);
    _IO_ftell = IO_FTELL, |a| Stream(a[0]);
    fputs = FPUTS, |a| Stream(a[1]);
    fputc = FPUTC, |a| Stream(a[1]);
    putc = PUTC, |a| Stream(a[1]);
    _IO_putc = IO_PUTC, |a| Stream(a[1]);
    ungetc = UNGETC, |a| Stream(a[1]);
    fputwc = FPUTWC, |a| Stream(a[1]);
    putwc = PUTWC, |a| Stream(a[1]);
    fputws = FPUTWS, |a| Stream(a[1]);
    ungetwc = UNGETWC, |a| Stream(a[1]);
    _IO_ungetc = IO_UNGETC, |a| Stream(a[1]);
    putw = PUTW, |a| Stream(a[1]);
    fgets = FGETS, |a| Stream(a[2]);
    fgetws = FGETWS, |a| Stream(a[2]);
    freopen = FREOPEN, |a| Stream(a[2]);
    freopen64 = FREOPEN64, |a| Stream(a[2]);
    getline = GETLINE, |a| Stream(a[2]);
    fwrite = FWRITE, |a| Stream(a[3]);
    fread = FREAD, |a| Stream(a[3]);
    getdelim = GETDELIM, |a| Stream(a[3]);
    __getdelim = X_GETDELIM, |a| Stream(a[3]);
    __fgets_chk = X_FGETS_CHK, |a| Stream(a[3]);
    __fgetws_chk = X_FGETWS_CHK, |a| Stream(a[3]);
    __fread_chk = X_FREAD_CHK, |a| Stream(a[4]);
    puts = PUTS, |_| standard(&raw const stdout);
    putchar = PUTCHAR, |_| standard(&raw const stdout);
    vprintf = VPRINTF, |_| standard(&raw const stdout);
    __vprintf_chk = X_VPRINTF_CHK, |_| standard(&raw const stdout);
    putwchar = PUTWCHAR, |_| standard(&raw const stdout);
    vwprintf = VWPRINTF, |_| standard(&raw const stdout);
    __vwprintf_chk = X_VWPRINTF_CHK, |_| standard(&raw const stdout);
    gets = GETS, |_| standard(&raw const stdin);
    __gets_chk = X_GETS_CHK, |_| standard(&raw const stdin);
    getchar = GETCHAR, |_| standard(&raw const stdin);
    getwchar = GETWCHAR, |_| standard(&raw const stdin);
    vscanf = VSCANF, |_| standard(&raw const stdin);
    __isoc99_vscanf = X_ISOC99_VSCANF, |_| standard(&raw const stdin);
    __isoc23_vscanf = X_ISOC23_VSCANF, |_| standard(&raw const stdin);
    vwscanf = VWSCANF, |_| standard(&raw const stdin);
    __isoc99_vwscanf = X_ISOC99_VWSCANF, |_| standard(&raw const stdin);
    __isoc23_vwscanf = X_ISOC23_VWSCANF, |_| standard(&raw const stdin);
    perror = PERROR, |_| standard(&raw const stderr);
}

macro_rules! variadic {
    ($($name:ident = $body:ident;)*) => {
        unsafe extern "C" { $(fn $body();)* }
        $(
            #[doc = concat!("`", stringify!($name), "`: on to its body in C, with every argument register as it is.")]
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name() {
                naked_asm!("jmp {}", sym $body)
            }
        )*
    };
}
variadic! {
    printf = us_printf;
    fprintf = us_fprintf;
    wprintf = us_wprintf;
    fwprintf = us_fwprintf;
    __printf_chk = us_printf_chk;
    __fprintf_chk = us_fprintf_chk;
    __wprintf_chk = us_wprintf_chk;
    __fwprintf_chk = us_fwprintf_chk;
    scanf = us_scanf;
    fscanf = us_fscanf;
    wscanf = us_wscanf;
    fwscanf = us_fwscanf;
    __isoc99_scanf = us_isoc99_scanf;
    __isoc99_fscanf = us_isoc99_fscanf;
    __isoc99_wscanf = us_isoc99_wscanf;
    __isoc99_fwscanf = us_isoc99_fwscanf;
    __isoc23_scanf = us_isoc23_scanf;
    __isoc23_fscanf = us_isoc23_fscanf;
    __isoc23_wscanf = us_isoc23_wscanf;
    __isoc23_fwscanf = us_isoc23_fwscanf;
    syslog = us_syslog;
    __syslog_chk = us_syslog_chk;
}

old_names! {
    _IO_flockfile = flockfile;
    _IO_ftrylockfile = ftrylockfile;
    _IO_funlockfile = funlockfile;
    _IO_puts = puts;
    _IO_fputs = fputs;
    _IO_fgets = fgets;
    _IO_fread = fread;
    _IO_fwrite = fwrite;
    _IO_fflush = fflush;
    _IO_printf = printf;
    _IO_fprintf = fprintf;
    _IO_vfprintf = vfprintf;
    _IO_setvbuf = setvbuf;
    _IO_setbuffer = setbuffer;
    _IO_gets = gets;
}
