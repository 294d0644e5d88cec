//! Two machines in one process, over TLS and the loopback: what is written is kept, whatever happens to the link; and who is
//! nobody's peer gets nowhere.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use node::{Config, Node, Shipper, Stop};
use recording::{Header, How, Image, Reader, Writer};
use ship::{Commit, Hello, Here};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(20);

/// Keys of n1, n2 and of somebody else, made as people make them.
fn certificates(folder: &Path) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/cluster/certificates.sh");
    for (folder, names) in
        [(folder.to_owned(), ["n1", "n2", "n3"]), (folder.join("other"), ["n1", "n2", "n3"])]
    {
        let made = Command::new("sh").arg(script).arg(folder).args(names).status().expect("sh is there");
        assert!(made.success(), "openssl is there");
    }
}

fn config(folder: &Path, name: &str, listen: SocketAddr, peers: &[(&str, SocketAddr)]) -> Config {
    let mut text = format!(
        "[node]\nname = '{name}'\nlisten = '{listen}'\ndata = '{name}.data'\n\
         [tls]\nauthority = 'authority.pem'\ncertificate = '{name}.pem'\nkey = '{name}.key'\n\
         [limits]\nbeat_ms = 50\nsilence_ms = 1000\n"
    );
    for (name, address) in peers {
        text.push_str(&format!("[[peers]]\nname = '{name}'\naddress = '{address}'\n"));
    }
    let path = folder.join(format!("{name}.toml"));
    fs::write(&path, text).unwrap();
    Config::read(&path).unwrap()
}

fn nowhere() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// A node that runs.
struct Running {
    address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
    said: Arc<Mutex<Vec<String>>>,
}

impl Running {
    fn new(config: &Config) -> Running {
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&said);
        let here = Here { format: recording::VERSION, build: "build".into(), ..Here::default() };
        let node =
            Node::new(config, here, Arc::new(move |line: &str| heard.lock().unwrap().push(line.into())));
        let node = node.unwrap();
        let (address, stop) = (node.address().unwrap(), node.stop());
        Running { address, stop, thread: Some(std::thread::spawn(move || node.run())), said }
    }

    fn has_said(&self, words: &str) {
        until(words, || self.said.lock().unwrap().iter().any(|line| line.contains(words)));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            assert!(ended.is_some_and(|ended| ended.is_ok()), "the node has panicked");
        }
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn hello() -> Hello {
    Hello {
        format: recording::VERSION,
        stream: [7; 16],
        group: "group".into(),
        commit: Commit::Disk,
        build: "build".into(),
        ..Hello::default()
    }
}

/// A recording that grows.
struct Tape {
    path: PathBuf,
    writer: Option<Writer>,
    many: u64,
}

impl Tape {
    fn new(folder: &Path) -> Tape {
        let path = folder.join("own.understudy");
        let mut writer = Writer::create(&path, &Header::default()).unwrap();
        let image = Image { number: 0, pid: 1, parent: None, how: How::Started, facts: vec![] };
        writer.image(&image).unwrap();
        Tape { path, writer: Some(writer), many: 0 }
    }

    /// Some chunks more.
    fn grow(&mut self, chunks: usize) {
        let writer = self.writer.as_mut().unwrap();
        for _ in 0..chunks {
            self.many += 1;
            let mut event = us_abi_event(self.many);
            event.resize(event.len().next_multiple_of(16), 0);
            writer.events(0, 0, &event).unwrap();
            writer.flush().unwrap();
        }
    }

    fn file(&self) -> File {
        File::open(&self.path).unwrap()
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(&self.path).unwrap()
    }
}

/// An event with some bytes that do not compress.
fn us_abi_event(number: u64) -> Vec<u8> {
    let payload: Vec<u8> = (0..3000u64).map(|at| ((at * at * number) >> 3) as u8).collect();
    let mut event = vec![5, 0, 0, 0];
    event.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    event.extend_from_slice(&number.to_le_bytes());
    event.extend_from_slice(&payload);
    event
}

fn copy_of(folder: &Path) -> PathBuf {
    folder.join(format!("n2.data/group-{}.understudy", "07".repeat(16)))
}

