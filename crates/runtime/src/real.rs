//! The functions of the C library that the doors stand in front of.
//!
//! Looked up once, in the constructor, before any thread exists. `dlsym` may give an old version of a
//! symbol (the condition variables of 1997): the version is always named.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

unsafe extern "C" {
    fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    /// The calling thread's errno.
    pub fn __errno_location() -> *mut c_int;
    static __libc_single_threaded: AtomicU8;
}

const RTLD_NEXT: *mut c_void = -1isize as *mut c_void;

/// A function of libc, known by address.
pub struct Real {
    address: AtomicPtr<c_void>,
    name: &'static core::ffi::CStr,
    version: &'static core::ffi::CStr,
}

impl Real {
    const fn new(name: &'static core::ffi::CStr, version: &'static core::ffi::CStr) -> Real {
        Real { address: AtomicPtr::new(core::ptr::null_mut()), name, version }
    }
    fn find(&self) {
        // SAFETY: both strings end with NUL; the loader is in a state to answer when constructors run.
        let mut found = unsafe { dlvsym(RTLD_NEXT, self.name.as_ptr(), self.version.as_ptr()) };
        if found.is_null() {
            // SAFETY: as above.
            found = unsafe { dlsym(RTLD_NEXT, self.name.as_ptr()) };
        }
        self.address.store(found, Ordering::Release);
    }
    /// The address; null when the C library has no such function, or before the constructor has run.
    #[inline(always)]
    pub fn address(&self) -> *mut c_void {
        self.address.load(Ordering::Relaxed)
    }
    /// The address, looked up now if the constructor has not run yet (a library's own constructor may be
    /// earlier when the loader calls malloc).
    #[inline(always)]
    pub fn get(&self) -> *mut c_void {
        let address = self.address();
        if address.is_null() {
            self.find();
            return self.address();
        }
        address
    }
}

/// Distance of glibc's area for restartable sequences from the thread pointer; `None` where libc registers none.
pub fn rseq_offset() -> Option<i64> {
    let (offset, size) = (RSEQ_OFFSET.get().cast::<i64>(), RSEQ_SIZE.get().cast::<u32>());
    // SAFETY: constants of libc of these types, since 2.35.
    unsafe { (!offset.is_null() && !size.is_null() && *size > 0).then(|| *offset) }
}

/// Where glibc keeps a thread's number in its control block, as it tells debuggers (`libthread_db`): bits, how many, offset.
pub fn tid_offset() -> Option<u64> {
    const NAME: &core::ffi::CStr = c"_thread_db_pthread_tid";
    // SAFETY: the name ends with NUL.
    let told = unsafe { dlsym(RTLD_NEXT, NAME.as_ptr()).cast::<[u32; 3]>().as_ref() };
    told.filter(|told| told[0] == 32).map(|told| u64::from(told[2]))
}

/// The `malloc` that the program uses: the first in the order in which the loader looks, whatever its version.
/// An allocator that stands before libc's has unversioned symbols, and asked for by version it is passed over.
pub fn malloc() -> *mut c_void {
    // SAFETY: the name ends with NUL; a null handle means the program's own order.
    unsafe { dlsym(core::ptr::null_mut(), c"malloc".as_ptr()) }
}

/// The `free` that belongs to it.
pub fn free() -> *mut c_void {
    // SAFETY: as above.
    unsafe { dlsym(core::ptr::null_mut(), c"free".as_ptr()) }
}

/// Whether a sanitizer's runtime is in the process, as a library or in the program itself.
pub fn has_sanitizer() -> bool {
    let begins = [c"__asan_init", c"__tsan_init", c"__msan_init", c"__hwasan_init", c"__lsan_init"];
    // SAFETY: the names end with NUL; a null handle means the program's own order.
    begins.iter().any(|name| unsafe { !dlsym(core::ptr::null_mut(), name.as_ptr()).is_null() })
}

macro_rules! real_functions {
    ($($id:ident = $name:literal @ $version:literal;)*) => {
        $(
            #[doc = concat!("libc's `", stringify!($name), "`.")]
            pub static $id: Real = Real::new($name, $version);
        )*
        /// Looks all of them up.
        pub fn find_all() {
            for real in [$(&$id),*] { real.find(); }
        }
    };
}

