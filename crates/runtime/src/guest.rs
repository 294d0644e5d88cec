//! Touching the guest's memory at addresses that it gave us.
//!
//! A guest may hand the kernel a bad pointer on purpose (unwinders probe memory that way) and expects
//! EFAULT. A plain copy here would kill it instead. The two routines below are known to the SIGSEGV and
//! SIGBUS handlers: a fault inside them continues at their failure exit.
//!
//! # Safety
//! Addresses come from the guest's own call and are only used for what the kernel would do with them.

use core::arch::naked_asm;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

use linux_raw_sys::{general, net};

use crate::raw::{self, Timespec, err};
use crate::siginfo::Info;

/// Whether this processor has the CRC32 instruction. Set by the constructor.
pub static HAS_CRC: AtomicBool = AtomicBool::new(false);

/// Up to so many bytes are copied by loads and stores: `rep movsb` takes 10 ns and more before its first byte.
const FEW_BYTES: usize = 256;

/// From so many bytes on a copy past the caches is the cheaper one.
pub const PAST_MIN: usize = 8 << 10;

const PAGE: u64 = 4096;

/// Whether an address in the first page is one where no memory is: a call's argument that is not given, mostly. Looked at
/// without touching it: a fault is two signals' worth of time, and a debugger stops the program at it.
#[cold]
#[inline(never)]
extern "C" fn is_nowhere_low() -> bool {
    let mut resident = 0u8;
    // SAFETY: the kernel writes one byte.
    unsafe { raw::call3(general::__NR_mincore.into(), 0, PAGE, &raw mut resident as u64) == err::ENOMEM }
}

/// Instructions that call [`is_nowhere_low`] as `{low}`: al is its answer, and rdi, rsi and rdx are kept.
macro_rules! ask_low {
    () => {
        "push rdi
        push rsi
        push rdx
        call {low}
        pop rdx
        pop rsi
        pop rdi"
    };
}

/// A copy that reports a fault: returns the bytes that were not copied. A fault among the loads and stores goes on in
/// `rep movsb`, which copies what there is and meets it again.
#[unsafe(naked)]
unsafe extern "C" fn copy_or_fault(_to: *mut u8, _from: *const u8, _bytes: usize) -> usize {
    naked_asm!(
        "mov rcx, rdx",
        "cmp rsi, {page}",
        "jb 9f",
        "cmp rdi, {page}",
        "jb 9f",
        "22: cmp rdx, {few}",
        "ja us_copy_start",
        ".globl us_few_start",
        ".hidden us_few_start",
        "us_few_start:",
        "11: cmp rcx, 32",
        "jb 3f",
        "2: movups xmm0, xmmword ptr [rsi]",
        "movups xmm1, xmmword ptr [rsi + 16]",
        "movups xmmword ptr [rdi], xmm0",
        "movups xmmword ptr [rdi + 16], xmm1",
        "add rsi, 32",
        "add rdi, 32",
        "sub rcx, 32",
        "cmp rcx, 32",
        "jae 2b",
        // The rest from both its ends, which may overlap: what a fault interrupts is copied again.
        "3: cmp ecx, 16",
        "jae 5f",
        "cmp ecx, 8",
        "jae 4f",
        "cmp ecx, 4",
        "jae 6f",
        "test ecx, ecx",
        "je 8f",
        "7: movzx eax, byte ptr [rsi]",
        "mov byte ptr [rdi], al",
        "inc rsi",
        "inc rdi",
        "dec rcx",
        "jne 7b",
        "8: xor eax, eax",
        "ret",
        "4: mov rax, qword ptr [rsi]",
        "mov rdx, qword ptr [rsi + rcx - 8]",
        "mov qword ptr [rdi], rax",
        "mov qword ptr [rdi + rcx - 8], rdx",
        "xor eax, eax",
        "ret",
        "5: movups xmm0, xmmword ptr [rsi]",
        "movups xmm1, xmmword ptr [rsi + rcx - 16]",
        "movups xmmword ptr [rdi], xmm0",
        "movups xmmword ptr [rdi + rcx - 16], xmm1",
        "xor eax, eax",
        "ret",
        "6: mov eax, dword ptr [rsi]",
        "mov edx, dword ptr [rsi + rcx - 4]",
        "mov dword ptr [rdi], eax",
        "mov dword ptr [rdi + rcx - 4], edx",
        "xor eax, eax",
        "ret",
        // The other way in, for what this processor does not read again: past its caches.
        ".globl us_copy_past",
        ".hidden us_copy_past",
        "us_copy_past:",
        "mov rcx, rdx",
        "cmp rsi, {page}",
        "jb 9f",
        "12: cmp rcx, 64",
        "jb 13f",
        "movups xmm0, xmmword ptr [rsi]",
        "movups xmm1, xmmword ptr [rsi + 16]",
        "movups xmm2, xmmword ptr [rsi + 32]",
        "movups xmm3, xmmword ptr [rsi + 48]",
        "movntps xmmword ptr [rdi], xmm0",
        "movntps xmmword ptr [rdi + 16], xmm1",
        "movntps xmmword ptr [rdi + 32], xmm2",
        "movntps xmmword ptr [rdi + 48], xmm3",
        "add rsi, 64",
        "add rdi, 64",
        "sub rcx, 64",
        "jmp 12b",
        // Such stores are not ordered with the one that publishes the event.
        "13: sfence",
        "jmp 11b",
        ".globl us_copy_start",
        ".hidden us_copy_start",
        "us_copy_start:",
        "rep movsb",
        ".globl us_copy_end",
        ".hidden us_copy_end",
        "us_copy_end:",
        "mov rax, rcx",
        "ret",
        // By a call, so that who copies keeps its registers.
        "9: test rdx, rdx",
        "je 8b",
        ask_low!(),
        "mov rcx, rdx",
        "test al, al",
        "je 22b",
        "mov rax, rdx",
        "ret",
        few = const FEW_BYTES,
        page = const PAGE,
        low = sym is_nowhere_low,
    )
}

