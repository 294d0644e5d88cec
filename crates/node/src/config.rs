//! The file that says who a machine is.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use ship::{Commit, Limits};

use crate::Error;

/// The whole file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// This machine.
    pub node: Own,
    /// Keys and certificates.
    pub tls: Files,
    /// The other machines.
    #[serde(default)]
    pub peers: Vec<Peer>,
    /// Times and sizes.
    #[serde(default)]
    pub limits: Bounds,
    /// What is kept is run as well, if this is there.
    pub standby: Option<Standby>,
}

/// How what is kept is run.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Standby {
    /// Folders that both machines have under the same path. What a program does to files there is done here as well.
    #[serde(default)]
    pub volumes: Vec<PathBuf>,
    /// Nothing may come from the program's machine for so long before this one takes over by itself, milliseconds. Two machines
    /// cannot know which of them is alone: without this, somebody says so.
    pub lease_ms: Option<u64>,
    /// A mirror that is still far behind after so long asks for an image of the program, milliseconds; without it, or with 0, it never does.
    pub image_after_ms: Option<u64>,
    /// Peers that are sent the log of a program that has taken over here.
    #[serde(default)]
    pub cluster: Vec<String>,
    /// What counts as kept by those; as on the machine that ran the program before, if nothing is said.
    pub commit: Option<Commit>,
}

/// This machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Own {
    /// Its name, which its certificate is for.
    pub name: String,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where it keeps logs.
    pub data: PathBuf,
}

/// Files in PEM. Relative paths begin at the configuration's folder.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Files {
    /// The certificate by which all others are signed.
    pub authority: PathBuf,
    /// This machine's.
    pub certificate: PathBuf,
    /// Its key, which only its owner may read.
    pub key: PathBuf,
}

/// Another machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
}

/// Times and sizes, where they are not to be the usual ones.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// Milliseconds between two signs of life.
    pub beat_ms: Option<u32>,
    /// Milliseconds without one after which a link is ended.
    pub silence_ms: Option<u32>,
    /// Mebibytes on their way at once.
    pub window_mib: Option<u32>,
    /// Mebibytes that a follower may lack before it is given up.
    pub backlog_mib: Option<u32>,
}

impl Config {
    /// Reads it.
    ///
    /// # Errors
    /// What is wrong with the file, or with what it names.
    pub fn read(path: &Path) -> Result<Config, Error> {
        let at = path.display();
        let text = fs::read_to_string(path)
            .map_err(|cause| Error::new(format_args!("cannot read {at}: {cause}")))?;
        let mut config: Config =
            toml::from_str(&text).map_err(|fault| Error::new(format_args!("{at}: {}", one_line(&fault))))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let Files { authority, certificate, key } = &mut config.tls;
        for file in [authority, certificate, key, &mut config.node.data] {
            *file = folder.join(&file);
        }
        config.check().map_err(|what| Error::new(format_args!("{at}: {what}")))?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        let names = self.peers.iter().map(|peer| &peer.name).chain([&self.node.name]);
        let mut seen = Vec::new();
        for name in names {
            let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            let is_whole = !name.is_empty() && name.len() <= 63 && name.chars().all(legal);
            if !is_whole || name.starts_with('-') || name.ends_with('-') {
                return Err(format!("{name:?} is no name for a node: 1 to 63 of a-z, 0-9 and - are one"));
            }
            if seen.contains(&name) {
                return Err(format!("there are two nodes of the name {name}"));
            }
            seen.push(name);
        }
        for name in self.standby.iter().flat_map(|standby| &standby.cluster) {
            self.peer(name).map_err(|error| error.to_string())?;
        }
        let limits = self.limits();
        if limits.silence < 2 * limits.beat || limits.beat == 0 || limits.window == 0 {
            return Err("silence_ms is to be twice beat_ms or more, and neither that nor window_mib 0".into());
        }
        Ok(())
    }

    /// Looks at the keys and certificates.
    ///
    /// # Errors
    /// Which file is not what it should be.
    pub fn check_keys(&self) -> Result<(), Error> {
        crate::tls::Identity::read(self).map(drop)
    }

    /// The peer of this name.
    ///
    /// # Errors
    /// When there is none.
    pub fn peer(&self, name: &str) -> Result<&Peer, Error> {
        let known = || self.peers.iter().map(|peer| peer.name.as_str()).collect::<Vec<_>>().join(", ");
        self.peers
            .iter()
            .find(|peer| peer.name == name)
            .ok_or_else(|| Error::new(format_args!("no peer has the name {name}; there are: {}", known())))
    }

    /// Times and sizes.
    pub fn limits(&self) -> Limits {
        let usual = Limits::default();
        let mib = |mib: Option<u32>, usual| mib.map_or(usual, |mib| u64::from(mib) << 20);
        let ms = |ms: Option<u32>, usual| ms.map_or(usual, |ms| u64::from(ms) * 1_000_000);
        Limits {
            window: mib(self.limits.window_mib, usual.window),
            backlog: mib(self.limits.backlog_mib, usual.backlog),
            beat: ms(self.limits.beat_ms, usual.beat),
            silence: ms(self.limits.silence_ms, usual.silence),
            ..usual
        }
    }
}

/// A key that others can read is nobody's proof.
pub(crate) fn check_private(key: &Path) -> Result<(), Error> {
    let metadata = fs::metadata(key)
        .map_err(|cause| Error::new(format_args!("cannot read {}: {cause}", key.display())))?;
    if metadata.mode() & 0o077 != 0 {
        return Err(Error::new(format_args!("others can read the key {}; chmod 600 it", key.display())));
    }
    Ok(())
}

fn one_line(fault: &toml::de::Error) -> String {
    fault.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}