real_functions! {
    FORK = c"fork" @ c"GLIBC_2.2.5";
    REGISTER_ATFORK = c"__register_atfork" @ c"GLIBC_2.3.2";
    DL_FIND_OBJECT = c"_dl_find_object" @ c"GLIBC_2.35";
    RSEQ_OFFSET = c"__rseq_offset" @ c"GLIBC_2.35";
    RSEQ_SIZE = c"__rseq_size" @ c"GLIBC_2.35";
    PTHREAD_CREATE = c"pthread_create" @ c"GLIBC_2.34";
    SYSCALL = c"syscall" @ c"GLIBC_2.2.5";
    PTHREAD_JOIN = c"pthread_join" @ c"GLIBC_2.34";
    PTHREAD_TRYJOIN_NP = c"pthread_tryjoin_np" @ c"GLIBC_2.34";
    PTHREAD_CLOCKJOIN_NP = c"pthread_clockjoin_np" @ c"GLIBC_2.34";
    PTHREAD_KILL = c"pthread_kill" @ c"GLIBC_2.34";
    PTHREAD_SIGQUEUE = c"pthread_sigqueue" @ c"GLIBC_2.34";
    PTHREAD_SETNAME_NP = c"pthread_setname_np" @ c"GLIBC_2.34";
    PTHREAD_GETNAME_NP = c"pthread_getname_np" @ c"GLIBC_2.34";
    PTHREAD_SETSCHEDPARAM = c"pthread_setschedparam" @ c"GLIBC_2.2.5";
    PTHREAD_GETSCHEDPARAM = c"pthread_getschedparam" @ c"GLIBC_2.2.5";
    PTHREAD_SETSCHEDPRIO = c"pthread_setschedprio" @ c"GLIBC_2.34";
    PTHREAD_SETAFFINITY_NP = c"pthread_setaffinity_np" @ c"GLIBC_2.34";
    PTHREAD_ATTR_GETAFFINITY_NP = c"pthread_attr_getaffinity_np" @ c"GLIBC_2.32";
    PTHREAD_ATTR_DESTROY = c"pthread_attr_destroy" @ c"GLIBC_2.2.5";
    PTHREAD_ATTR_SETSIGMASK_NP = c"pthread_attr_setsigmask_np" @ c"GLIBC_2.32";
    PTHREAD_DETACH = c"pthread_detach" @ c"GLIBC_2.34";
    PTHREAD_ATTR_GETSTACK = c"pthread_attr_getstack" @ c"GLIBC_2.34";
    PTHREAD_ATTR_SETSTACK = c"pthread_attr_setstack" @ c"GLIBC_2.34";
    PTHREAD_ATTR_GETDETACHSTATE = c"pthread_attr_getdetachstate" @ c"GLIBC_2.2.5";
    PTHREAD_GETATTR_DEFAULT = c"pthread_getattr_default_np" @ c"GLIBC_2.18";
    PTHREAD_SETCANCELTYPE = c"pthread_setcanceltype" @ c"GLIBC_2.2.5";
    PTHREAD_SETCANCELSTATE = c"pthread_setcancelstate" @ c"GLIBC_2.2.5";
    PTHREAD_GETATTR_NP = c"pthread_getattr_np" @ c"GLIBC_2.32";
    PTHREAD_ATTR_GETSIGMASK_NP = c"pthread_attr_getsigmask_np" @ c"GLIBC_2.32";
    PTHREAD_ATTR_GETGUARDSIZE = c"pthread_attr_getguardsize" @ c"GLIBC_2.34";
    PTHREAD_ATTR_SETGUARDSIZE = c"pthread_attr_setguardsize" @ c"GLIBC_2.34";
    PTHREAD_CANCEL = c"pthread_cancel" @ c"GLIBC_2.34";
    PTHREAD_EXIT = c"pthread_exit" @ c"GLIBC_2.2.5";
    DLADDR = c"dladdr" @ c"GLIBC_2.34";
    PTHREAD_TESTCANCEL = c"pthread_testcancel" @ c"GLIBC_2.34";
    PTHREAD_ATTR_SETDETACHSTATE = c"pthread_attr_setdetachstate" @ c"GLIBC_2.2.5";
    TIMER_CREATE = c"timer_create" @ c"GLIBC_2.34";
    TIMER_DELETE = c"timer_delete" @ c"GLIBC_2.34";
    THRD_CREATE = c"thrd_create" @ c"GLIBC_2.34";
    FCLOSE = c"fclose" @ c"GLIBC_2.2.5";
    IO_FTELL = c"_IO_ftell" @ c"GLIBC_2.2.5";
    IO_GETC = c"_IO_getc" @ c"GLIBC_2.2.5";
    IO_PUTC = c"_IO_putc" @ c"GLIBC_2.2.5";
    IO_UNGETC = c"_IO_ungetc" @ c"GLIBC_2.2.5";
    X_CXA_AT_QUICK_EXIT = c"__cxa_at_quick_exit" @ c"GLIBC_2.10";
    X_CXA_ATEXIT = c"__cxa_atexit" @ c"GLIBC_2.2.5";
    X_FGETS_CHK = c"__fgets_chk" @ c"GLIBC_2.4";
    X_FGETWS_CHK = c"__fgetws_chk" @ c"GLIBC_2.4";
    X_FREAD_CHK = c"__fread_chk" @ c"GLIBC_2.7";
    X_GETDELIM = c"__getdelim" @ c"GLIBC_2.2.5";
    X_GETS_CHK = c"__gets_chk" @ c"GLIBC_2.3.4";
    X_ISOC23_VFSCANF = c"__isoc23_vfscanf" @ c"GLIBC_2.38";
    X_ISOC23_VFWSCANF = c"__isoc23_vfwscanf" @ c"GLIBC_2.38";
    X_ISOC23_VSCANF = c"__isoc23_vscanf" @ c"GLIBC_2.38";
    X_ISOC23_VWSCANF = c"__isoc23_vwscanf" @ c"GLIBC_2.38";
    X_ISOC99_VFSCANF = c"__isoc99_vfscanf" @ c"GLIBC_2.7";
    X_ISOC99_VFWSCANF = c"__isoc99_vfwscanf" @ c"GLIBC_2.7";
    X_ISOC99_VSCANF = c"__isoc99_vscanf" @ c"GLIBC_2.7";
    X_ISOC99_VWSCANF = c"__isoc99_vwscanf" @ c"GLIBC_2.7";
    X_VFPRINTF_CHK = c"__vfprintf_chk" @ c"GLIBC_2.3.4";
    X_VFWPRINTF_CHK = c"__vfwprintf_chk" @ c"GLIBC_2.4";
    X_VPRINTF_CHK = c"__vprintf_chk" @ c"GLIBC_2.3.4";
    X_VSYSLOG_CHK = c"__vsyslog_chk" @ c"GLIBC_2.4";
    X_VWPRINTF_CHK = c"__vwprintf_chk" @ c"GLIBC_2.4";
    BIND_TEXTDOMAIN_CODESET = c"bind_textdomain_codeset" @ c"GLIBC_2.2.5";
    BINDTEXTDOMAIN = c"bindtextdomain" @ c"GLIBC_2.2.5";
    CLEARENV = c"clearenv" @ c"GLIBC_2.2.5";
    CLEARERR = c"clearerr" @ c"GLIBC_2.2.5";
    CLOSELOG = c"closelog" @ c"GLIBC_2.2.5";
    CTIME = c"ctime" @ c"GLIBC_2.2.5";
    CTIME_R = c"ctime_r" @ c"GLIBC_2.2.5";
    DCGETTEXT = c"dcgettext" @ c"GLIBC_2.2.5";
    DCNGETTEXT = c"dcngettext" @ c"GLIBC_2.2.5";
    DGETTEXT = c"dgettext" @ c"GLIBC_2.2.5";
    DNGETTEXT = c"dngettext" @ c"GLIBC_2.2.5";
    DRAND48 = c"drand48" @ c"GLIBC_2.2.5";
    DUPLOCALE = c"duplocale" @ c"GLIBC_2.3";
    ENDGRENT = c"endgrent" @ c"GLIBC_2.2.5";
    ENDPWENT = c"endpwent" @ c"GLIBC_2.2.5";
    ERAND48 = c"erand48" @ c"GLIBC_2.2.5";
    FFLUSH = c"fflush" @ c"GLIBC_2.2.5";
    FGETC = c"fgetc" @ c"GLIBC_2.2.5";
    FGETPOS = c"fgetpos" @ c"GLIBC_2.2.5";
    FGETPOS64 = c"fgetpos64" @ c"GLIBC_2.2.5";
    FGETS = c"fgets" @ c"GLIBC_2.2.5";
    FGETWC = c"fgetwc" @ c"GLIBC_2.2.5";
    FGETWS = c"fgetws" @ c"GLIBC_2.2.5";
    FLOCKFILE = c"flockfile" @ c"GLIBC_2.2.5";
    FPUTC = c"fputc" @ c"GLIBC_2.2.5";
    FPUTS = c"fputs" @ c"GLIBC_2.2.5";
    FPUTWC = c"fputwc" @ c"GLIBC_2.2.5";
    FPUTWS = c"fputws" @ c"GLIBC_2.2.5";
    FREAD = c"fread" @ c"GLIBC_2.2.5";
    FREELOCALE = c"freelocale" @ c"GLIBC_2.3";
    FREOPEN = c"freopen" @ c"GLIBC_2.2.5";
    FREOPEN64 = c"freopen64" @ c"GLIBC_2.2.5";
    FSEEK = c"fseek" @ c"GLIBC_2.2.5";
    FSEEKO = c"fseeko" @ c"GLIBC_2.2.5";
    FSEEKO64 = c"fseeko64" @ c"GLIBC_2.2.5";
    FSETPOS = c"fsetpos" @ c"GLIBC_2.2.5";
    FSETPOS64 = c"fsetpos64" @ c"GLIBC_2.2.5";
    FTELL = c"ftell" @ c"GLIBC_2.2.5";
    FTELLO = c"ftello" @ c"GLIBC_2.2.5";
    FTELLO64 = c"ftello64" @ c"GLIBC_2.2.5";
    FTRYLOCKFILE = c"ftrylockfile" @ c"GLIBC_2.2.5";
    FUNLOCKFILE = c"funlockfile" @ c"GLIBC_2.2.5";
    FWRITE = c"fwrite" @ c"GLIBC_2.2.5";
    GETADDRINFO = c"getaddrinfo" @ c"GLIBC_2.2.5";
    GETC = c"getc" @ c"GLIBC_2.2.5";
    GETCHAR = c"getchar" @ c"GLIBC_2.2.5";
    GETDELIM = c"getdelim" @ c"GLIBC_2.2.5";
    GETENV = c"getenv" @ c"GLIBC_2.2.5";
    GETGRENT = c"getgrent" @ c"GLIBC_2.2.5";
    GETGRENT_R = c"getgrent_r" @ c"GLIBC_2.2.5";
    GETGRGID = c"getgrgid" @ c"GLIBC_2.2.5";
    GETGRGID_R = c"getgrgid_r" @ c"GLIBC_2.2.5";
    GETGRNAM = c"getgrnam" @ c"GLIBC_2.2.5";
    GETGRNAM_R = c"getgrnam_r" @ c"GLIBC_2.2.5";
    GETGROUPLIST = c"getgrouplist" @ c"GLIBC_2.2.5";
    GETHOSTBYADDR = c"gethostbyaddr" @ c"GLIBC_2.2.5";
    GETHOSTBYADDR_R = c"gethostbyaddr_r" @ c"GLIBC_2.2.5";
    GETHOSTBYNAME = c"gethostbyname" @ c"GLIBC_2.2.5";
    GETHOSTBYNAME2 = c"gethostbyname2" @ c"GLIBC_2.2.5";
    GETHOSTBYNAME2_R = c"gethostbyname2_r" @ c"GLIBC_2.2.5";
    GETHOSTBYNAME_R = c"gethostbyname_r" @ c"GLIBC_2.2.5";
    GETLINE = c"getline" @ c"GLIBC_2.2.5";
    GETNAMEINFO = c"getnameinfo" @ c"GLIBC_2.2.5";
    GETNETBYADDR = c"getnetbyaddr" @ c"GLIBC_2.2.5";
    GETNETBYNAME = c"getnetbyname" @ c"GLIBC_2.2.5";
    GETNETBYNAME_R = c"getnetbyname_r" @ c"GLIBC_2.2.5";
    GETPROTOBYNAME = c"getprotobyname" @ c"GLIBC_2.2.5";
    GETPROTOBYNAME_R = c"getprotobyname_r" @ c"GLIBC_2.2.5";
    GETPROTOBYNUMBER = c"getprotobynumber" @ c"GLIBC_2.2.5";
    GETPROTOBYNUMBER_R = c"getprotobynumber_r" @ c"GLIBC_2.2.5";
    GETPWENT = c"getpwent" @ c"GLIBC_2.2.5";
    GETPWENT_R = c"getpwent_r" @ c"GLIBC_2.2.5";
    GETPWNAM = c"getpwnam" @ c"GLIBC_2.2.5";
    GETPWNAM_R = c"getpwnam_r" @ c"GLIBC_2.2.5";
    GETPWUID = c"getpwuid" @ c"GLIBC_2.2.5";
    GETPWUID_R = c"getpwuid_r" @ c"GLIBC_2.2.5";
    GETS = c"gets" @ c"GLIBC_2.2.5";
    GETSERVBYNAME = c"getservbyname" @ c"GLIBC_2.2.5";
    GETSERVBYNAME_R = c"getservbyname_r" @ c"GLIBC_2.2.5";
    GETSERVBYPORT = c"getservbyport" @ c"GLIBC_2.2.5";
    GETSERVBYPORT_R = c"getservbyport_r" @ c"GLIBC_2.2.5";
    GETSPNAM = c"getspnam" @ c"GLIBC_2.2.5";
    GETSPNAM_R = c"getspnam_r" @ c"GLIBC_2.2.5";
    GETTEXT = c"gettext" @ c"GLIBC_2.2.5";
    GETW = c"getw" @ c"GLIBC_2.2.5";
    GETWC = c"getwc" @ c"GLIBC_2.2.5";
    GETWCHAR = c"getwchar" @ c"GLIBC_2.2.5";
    GMTIME = c"gmtime" @ c"GLIBC_2.2.5";
    GMTIME_R = c"gmtime_r" @ c"GLIBC_2.2.5";
    ICONV_CLOSE = c"iconv_close" @ c"GLIBC_2.2.5";
    ICONV_OPEN = c"iconv_open" @ c"GLIBC_2.2.5";
    INITGROUPS = c"initgroups" @ c"GLIBC_2.2.5";
    INITSTATE = c"initstate" @ c"GLIBC_2.2.5";
    JRAND48 = c"jrand48" @ c"GLIBC_2.2.5";
    LCONG48 = c"lcong48" @ c"GLIBC_2.2.5";
    LOCALECONV = c"localeconv" @ c"GLIBC_2.2.5";
    LOCALTIME = c"localtime" @ c"GLIBC_2.2.5";
    LOCALTIME_R = c"localtime_r" @ c"GLIBC_2.2.5";
    LRAND48 = c"lrand48" @ c"GLIBC_2.2.5";
    MKTIME = c"mktime" @ c"GLIBC_2.2.5";
    MRAND48 = c"mrand48" @ c"GLIBC_2.2.5";
    NEWLOCALE = c"newlocale" @ c"GLIBC_2.3";
    NGETTEXT = c"ngettext" @ c"GLIBC_2.2.5";
    NRAND48 = c"nrand48" @ c"GLIBC_2.2.5";
    ON_EXIT = c"on_exit" @ c"GLIBC_2.2.5";
    OPENLOG = c"openlog" @ c"GLIBC_2.2.5";
    PERROR = c"perror" @ c"GLIBC_2.2.5";
    PTHREAD_KEY_CREATE = c"pthread_key_create" @ c"GLIBC_2.34";
    PTHREAD_KEY_DELETE = c"pthread_key_delete" @ c"GLIBC_2.34";
    PUTC = c"putc" @ c"GLIBC_2.2.5";
    PUTCHAR = c"putchar" @ c"GLIBC_2.2.5";
    PUTENV = c"putenv" @ c"GLIBC_2.2.5";
    PUTS = c"puts" @ c"GLIBC_2.2.5";
    PUTW = c"putw" @ c"GLIBC_2.2.5";
    PUTWC = c"putwc" @ c"GLIBC_2.2.5";
    PUTWCHAR = c"putwchar" @ c"GLIBC_2.2.5";
    RAND = c"rand" @ c"GLIBC_2.2.5";
    RANDOM = c"random" @ c"GLIBC_2.2.5";
    READDIR = c"readdir" @ c"GLIBC_2.2.5";
    READDIR64 = c"readdir64" @ c"GLIBC_2.2.5";
    READDIR64_R = c"readdir64_r" @ c"GLIBC_2.2.5";
    READDIR_R = c"readdir_r" @ c"GLIBC_2.2.5";
    REWIND = c"rewind" @ c"GLIBC_2.2.5";
    REWINDDIR = c"rewinddir" @ c"GLIBC_2.2.5";
    SECURE_GETENV = c"secure_getenv" @ c"GLIBC_2.17";
    SEED48 = c"seed48" @ c"GLIBC_2.2.5";
    SEEKDIR = c"seekdir" @ c"GLIBC_2.2.5";
    SETBUF = c"setbuf" @ c"GLIBC_2.2.5";
    SETBUFFER = c"setbuffer" @ c"GLIBC_2.2.5";
    SETENV = c"setenv" @ c"GLIBC_2.2.5";
    SETGRENT = c"setgrent" @ c"GLIBC_2.2.5";
    SETLINEBUF = c"setlinebuf" @ c"GLIBC_2.2.5";
    SETLOCALE = c"setlocale" @ c"GLIBC_2.2.5";
    SETLOGMASK = c"setlogmask" @ c"GLIBC_2.2.5";
    SETPWENT = c"setpwent" @ c"GLIBC_2.2.5";
    SETSTATE = c"setstate" @ c"GLIBC_2.2.5";
    SETVBUF = c"setvbuf" @ c"GLIBC_2.2.5";
    SRAND = c"srand" @ c"GLIBC_2.2.5";
    SRAND48 = c"srand48" @ c"GLIBC_2.2.5";
    SRANDOM = c"srandom" @ c"GLIBC_2.2.5";
    STRFTIME = c"strftime" @ c"GLIBC_2.2.5";
    STRFTIME_L = c"strftime_l" @ c"GLIBC_2.3";
    STRPTIME = c"strptime" @ c"GLIBC_2.2.5";
    TELLDIR = c"telldir" @ c"GLIBC_2.2.5";
    TEXTDOMAIN = c"textdomain" @ c"GLIBC_2.2.5";
    TIMEGM = c"timegm" @ c"GLIBC_2.2.5";
    TIMELOCAL = c"timelocal" @ c"GLIBC_2.2.5";
    TSS_CREATE = c"tss_create" @ c"GLIBC_2.34";
    TSS_DELETE = c"tss_delete" @ c"GLIBC_2.34";
    TZSET = c"tzset" @ c"GLIBC_2.2.5";
    UNGETC = c"ungetc" @ c"GLIBC_2.2.5";
    UNGETWC = c"ungetwc" @ c"GLIBC_2.2.5";
    UNSETENV = c"unsetenv" @ c"GLIBC_2.2.5";
    VFPRINTF = c"vfprintf" @ c"GLIBC_2.2.5";
    VFSCANF = c"vfscanf" @ c"GLIBC_2.2.5";
    VFWPRINTF = c"vfwprintf" @ c"GLIBC_2.2.5";
    VFWSCANF = c"vfwscanf" @ c"GLIBC_2.2.5";
    VPRINTF = c"vprintf" @ c"GLIBC_2.2.5";
    VSCANF = c"vscanf" @ c"GLIBC_2.2.5";
    VSYSLOG = c"vsyslog" @ c"GLIBC_2.2.5";
    VWPRINTF = c"vwprintf" @ c"GLIBC_2.2.5";
    VWSCANF = c"vwscanf" @ c"GLIBC_2.2.5";
    WCSFTIME = c"wcsftime" @ c"GLIBC_2.2.5";
    WCSFTIME_L = c"wcsftime_l" @ c"GLIBC_2.3";
}

/// glibc has never made a second thread in this process: an atomic instruction, three times the price of a
/// plain one, is not needed for a lock of this process alone.
#[inline(always)]
pub fn single_threaded() -> bool {
    // SAFETY: a variable of libc since 2.32; written before a second thread exists.
    unsafe { __libc_single_threaded.load(Ordering::Relaxed) != 0 }
}
