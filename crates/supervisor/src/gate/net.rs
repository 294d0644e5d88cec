//! The address of a service, and the way that its packets take: by the commands of `ip(8)`.

use std::process::{Command, Stdio};

use gate::Address;

use super::kernel;
use crate::proc;

/// Packets that have been at the gate have this mark.
pub const MARK: u32 = 0x5553_0000;

/// Where the rule stands among those of the machine.
const PLACE: &str = "21845";

/// An address in words.
pub fn words(address: [u8; 4]) -> String {
    let [a, b, c, d] = address;
    format!("{a}.{b}.{c}.{d}")
}

fn ip(words: &[&str]) -> Result<(), String> {
    let mut command = Command::new("ip");
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null());
    let told = |why: &str| format!("ip {}: {}", words.join(" "), why.trim());
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(told(&String::from_utf8_lossy(&output.stderr))),
        Err(cause) => Err(told(&cause.to_string())),
    }
}

/// Gives the machine the address. Whether it did not have it.
///
/// # Errors
/// What `ip` says.
pub fn take(address: &Address) -> Result<bool, String> {
    let own = format!("{}/{}", words(address.address), address.bits);
    match ip(&["address", "add", &own, "dev", &address.device]) {
        Ok(()) => Ok(true),
        Err(why) if why.contains("File exists") || why.contains("already assigned") => Ok(false),
        Err(why) => Err(why),
    }
}

/// Tells the network again and again, for as long as this process lives, that the address is here: another machine that had it may
/// come back and say the same.
///
/// # Errors
/// The kernel's, the first time.
pub fn announce(address: &Address) -> std::io::Result<()> {
    const PAUSES_MS: [u64; 7] = [20, 100, 300, 1000, 2000, 5000, 10_000];
    kernel::announce(&address.device, address.address)?;
    let address = address.clone();
    let tell = move || {
        for pause in PAUSES_MS.into_iter().chain(std::iter::repeat(PAUSES_MS[6])) {
            std::thread::sleep(std::time::Duration::from_millis(pause));
            let _ = kernel::announce(&address.device, address.address);
        }
    };
    std::thread::Builder::new().name("address".into()).spawn(tell).map(drop)
}

/// Takes it away again.
pub fn leave(address: &Address) {
    let own = format!("{}/{}", words(address.address), address.bits);
    let _ = ip(&["address", "del", &own, "dev", &address.device]);
}

/// The table in which the way of the address's packets stands.
fn table(address: &Address) -> String {
    // Numbers below are the machine's own.
    (0x5553_0000 | u32::from(address.address[2]) << 8 | u32::from(address.address[3])).to_string()
}

/// Has all packets of the address go to the gate's device. Without that they go nowhere: whoever looks after them is gone.
///
/// # Errors
/// What stands against it.
pub fn lead(address: &Address, gate: &str) -> Result<(), String> {
    let (largest, ..) = kernel::device(&address.device)
        .map_err(|cause| format!("there is no device {}: {cause}", address.device))?;
    if proc::drops_unroutable(&address.device) {
        return Err(format!(
            "the kernel would drop what comes in for {}: sysctl net.ipv4.conf.{}.rp_filter=2",
            words(address.address),
            address.device
        ));
    }
    let (own, table, largest) = (words(address.address), table(address), largest.to_string());
    let mark = format!("0/{MARK:#x}");
    proc::disable_ipv6(gate);
    ip(&["link", "set", gate, "mtu", &largest, "txqueuelen", "10000", "up"])?;
    lead_no_more(address);
    ip(&["route", "add", "default", "dev", gate, "table", &table])?;
    ip(&["route", "add", "blackhole", "default", "metric", "1000000", "table", &table])?;
    ip(&["rule", "add", "pref", PLACE, "from", &own, "fwmark", &mark, "lookup", &table])
}

/// The address's packets go their way again.
pub fn lead_no_more(address: &Address) {
    let (own, table) = (words(address.address), table(address));
    while ip(&["rule", "del", "pref", PLACE, "from", &own, "lookup", &table]).is_ok() {}
    let _ = ip(&["route", "flush", "table", &table]);
}
