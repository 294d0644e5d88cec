//! The lines of `/proc/PID/maps` and `smaps`.

/// It can be read.
pub const READ: u64 = 1;

/// It can be written.
pub const WRITE: u64 = 2;

/// It can be executed.
pub const EXEC: u64 = 4;

/// One line of `/proc/self/maps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// First address.
    pub start: u64,
    /// First one behind it.
    pub end: u64,
    /// What may be done there: [`READ`], [`WRITE`], [`EXEC`].
    pub protection: u64,
    /// Whether it is shared.
    pub shared: bool,
    /// Where in the file it begins.
    pub offset: u64,
    /// The file's device.
    pub device: u64,
    /// The file's number there, 0 for none.
    pub inode: u64,
}

impl Line {
    /// Whether it is of the same kind as the one that ends where it begins, and goes on with that one's file.
    #[must_use]
    pub fn continues(&self, before: &Line) -> bool {
        let kind = |line: &Line| (line.protection, line.shared, line.device, line.inode);
        let goes_on = before.offset.wrapping_add(before.end.wrapping_sub(before.start));
        let offset = if self.inode == 0 { self.offset } else { goes_on };
        self.start == before.end && kind(self) == kind(before) && self.offset == offset
    }

    /// Whether it is the text of a file that nobody may write, the program's or a library's.
    #[must_use]
    pub fn is_text(&self) -> bool {
        self.protection == READ | EXEC && !self.shared && self.inode != 0
    }

    /// Of the line's text.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Line> {
        let mut fields = fields(line);
        let (start, end) = range(fields.next()?)?;
        let flags = fields.next()?;
        let offset = fields.next()?;
        let device = fields.next()?;
        let inode = fields.next()?;
        let on = |at: usize, sign: u8, bit: u64| if flags.get(at) == Some(&sign) { bit } else { 0 };
        Some(Line {
            start,
            end,
            protection: on(0, b'r', READ) | on(1, b'w', WRITE) | on(2, b'x', EXEC),
            shared: flags.get(3) == Some(&b's'),
            offset: hex(offset)?,
            device: device_number(device)?,
            inode: number(inode, 10)?,
        })
    }
}

fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b' ').filter(|field| !field.is_empty())
}

/// What a line says that is mapped, up to its first blank: a path, `[vdso]` or the like, or nothing.
#[must_use]
pub fn path(line: &[u8]) -> &[u8] {
    fields(line).nth(5).unwrap_or_default()
}

/// Start and end of the mapping that a line of `maps` or `smaps` begins with.
#[must_use]
pub fn range(line: &[u8]) -> Option<(u64, u64)> {
    let range = line.split(|byte| *byte == b' ').next()?;
    let dash = range.iter().position(|byte| *byte == b'-')?;
    Some((hex(&range[..dash])?, hex(&range[dash + 1..])?))
}

/// A number in hexadecimal digits.
#[must_use]
pub fn hex(digits: &[u8]) -> Option<u64> {
    number(digits, 16)
}

fn number(digits: &[u8], base: u32) -> Option<u64> {
    digits.iter().try_fold(0u64, |value, digit| {
        let digit = (*digit as char).to_digit(base)?;
        value.checked_mul(u64::from(base))?.checked_add(u64::from(digit))
    })
}

/// `08:11` as `fstat` would say it.
fn device_number(text: &[u8]) -> Option<u64> {
    let colon = text.iter().position(|byte| *byte == b':')?;
    let (major, minor) = (hex(&text[..colon])?, hex(&text[colon + 1..])?);
    Some(minor & 0xff | major << 8 | (minor & !0xff) << 12)
}
