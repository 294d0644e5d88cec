//! The two clocks: one for people, one for intervals.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, Timespec, clock_gettime};

/// CLOCK_MONOTONIC, ns: the clock of every `*_ns` field of the segment.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The present, nanoseconds since 1970.
pub fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

/// A number of nanoseconds, or a moment of [`monotonic_ns`], as the kernel takes it.
pub fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
}

/// The present, as RFC 3339 in UTC with milliseconds.
pub fn now_text() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    rfc3339(since.as_secs(), since.subsec_millis())
}

/// RFC 3339 in UTC of a moment given in seconds since 1970 and milliseconds.
pub fn rfc3339(secs: u64, millis: u32) -> String {
    let (year, month, day) = civil(secs / 86_400);
    let s = secs % 86_400;
    let (hour, minute, second) = (s / 3600, s / 60 % 60, s % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Year, month and day of a day counted from 1970-01-01, by the 400-year cycle of the calendar.
fn civil(days: u64) -> (u64, u64, u64) {
    // Years are counted from March so that the leap day is the last of its year.
    let z = days + 719_468;
    let era = z / 146_097;
    let in_era = z % 146_097;
    let year_of_era = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * in_year + 2) / 153;
    let day = in_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments() {
        assert_eq!(rfc3339(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(951_782_400, 7), "2000-02-29T00:00:00.007Z");
        assert_eq!(rfc3339(1_795_183_199, 999), "2026-11-20T13:59:59.999Z");
        assert_eq!(rfc3339(4_107_542_400, 0), "2100-03-01T00:00:00.000Z");
    }
}
