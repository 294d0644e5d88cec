//! What the kernel reads and writes in guest memory.

/// An output buffer in guest memory. A null pointer means: skip. Bytes count only when the result is not an
/// error, but for [`Out::Always`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Out {
    /// `len` bytes.
    Fixed {
        /// Pointer argument.
        arg: u8,
        /// Bytes.
        len: u32,
    },
    /// `len` bytes even when the call fails (the remaining time of an interrupted sleep, a poll array).
    Always {
        /// Pointer argument.
        arg: u8,
        /// Bytes.
        len: u32,
    },
    /// As many bytes as the result says.
    Result {
        /// Pointer argument.
        arg: u8,
    },
    /// As many bytes as the result says, but at most `args[len_arg]`: calls that answer the size they *would*
    /// need (`recv` with MSG_TRUNC).
    ResultUpTo {
        /// Pointer argument.
        arg: u8,
        /// Capacity argument, bytes.
        len_arg: u8,
    },
    /// Result times `size` bytes.
    ResultItems {
        /// Pointer argument.
        arg: u8,
        /// Bytes per item.
        size: u32,
    },
    /// Result times `size` bytes, at most `args[count_arg]` items (getgroups with a size of 0 counts only).
    ResultItemsUpTo {
        /// Pointer argument.
        arg: u8,
        /// Capacity argument, items.
        count_arg: u8,
        /// Bytes per item.
        size: u32,
    },
    /// 8 bytes of message type and as many bytes of text as the result says (msgrcv).
    Msgbuf {
        /// Pointer argument.
        arg: u8,
    },
    /// One byte for each page of `args[len_arg]` bytes, rounded up (mincore).
    Pages {
        /// Pointer argument.
        arg: u8,
        /// Length argument, bytes.
        len_arg: u8,
    },
    /// A node mask of `args[bits_arg] - 1` bits, in whole 8-byte words (get_mempolicy).
    NodeMask {
        /// Pointer argument.
        arg: u8,
        /// Number of bits and one.
        bits_arg: u8,
    },
    /// Capability sets: 12 bytes when the `u32` at `args[header_arg]` is 0x19980330, else 24.
    CapData {
        /// Pointer argument.
        arg: u8,
        /// Argument that points at the header.
        header_arg: u8,
    },
    /// A `struct xattr_args`: result bytes, at most the `u32` at offset 8, at the pointer at offset 0.
    XattrArgs {
        /// Pointer argument.
        arg: u8,
    },
    /// `args[count_arg]` times `size` bytes.
    ArgItems {
        /// Pointer argument.
        arg: u8,
        /// Count argument.
        count_arg: u8,
        /// Bytes per item.
        size: u32,
    },
    /// `args[len_arg]` bytes.
    ArgBytes {
        /// Pointer argument.
        arg: u8,
        /// Length argument, bytes.
        len_arg: u8,
    },
    /// A value-result pair: `*args[len_arg]` is a `u32` in guest memory and itself an output; the bytes at
    /// `arg` are the smaller of its values before and after the call.
    SockLen {
        /// Pointer argument.
        arg: u8,
        /// Argument that points at the length.
        len_arg: u8,
    },
    /// Result bytes scattered over an array of `iovec` (readv).
    Iovec {
        /// The array.
        arg: u8,
        /// Its count.
        count_arg: u8,
    },
    /// A `struct msghdr`: result bytes into its iovecs, its name, control data, their lengths and the flags.
    Msghdr {
        /// Pointer argument.
        arg: u8,
    },
    /// Result many `struct mmsghdr`, `msg_len` included.
    Mmsghdr {
        /// Pointer argument.
        arg: u8,
    },
    /// The `msg_len` words alone of result many `struct mmsghdr` (sendmmsg).
    MmsgLens {
        /// Pointer argument.
        arg: u8,
    },
    /// A select bitmap of `args[nfds_arg]` bits, in whole 8-byte words.
    FdSet {
        /// Pointer argument.
        arg: u8,
        /// Number of bits.
        nfds_arg: u8,
    },
    /// A `struct file_handle`: 8 bytes and the `handle_bytes` that its first word says after the call; the
    /// first 4 bytes also when the call fails with EOVERFLOW.
    FileHandle {
        /// Pointer argument.
        arg: u8,
    },
    /// Argument 2 by request number: [`crate::ioctl_out`].
    Ioctl,
    /// Argument 2 by command: [`crate::fcntl_shape`].
    Fcntl,
    /// By option: [`crate::prctl_shape`].
    Prctl,
    /// A control call (shmctl, msgctl, semctl, quotactl), by command: [`crate::command_out`].
    ByCommand {
        /// Pointer argument.
        arg: u8,
        /// Command argument.
        cmd_arg: u8,
    },
}