/// Touches one byte for writing without changing it, also if others change it at the same time. Not zero if it is not writable.
#[unsafe(naked)]
unsafe extern "C" fn touch_or_fault(_at: *mut u8) -> u64 {
    naked_asm!(
        "mov eax, 1",
        ".globl us_touch_start",
        ".hidden us_touch_start",
        "us_touch_start:",
        "lock or byte ptr [rdi], 0",
        "xor eax, eax",
        ".globl us_touch_end",
        ".hidden us_touch_end",
        "us_touch_end:",
        "ret",
    )
}

/// CRC32C of `bytes` bytes, three streams at a time so that the instruction's latency is hidden; the
/// three are folded in the end. A fault leaves the digest of what came before it.
#[unsafe(naked)]
unsafe extern "C" fn crc_or_fault(_seed: u64, _from: *const u8, _bytes: usize) -> u64 {
    naked_asm!(
        "mov rax, rdi",
        "xor r8d, r8d",
        "xor r9d, r9d",
        "cmp rsi, {page}",
        "jb 9f",
        ".globl us_crc_start",
        ".hidden us_crc_start",
        "us_crc_start:",
        "2: cmp rdx, 24",
        "jb 3f",
        "crc32 rax, qword ptr [rsi]",
        "crc32 r8, qword ptr [rsi + 8]",
        "crc32 r9, qword ptr [rsi + 16]",
        "add rsi, 24",
        "sub rdx, 24",
        "jmp 2b",
        "3: cmp rdx, 8",
        "jb 4f",
        "crc32 rax, qword ptr [rsi]",
        "add rsi, 8",
        "sub rdx, 8",
        "jmp 3b",
        "4: test rdx, rdx",
        "je 5f",
        "crc32 eax, byte ptr [rsi]",
        "inc rsi",
        "dec rdx",
        "jmp 4b",
        ".globl us_crc_end",
        ".hidden us_crc_end",
        "us_crc_end:",
        "5: crc32 rax, r8",
        "crc32 rax, r9",
        "ret",
        // As if the first byte had met a fault.
        "9:",
        ask_low!(),
        "xor r8d, r8d",
        "xor r9d, r9d",
        "test al, al",
        "mov rax, rdi",
        "je 2b",
        "jmp 5b",
        page = const PAGE,
        low = sym is_nowhere_low,
    )
}

unsafe extern "C" {
    /// As [`copy_or_fault`], to an address that is a multiple of 16.
    fn us_copy_past(to: *mut u8, from: *const u8, bytes: usize) -> usize;
    static us_few_start: u8;
    static us_copy_start: u8;
    static us_copy_end: u8;
    static us_crc_start: u8;
    static us_crc_end: u8;
    static us_touch_start: u8;
    static us_touch_end: u8;
}

/// If `ip` lies in a routine that may fault on the guest's behalf: where to go on.
pub fn fault_exit(ip: u64) -> Option<u64> {
    let few = (&raw const us_few_start as u64, &raw const us_copy_start as u64);
    let copy = (&raw const us_copy_start as u64, &raw const us_copy_end as u64);
    let crc = (&raw const us_crc_start as u64, &raw const us_crc_end as u64);
    let touch = (&raw const us_touch_start as u64, &raw const us_touch_end as u64);
    [few, copy, crc, touch].into_iter().find(|(start, end)| ip >= *start && ip < *end).map(|(_, end)| end)
}

/// Copies out of the guest's memory. False if it is not all readable.
#[inline]
pub fn read(to: *mut u8, from: u64, bytes: usize) -> bool {
    // SAFETY: `to` is the caller's; a fault at `from` is caught.
    unsafe { copy_or_fault(to, from as *const u8, bytes) == 0 }
}