#[test]
fn what_is_written_is_kept() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    certificates(folder);
    let mut tape = Tape::new(folder);
    let two = config(folder, "n2", nowhere(), &[("n1", nowhere())]);
    let running = Running::new(&two);
    let address = running.address;
    let one = config(folder, "n1", nowhere(), &[("n2", address)]);
    let shipper = Shipper::start(&one, "n2", tape.file(), hello()).unwrap();
    tape.grow(50);
    shipper.ring();
    until("fifty entries", || shipper.seen().committed_bytes == tape.bytes().len() as u64);
    assert_eq!(fs::read(copy_of(folder)).unwrap(), tape.bytes());
    assert_eq!(fs::metadata(copy_of(folder)).unwrap().permissions().mode() & 0o777, 0o600);

    // It can be read while it is written, and a reader knows that there may be more.
    let mut reader = Reader::open(&copy_of(folder)).unwrap();
    let first = reader.next().unwrap().unwrap();
    assert!(matches!(first, recording::Item::Image(_)));

    // The other machine goes, the log goes on; what a crash has torn there is cut off, and it goes on where it was.
    drop(running);
    until("apart", || shipper.seen().state == "apart");
    tape.grow(50);
    shipper.ring();
    let mut torn = fs::OpenOptions::new().append(true).open(copy_of(folder)).unwrap();
    torn.write_all(&tape.bytes()[..100]).unwrap();
    until("a trouble", || shipper.seen().trouble.is_some());
    let again = config(folder, "n2", address, &[("n1", nowhere())]);
    let running = Running::new(&again);
    until("a hundred entries", || shipper.seen().committed_bytes == tape.bytes().len() as u64);
    running.has_said("again, from entry");
    assert_eq!(shipper.seen().trouble, None);

    tape.grow(10);
    tape.writer.take().unwrap().finish().unwrap();
    let seen = shipper.finish(PATIENCE);
    assert_eq!((seen.state.as_str(), seen.lag_bytes, seen.lost), ("ended", 0, 0), "{seen:?}");
    assert_eq!(fs::read(copy_of(folder)).unwrap(), tape.bytes());
    running.has_said("kept whole");
}

/// Each gets one sentence, and the program's side goes on trying.
#[test]
fn who_is_nobodys_peer_gets_nowhere() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    certificates(folder);
    let tape = Tape::new(folder);
    let running = Running::new(&config(folder, "n2", nowhere(), &[("n1", nowhere())]));
    let trouble = |config: &Config, words: &str, hello: Hello| {
        let shipper = Shipper::start(config, "n2", tape.file(), hello).unwrap();
        until(words, || shipper.seen().trouble.is_some_and(|trouble| trouble.contains(words)));
        shipper.finish(Duration::ZERO);
    };
    let peers = [("n2", running.address)];
    trouble(&config(folder, "n3", nowhere(), &peers), "the other side has ended the link", hello());
    running.has_said("its certificate is no peer's of this node");
    // Keys of another cluster.
    trouble(
        &config(&folder.join("other"), "n1", nowhere(), &peers),
        "TLS: invalid peer certificate",
        hello(),
    );
    // The name is the wrong one.
    let wrong = config(folder, "n1", nowhere(), &[("n3", running.address)]);
    let shipper = Shipper::start(&wrong, "n3", tape.file(), hello()).unwrap();
    until("another's certificate", || {
        shipper.seen().trouble.is_some_and(|it| it.contains("not valid for name"))
    });
    shipper.finish(Duration::ZERO);

    let one = config(folder, "n1", nowhere(), &peers);
    let other = Hello { format: 99, ..hello() };
    let versions =
        format!("n2 keeps recordings of version {}, and this one is of version 99", recording::VERSION);
    trouble(&one, &versions, other);
    assert!(fs::read_dir(folder.join("n2.data")).unwrap().next().is_none(), "a file was made");
}

