//! The file `races` of a group's folder: which executable files are known to race.

/// Bytes of a record: device, inode, size, and time of the last change in nanoseconds, 64 bits each.
pub const RECORD_BYTES: usize = 32;
/// Records of the file, at most.
pub const RECORDS_MAX: usize = 128;