/// As [`read`], to a multiple of 16, past this processor's caches: where the other end of a ring takes the bytes. Of 16 KiB it
/// saves half of what fetching the ring's lines from the other processor costs; of less than [`PAST_MIN`] it costs more.
pub fn read_past(to: *mut u8, from: u64, bytes: usize) -> bool {
    if bytes < PAST_MIN || !to.cast::<u128>().is_aligned() {
        return read(to, from, bytes);
    }
    // SAFETY: `to` is the caller's, and aligned; a fault at `from` is caught.
    unsafe { us_copy_past(to, from as *const u8, bytes) == 0 }
}

/// Copies into the guest's memory. False if it is not all writable.
#[inline]
pub fn write(to: u64, from: *const u8, bytes: usize) -> bool {
    // SAFETY: `from` is the caller's; a fault at `to` is caught.
    unsafe { copy_or_fault(to as *mut u8, from, bytes) == 0 }
}

/// Whether a byte of the guest's memory can be written.
pub fn is_writable(at: u64) -> bool {
    if at < PAGE && is_nowhere_low() {
        return false;
    }
    // SAFETY: a fault is caught, and nothing is changed.
    unsafe { touch_or_fault(at as *mut u8) == 0 }
}

/// What any bytes are: a number, or several side by side.
///
/// # Safety
/// No bytes are invalid for it.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($name:ty),+ $(,)?) => {
        $(
            // SAFETY: numbers and addresses that nobody follows.
            unsafe impl Plain for $name {}
        )+
    };
}
plain! {
    u8, u16, u32, u64, i8, i16, i32, i64, Timespec, Info,
    general::__kernel_old_itimerval, general::__kernel_old_timeval, general::__user_cap_header_struct,
    general::epoll_event, general::f_owner_ex, general::robust_list_head, general::sigevent, net::iovec,
}

// SAFETY: as of one.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// A value out of the guest's memory.
#[inline]
pub fn load<T: Plain>(from: u64) -> Option<T> {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: all its bytes have been copied there, and any are one.
    read(value.as_mut_ptr().cast(), from, size_of::<T>()).then(|| unsafe { value.assume_init() })
}

/// A value into the guest's memory.
#[inline]
pub fn store<T: Copy>(to: u64, value: &T) -> bool {
    write(to, (&raw const *value).cast(), size_of::<T>())
}

/// Where the guest says that a `T` lies, for a call to read. Zero is nowhere. It cannot be looked at but by a copy that may fail, and
/// is no [`GuestMut`]: what a call reads and what it writes are not taken for each other.
#[repr(transparent)]
pub struct GuestPtr<T>(u64, PhantomData<fn() -> T>);

/// Where the guest wants a `T`, for a call to write. Zero is nowhere.
#[repr(transparent)]
pub struct GuestMut<T>(u64, PhantomData<fn(T)>);

macro_rules! places {
    ($($name:ident),+) => {
        $(
            impl<T> Clone for $name<T> {
                fn clone(&self) -> Self {
                    *self
                }
            }

            impl<T> Copy for $name<T> {}

            impl<T> $name<T> {
                /// The address that an argument is.
                #[inline(always)]
                pub const fn at(argument: u64) -> $name<T> {
                    $name(argument, PhantomData)
                }

                /// Whether the guest gives nothing.
                #[inline(always)]
                pub const fn is_nowhere(self) -> bool {
                    self.0 == 0
                }

                /// As an argument of a call.
                #[inline(always)]
                pub const fn address(self) -> u64 {
                    self.0
                }

                /// One of several that lie side by side.
                #[inline(always)]
                pub const fn nth(self, index: u64) -> $name<T> {
                    Self::at(self.0.wrapping_add(index.wrapping_mul(size_of::<T>() as u64)))
                }

                /// Its bytes.
                #[inline(always)]
                pub const fn bytes(self) -> $name<u8> {
                    $name::at(self.0)
                }

                /// A part of it: by [`part!`], which knows where that lies.
                #[inline(always)]
                pub const fn part<F>(self, offset: usize, _: fn(T) -> F) -> $name<F> {
                    $name::at(self.0.wrapping_add(offset as u64))
                }
            }
        )+
    };
}
places!(GuestPtr, GuestMut);

/// Where a field lies of what the guest has at an address: `part!(address, Struct, field)`.
macro_rules! part {
    ($at:expr, $whole:ty, $field:ident) => {
        $at.part(core::mem::offset_of!($whole, $field), |whole: $whole| whole.$field)
    };
}
pub(crate) use part;

impl<T: Plain> GuestPtr<T> {
    /// What lies there, if that can be read.
    #[inline]
    pub fn load(self) -> Option<T> {
        load(self.0)
    }

