//! Who speaks to whom, and what does not fit.

use serde::Deserialize;

/// What an acknowledgement has to mean before an entry is committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Commit {
    /// The other machine's kernel has it.
    #[default]
    Memory,
    /// It is on the other machine's disk.
    Disk,
}

/// A program's file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Where it lies.
    pub path: String,
    /// SHA-256 of its bytes.
    pub hash: [u8; 32],
}

/// The first words of a leader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// Version of the messages.
    pub protocol: u32,
    /// Version of the entries.
    pub format: u32,
    /// Links that this leader has made for the stream, with this one.
    pub session: u64,
    /// Which log it is: random.
    pub stream: [u8; 16],
    /// The group's name.
    pub group: String,
    /// When an entry counts as committed.
    pub commit: Commit,
    /// What the runtime is that has made the log.
    pub build: String,
    /// What the leader's processor can do.
    pub features: Vec<String>,
    /// The program whose log it is.
    pub program: Program,
}

/// What a follower is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Here {
    /// Its name.
    pub name: String,
    /// Version of the entries that it reads.
    pub format: u32,
    /// What its runtime is.
    pub build: String,
    /// What its processor can do.
    pub features: Vec<String>,
}

/// Most remarks that are sent.
pub const REMARKS_MAX: usize = 8;

impl Here {
    /// Why the log cannot be kept here.
    pub fn refuses(&self, hello: &Hello) -> Option<String> {
        let name = &self.name;
        if hello.protocol != crate::PROTOCOL {
            let (theirs, ours) = (hello.protocol, crate::PROTOCOL);
            return Some(format!(
                "{name} speaks version {ours} of the protocol, and was spoken to in version {theirs}"
            ));
        }
        if hello.format != self.format {
            let (theirs, ours) = (hello.format, self.format);
            return Some(format!(
                "{name} keeps recordings of version {ours}, and this one is of version {theirs}"
            ));
        }
        if !is_name(&hello.group) {
            return Some(format!("{name} keeps no log under the name {:?}", hello.group));
        }
        None
    }

    /// What stands against running the program here; the log is kept all the same. `program` is the hash of the file that
    /// lies here at the program's path, if there is one.
    pub fn remarks(&self, hello: &Hello, program: Option<[u8; 32]>) -> Vec<String> {
        let (name, path) = (&self.name, &hello.program.path);
        let mut remarks = Vec::new();
        if hello.build != self.build {
            remarks.push(format!("{name} has another runtime: {}, not {}", self.build, hello.build));
        }
        let lacking: Vec<&str> =
            hello.features.iter().filter(|one| !self.features.contains(one)).map(String::as_str).collect();
        if !lacking.is_empty() {
            remarks.push(format!("the processor of {name} does not have {}", lacking.join(", ")));
        }
        match program {
            None => remarks.push(format!("{name} has no {path}")),
            Some(hash) if hash != hello.program.hash => {
                remarks.push(format!("{path} is another file on {name}"))
            }
            Some(_) => {}
        }
        remarks
    }
}

/// A name becomes a file's name at the follower.
pub fn is_name(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    !name.is_empty() && name.len() <= 64 && name.chars().all(legal) && !name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> Here {
        Here { name: "n2".into(), format: 3, build: "b".into(), features: vec!["avx".into(), "sse2".into()] }
    }

    fn hello() -> Hello {
        Hello {
            protocol: crate::PROTOCOL,
            format: 3,
            group: "redis".into(),
            build: "b".into(),
            features: vec!["sse2".into()],
            program: Program { path: "/bin/x".into(), hash: [7; 32] },
            ..Hello::default()
        }
    }

    #[test]
    fn each_difference_is_one_sentence() {
        assert_eq!(here().refuses(&hello()), None);
        assert_eq!(here().remarks(&hello(), Some([7; 32])), Vec::<String>::new());
        let refused = |change: fn(&mut Hello)| {
            let mut hello = hello();
            change(&mut hello);
            here().refuses(&hello).unwrap_or_default()
        };
        assert_eq!(
            refused(|hello| hello.protocol = 9),
            "n2 speaks version 3 of the protocol, and was spoken to in version 9"
        );
        assert_eq!(
            refused(|hello| hello.format = 2),
            "n2 keeps recordings of version 3, and this one is of version 2"
        );
        assert_eq!(refused(|hello| hello.group = "../x".into()), "n2 keeps no log under the name \"../x\"");
        let mut other = hello();
        other.build = "c".into();
        other.features.push("avx512f".into());
        assert_eq!(
            here().remarks(&other, Some([8; 32])),
            [
                "n2 has another runtime: b, not c",
                "the processor of n2 does not have avx512f",
                "/bin/x is another file on n2"
            ]
        );
        assert_eq!(here().remarks(&hello(), None), ["n2 has no /bin/x"]);
    }
}