/// An input whose bytes, never whose address, enter the digest that the standby compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum In {
    /// All 64 bits of an argument that is no pointer (sizes, offsets, masks).
    Scalar {
        /// The argument.
        arg: u8,
    },
    /// The low 32 bits of an argument: the ABI leaves the upper half of an `int` undefined, and what a
    /// compiler leaves there may be half an address.
    Int {
        /// The argument.
        arg: u8,
    },
    /// `args[len_arg]` bytes.
    Bytes {
        /// Pointer argument.
        arg: u8,
        /// Length argument, bytes.
        len_arg: u8,
    },
    /// A NUL-terminated string.
    Str {
        /// Pointer argument.
        arg: u8,
    },
    /// `len` bytes.
    Fixed {
        /// Pointer argument.
        arg: u8,
        /// Bytes.
        len: u32,
    },
    /// `args[count_arg]` times `size` bytes.
    Items {
        /// Pointer argument.
        arg: u8,
        /// Count argument.
        count_arg: u8,
        /// Bytes per item.
        size: u32,
    },
    /// The bytes an `iovec` array points at.
    Iovec {
        /// The array.
        arg: u8,
        /// Its count.
        count_arg: u8,
    },
    /// The lengths of an `iovec` array (readv: the buffers hold nothing yet).
    IovecLens {
        /// The array.
        arg: u8,
        /// Its count.
        count_arg: u8,
    },
    /// Name, payload, control data and flags of a `struct msghdr`.
    Msghdr {
        /// Pointer argument.
        arg: u8,
    },
    /// `args[count_arg]` many `struct mmsghdr`.
    Mmsghdr {
        /// Pointer argument.
        arg: u8,
        /// Count argument.
        count_arg: u8,
    },
    /// 8 bytes of message type and `args[len_arg]` bytes of text (msgsnd).
    Msgbuf {
        /// Pointer argument.
        arg: u8,
        /// Length argument, bytes.
        len_arg: u8,
    },
    /// `args[count_arg]` many `struct pollfd`, descriptor and events only: `revents` is whatever lay there.
    Pollfds {
        /// Pointer argument.
        arg: u8,
        /// Count argument.
        count_arg: u8,
    },
    /// The value of a socket option, `args[4]` bytes at argument 3, unless [`crate::sockopt_shape`] finds a pointer
    /// in it.
    SockOpt,
    /// A socket address of `args[len_arg]` bytes. Of an AF_UNIX path that does not start with a NUL, only the
    /// bytes before its NUL: programs pass whole structures with old stack behind the name.
    SockAddr {
        /// Pointer argument.
        arg: u8,
        /// Length argument, bytes.
        len_arg: u8,
    },
    /// A select bitmap of `args[nfds_arg]` bits, in whole 8-byte words.
    FdSet {
        /// Pointer argument.
        arg: u8,
        /// Number of bits.
        nfds_arg: u8,
    },
    /// A NULL-terminated array of strings (argv, envp).
    StrArray {
        /// Pointer argument.
        arg: u8,
    },
    /// Argument 2 by request number: [`crate::ioctl_out`].
    Ioctl,
    /// Argument 2 by command: [`crate::fcntl_shape`].
    Fcntl,
    /// By option: [`crate::prctl_shape`].
    Prctl,
}
