//! Signals by name.

/// Names of the standard signals, by number.
const NAMES: [&str; 32] = [
    "0", "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// Highest signal number of the kernel.
const SIGNAL_MAX: i32 = 64;

/// The number of `TERM`, `SIGTERM`, `sigterm` or `15`.
pub fn parse(text: &str) -> Result<i32, String> {
    let upper = text.to_ascii_uppercase();
    let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
    let by_name = NAMES.iter().skip(1).position(|name| *name == bare).map(|at| at as i32 + 1);
    by_name
        .or_else(|| bare.parse().ok().filter(|number| (1..=SIGNAL_MAX).contains(number)))
        .ok_or_else(|| format!("{text:?} is not a signal"))
}

/// The name of a signal, as in `SIGKILL`.
pub fn name(signal: i32) -> String {
    match NAMES.get(signal as usize) {
        Some(name) if signal > 0 => format!("SIG{name}"),
        _ => format!("signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways() {
        for number in 1..32 {
            assert_eq!(parse(&name(number)), Ok(number));
        }
        assert_eq!((parse("term"), parse("9"), parse("SIGUSR1")), (Ok(15), Ok(9), Ok(10)));
        assert_eq!((name(libc::SIGSYS), name(40)), ("SIGSYS".into(), "signal 40".into()));
        for bad in ["", "0", "SIG", "65", "-9", "TERMINATE"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
