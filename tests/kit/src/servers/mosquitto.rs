//! `kit mosquitto`: fifty MQTT clients, each of which publishes to itself what it then must receive, once.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Error, Result, bail, ensure};

use super::client::{Connection, longest_wait};
use super::life::Load;
use super::session::{Session, free_port};
use super::{Failure, Options, Outcome, Run, Title};

/// Clients at a time.
const CLIENTS: u64 = 50;

/// Of the requests that one connection of other servers makes, each client makes one in so many.
const SHARE: u64 = 10;

/// First bytes of MQTT's packets, quality of service 1.
const CONNECT: u8 = 0x10;
const CONNACK: u8 = 0x20;
const PUBLISH: u8 = 0x32;
const PUBACK: u8 = 0x40;
const SUBSCRIBE: u8 = 0x82;
const SUBACK: u8 = 0x90;

/// Runs the command. True if nothing failed.
pub fn run(options: &Options) -> Result<bool> {
    super::campaign(options, &Title { name: "mosquitto", flags: String::new() }, "mosquitto", |_| Ok(()), one)
}

fn one(run: &Run) -> Result<Outcome, Failure> {
    let port = free_port()?;
    let dir = run.place.fresh("mosquitto")?;
    let file = dir.join("mosquitto.conf");
    let text = format!("listener {port} 127.0.0.1\nallow_anonymous true\n");
    fs::write(&file, text).map_err(|error| Failure::of(Error::from(error), &dir))?;
    let program = vec!["mosquitto".into(), "-c".into(), file.into()];
    let session = Session::start_in(run, dir, program, port, 1)?;
    let (address, each) = (session.address, run.requests / SHARE);
    let ((messages, longest), words) = session.with_kill(run, each * CLIENTS, |load| {
        let longest = longest_wait(CLIENTS, |n| talk(run, address, n, each, load))?;
        Ok((load.done(), longest))
    })?;
    let detail = format!("{messages} messages of {CLIENTS} clients, longest wait {longest:.1?}; {words}");
    Ok(Outcome { detail, longest: Some(longest) })
}

/// Publishes and receives while the load lasts: the longest wait.
fn talk(run: &Run, address: SocketAddr, me: u64, each: u64, load: &Load) -> Result<Duration> {
    let mut client = Connection::open(address, run.limit)?;
    let mut hello = string(b"MQTT");
    hello.extend([4, 2, 0, 0]); // version 3.1.1, a clean session, no keep-alive
    hello.extend(string(format!("kit{me}").as_bytes()));
    client.send(&packet(CONNECT, &hello))?;
    let answer = receive(&mut client)?;
    ensure!(answer == (CONNACK, vec![0, 0]), "client {me} was answered {answer:?}");
    let topic = string(format!("kit/{me}").as_bytes());
    client.send(&packet(SUBSCRIBE, &[&[0, 1], topic.as_slice(), &[1]].concat()))?;
    let answer = receive(&mut client)?;
    ensure!(answer == (SUBACK, vec![0, 1, 1]), "client {me} subscribed and was answered {answer:?}");
    let mut n = 0;
    while load.goes_on(n) && (load.goes_on(u64::MAX) || n < each) {
        let number = (n % 60_000 + 2) as u16;
        let mut text = format!("{me} {n} ").into_bytes();
        text.resize(text.len() + (n % 300) as usize, b'x');
        client.send(&packet(PUBLISH, &[topic.as_slice(), &number.to_be_bytes(), &text].concat()))?;
        let (mut acknowledged, mut received) = (false, false);
        while !(acknowledged && received) {
            let (kind, body) = receive(&mut client)?;
            match kind {
                PUBACK => {
                    ensure!(
                        !acknowledged && body == number.to_be_bytes(),
                        "client {me}, message {n}: PUBACK {body:?}"
                    );
                    acknowledged = true;
                }
                PUBLISH => {
                    let rest = body.strip_prefix(topic.as_slice()).unwrap_or_default();
                    ensure!(
                        !received && rest.get(2..) == Some(&text),
                        "client {me}, message {n}: got {body:?}"
                    );
                    received = true;
                    client.send(&packet(PUBACK, &rest[..2]))?;
                }
                kind => bail!("client {me}, message {n}: a packet {kind:#x}"),
            }
        }
        n += 1;
        load.answered();
    }
    client.expect_silence()?;
    Ok(client.longest())
}

fn string(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_be_bytes(), bytes].concat()
}

fn packet(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    let mut length = body.len();
    loop {
        let low = (length % 128) as u8;
        length /= 128;
        bytes.push(if length == 0 { low } else { low | 0x80 });
        if length == 0 {
            break;
        }
    }
    bytes.extend(body);
    bytes
}

/// First byte and body of the next packet.
fn receive(client: &mut Connection) -> Result<(u8, Vec<u8>)> {
    let mut byte = [0];
    client.receive(&mut byte)?;
    let kind = byte[0];
    let (mut length, mut shift) = (0, 0);
    loop {
        client.receive(&mut byte)?;
        length |= usize::from(byte[0] & 0x7f) << shift;
        shift += 7;
        if byte[0] & 0x80 == 0 {
            break;
        }
        ensure!(shift < 28, "a length of more than four bytes");
    }
    let mut body = vec![0; length];
    client.receive(&mut body)?;
    Ok((kind, body))
}

#[cfg(test)]
mod tests {
    use super::packet;

    #[test]
    fn a_length_has_as_many_bytes_as_it_needs() {
        assert_eq!(packet(0x32, &[7]), [0x32, 1, 7]);
        assert_eq!(packet(0x32, &[0; 321])[..3], [0x32, 0xc1, 0x02]);
    }
}