    /// What lies there: nothing if that is nowhere.
    ///
    /// # Errors
    /// EFAULT if it cannot be read.
    #[inline]
    pub fn given(self) -> Result<Option<T>, i64> {
        match self.0 {
            0 => Ok(None),
            address => load(address).map(Some).ok_or(err::EFAULT),
        }
    }
}

impl GuestPtr<u8> {
    /// Copies so many bytes from there. False if they are not all readable.
    #[inline]
    pub fn copy_to(self, to: *mut u8, bytes: usize) -> bool {
        read(to, self.0, bytes)
    }

    /// As [`read_past`].
    pub fn copy_past(self, to: *mut u8, bytes: usize) -> bool {
        read_past(to, self.0, bytes)
    }

    /// Fills `to` from there. False if there are not so many bytes.
    #[inline]
    pub fn fill(self, to: &mut [u8]) -> bool {
        read(to.as_mut_ptr(), self.0, to.len())
    }

    /// As [`string_len`].
    pub fn string_len(self) -> usize {
        string_len(self.0)
    }
}

impl<T, const N: usize> GuestMut<[T; N]> {
    /// One of them.
    pub const fn item(self, index: u64) -> GuestMut<T> {
        GuestMut::<T>::at(self.0).nth(index)
    }
}

impl<T: Copy> GuestMut<T> {
    /// Writes it there. False if that is not all writable.
    #[inline]
    pub fn store(self, value: &T) -> bool {
        store(self.0, value)
    }

    /// Writes it there, if that is anywhere: 0, or EFAULT.
    #[inline]
    pub fn tell(self, value: &T) -> i64 {
        if self.0 != 0 && !store(self.0, value) { err::EFAULT } else { 0 }
    }
}

impl<T: Plain> GuestMut<T> {
    /// What a call has written there.
    #[inline]
    pub fn written(self) -> Option<T> {
        load(self.0)
    }
}

impl GuestMut<u8> {
    /// Whether a byte can be written there.
    pub fn is_writable(self) -> bool {
        is_writable(self.0)
    }

    /// Copies so many bytes there. False if they are not all writable.
    #[inline]
    pub fn copy_from(self, from: *const u8, bytes: usize) -> bool {
        write(self.0, from, bytes)
    }
}

/// Bytes of the NUL-terminated string at `from`, without the NUL; at most 4096, 0 if it cannot be read.
pub fn string_len(from: u64) -> usize {
    string_len_within(from, 4096)
}

/// As [`string_len`], for one that may be longer than a path.
pub fn string_len_within(from: u64, most: usize) -> usize {
    // The first piece may be shorter: what lies behind it must not look like the end.
    let mut chunk = [u64::MAX; 8];
    let mut total = 0;
    while total < most {
        // Not across a page boundary: the string may end just before memory that is not there.
        let step = 64 - (from as usize + total) % 64;
        if !read(chunk.as_mut_ptr().cast(), from + total as u64, step) {
            return total;
        }
        if let Some(end) = first_zero(&chunk) {
            return total + end;
        }
        total += step;
    }
    total
}

/// Where the first zero byte is. Eight bytes at a time: servers ask for a dozen names a request.
fn first_zero(words: &[u64; 8]) -> Option<usize> {
    const LOW: u64 = 0x0101_0101_0101_0101;
    // A byte above a zero one may be marked as well, none below.
    let marks = |word: u64| word.wrapping_sub(LOW) & !word & (LOW << 7);
    let at = words.iter().position(|word| marks(*word) != 0)?;
    Some(at * 8 + marks(words[at]).trailing_zeros() as usize / 8)
}

/// A digest of inputs: the standby's must equal the primary's. No address ever enters it.
#[derive(Clone, Copy, Debug)]
pub struct Digest(u64);

impl Digest {
    /// Of nothing yet.
    #[inline(always)]
    pub const fn new() -> Digest {
        Digest(0xffff_ffff)
    }
    /// Adds a number.
    #[inline(always)]
    pub fn number(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
    /// Adds bytes of the guest's memory.
    #[inline]
    pub fn bytes(&mut self, from: u64, bytes: usize) {
        self.number(bytes as u64);
        if bytes == 0 {
            return;
        }
        if HAS_CRC.load(Ordering::Relaxed) {
            // SAFETY: a fault is caught; the call's own fate then tells both copies the same.
            self.0 ^= unsafe { crc_or_fault(self.0 & 0xffff_ffff, from as *const u8, bytes) } << 16;
        } else {
            let mut byte = 0u8;
            for at in 0..bytes as u64 {
                if !read(&raw mut byte, from + at, 1) {
                    break;
                }
                self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            }
        }
    }
    /// The 32 bits that travel in the log.
    #[inline(always)]
    pub const fn finish(self) -> u32 {
        (self.0 ^ (self.0 >> 32)) as u32
    }
}
