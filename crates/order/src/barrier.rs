//! The serial thread of a barrier round.

/// Whether a thread that leaves a complete local round is its serial thread.
///
/// `logged` is the result in the thread's ring, `None` if it leaves live. `serial_taken` says whether some
/// thread of the *same round* has already left as serial. Threads leave live only after all rings are
/// drained, so every logged departure of the round is known by then.
#[must_use]
pub fn is_serial(logged: Option<bool>, serial_taken: bool) -> bool {
    logged.unwrap_or(!serial_taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_whatever_was_logged() {
        // Four threads; the serial one is `who`; the log holds any subset of the results.
        for who in 0..4u32 {
            for logged in 0..16u32 {
                let mut serials = 0;
                let mut taken = false;
                // Logged departures are applied before any live one.
                for live in [false, true] {
                    for t in 0..4 {
                        let in_log = logged >> t & 1 == 1;
                        if in_log == live {
                            continue;
                        }
                        let serial = is_serial(in_log.then_some(t == who), taken);
                        taken |= serial;
                        serials += u32::from(serial);
                    }
                }
                assert_eq!(serials, 1, "serial {who}, logged {logged:04b}");
            }
        }
    }
}