#[test]
fn a_copy_that_cannot_be_made_is_told() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    certificates(folder);
    let mut tape = Tape::new(folder);
    tape.grow(3);
    let two = config(folder, "n2", nowhere(), &[("n1", nowhere())]);
    fs::create_dir(folder.join("n2.data")).unwrap();
    fs::set_permissions(folder.join("n2.data"), fs::Permissions::from_mode(0o700)).unwrap();
    // What stands there is no file.
    std::os::unix::fs::symlink("/dev/full", copy_of(folder)).unwrap();
    let running = Running::new(&two);
    let one = config(folder, "n1", nowhere(), &[("n2", running.address)]);
    let shipper = Shipper::start(&one, "n2", tape.file(), hello()).unwrap();
    until("a sentence", || shipper.seen().trouble.is_some_and(|trouble| trouble.starts_with("n2: ")));
    fs::remove_file(copy_of(folder)).unwrap();
    until("room again", || shipper.seen().committed_bytes == tape.bytes().len() as u64);
    assert_eq!(shipper.seen().trouble, None);
}

/// Whoever says nothing, says it slowly, or says something else.
#[test]
fn strangers_are_sent_away() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    certificates(folder);
    let mut tape = Tape::new(folder);
    let running = Running::new(&config(folder, "n2", nowhere(), &[("n1", nowhere())]));
    let mut silent: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(running.address).unwrap()).collect();
    let mut rude = TcpStream::connect(running.address).unwrap();
    let _ = rude.write_all(b"GET / HTTP/1.1\r\n\r\n");
    let mut slow = TcpStream::connect(running.address).unwrap();
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE && slow.write_all(&[22]).is_ok() {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(begun.elapsed() < PATIENCE, "it was listened to for ever");
    for stream in silent.iter_mut().chain([&mut rude]) {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut all = Vec::new();
        // An end or a reset: either is one.
        match stream.read_to_end(&mut all) {
            Ok(_) => {}
            Err(cause) => assert_eq!(cause.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }
    // And the peers are served.
    tape.grow(1);
    let one = config(folder, "n1", nowhere(), &[("n2", running.address)]);
    let shipper = Shipper::start(&one, "n2", tape.file(), hello()).unwrap();
    until("served", || shipper.seen().committed_bytes == tape.bytes().len() as u64);
}

#[test]
fn a_configuration_is_looked_at() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    certificates(folder);
    let path = folder.join("bad.toml");
    let fault = |text: &str| {
        fs::write(&path, text).unwrap();
        Config::read(&path).unwrap_err().to_string()
    };
    assert!(fault("[node]\nname = 3").contains("invalid type"));
    let whole = "[node]\nname='N'\nlisten='127.0.0.1:1'\ndata='d'\n\
                 [tls]\nauthority='authority.pem'\ncertificate='n1.pem'\nkey='n1.key'\n";
    assert!(fault(whole).contains("\"N\" is no name for a node"));
    assert!(fault(&whole.replace("'N'", "'n'").replace("data", "date")).contains("date"));
    let twice = format!("{}[[peers]]\nname='n'\naddress='127.0.0.1:2'\n", whole.replace("'N'", "'n'"));
    assert!(fault(&twice).contains("two nodes of the name n"));

    let good = config(folder, "n1", nowhere(), &[]);
    let said: node_say::Say = Arc::new(|_| ());
    fs::set_permissions(folder.join("n1.key"), fs::Permissions::from_mode(0o644)).unwrap();
    let open = Node::new(&good, Here::default(), Arc::clone(&said)).err().unwrap().to_string();
    assert!(open.contains("others can read the key"), "{open}");
    fs::set_permissions(folder.join("n1.key"), fs::Permissions::from_mode(0o600)).unwrap();
    let mut other = good.clone();
    other.node.name = "n9".into();
    let unfit = Node::new(&other, Here::default(), said).err().unwrap().to_string();
    assert!(unfit.ends_with("n1.pem: it is not for n9"), "{unfit}");
    assert_eq!(good.peer("n7").unwrap_err().to_string(), "no peer has the name n7; there are: ");
}

mod node_say {
    pub type Say = std::sync::Arc<dyn Fn(&str) + Send + Sync>;
}
