//! Who a connection is, as the kernel says: `sock_diag(7)`.

use gate::{Found, Pair};

use super::kernel;

const HEAD: usize = 16;
/// The kernel's `struct inet_diag_msg`.
const MESSAGE: usize = 72;
/// Of its `state`: no connection yet, or none at all.
const SYN_SENT: u8 = 2;
const SYN_RECEIVED: u8 = 3;
const LISTENS: u8 = 10;
const NEW_SYN_RECEIVED: u8 = 12;
/// The attribute with a `struct tcp_info`, and the bit that asks for it.
const INFO: u16 = 2;
const ASKS_INFO: u8 = 1 << (INFO - 1);
/// Bytes that the sender's clock takes in each packet.
const TIME_BYTES: u32 = 12;

/// What is to be known of the connection; `None` if it is not established.
pub fn find(pair: &Pair) -> Option<Found> {
    const SOCK_DIAG_BY_FAMILY: u16 = 20;
    const REQUEST: u16 = 1;
    let mut question = Vec::with_capacity(HEAD + 56);
    question.extend_from_slice(&((HEAD + 56) as u32).to_ne_bytes());
    question.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    question.extend_from_slice(&REQUEST.to_ne_bytes());
    question.extend_from_slice(&[0; 8]);
    question.extend_from_slice(&[libc::AF_INET as u8, libc::IPPROTO_TCP as u8, ASKS_INFO, 0]);
    question.extend_from_slice(&u32::MAX.to_ne_bytes());
    question.extend_from_slice(&pair.own.port.to_be_bytes());
    question.extend_from_slice(&pair.other.port.to_be_bytes());
    for end in [pair.own, pair.other] {
        question.extend_from_slice(&end.address);
        question.extend_from_slice(&[0; 12]);
    }
    // Of any device, and with any cookie.
    question.extend_from_slice(&[0; 4]);
    question.extend_from_slice(&[0xff; 8]);
    let mut answer = [0; 1024];
    let bytes = kernel::diagnose(&question, &mut answer).ok()?;
    read(&answer[..bytes], pair)
}

fn read(answer: &[u8], pair: &Pair) -> Option<Found> {
    const SOCK_DIAG_BY_FAMILY: u16 = 20;
    let half = |at: usize| Some(u16::from_ne_bytes(answer.get(at..at + 2)?.try_into().ok()?));
    let word = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    let length = word(0)? as usize;
    if half(4)? != SOCK_DIAG_BY_FAMILY || length > answer.len() {
        return None;
    }
    let state = *answer.get(HEAD + 1)?;
    let port = u16::from_be_bytes(answer.get(HEAD + 6..HEAD + 8)?.try_into().ok()?);
    let is_made = !matches!(state, 0 | SYN_SENT | SYN_RECEIVED | LISTENS | NEW_SYN_RECEIVED);
    if !is_made || port != pair.other.port {
        return None;
    }
    // Ends, addresses and a device stand in front of the cookie.
    let cookie = u64::from(word(HEAD + 44)?) | u64::from(word(HEAD + 48)?) << 32;
    let mut found = Found { identity: cookie & !(15 << 60), ..Found::default() };
    let mut at = HEAD + MESSAGE;
    while at + 4 <= length {
        let (bytes, kind) = (usize::from(half(at)?), half(at + 2)?);
        if bytes < 4 {
            break;
        }
        if kind == INFO {
            let info = answer.get(at + 4..at + bytes)?;
            found.agreed = *info.get(5)?;
            found.scale = *info.get(6)? & 15;
            let segment = u32::from_ne_bytes(info.get(16..20)?.try_into().ok()?);
            let time = if found.agreed & gate::note::agreed::TIME != 0 { TIME_BYTES } else { 0 };
            found.segment_bytes = (segment + time).min(u16::MAX.into()) as u16;
            // A SYN may count as a byte.
            found.acknowledged = kernel::acknowledged(info).unwrap_or(0).saturating_sub(1);
            return Some(found);
        }
        at += bytes.next_multiple_of(4);
    }
    None
}
