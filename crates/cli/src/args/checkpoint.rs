//! The flags of `understudy checkpoint`.

use std::path::PathBuf;

use clap::Args;

/// What `checkpoint` is to write.
#[derive(Debug, Args)]
pub struct Order {
    /// The checkpoint: a new file, readable by you alone
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Encrypt it with the key in KEYFILE: 32 random bytes or more, in a file that nobody else can read
    #[arg(long, value_name = "KEYFILE")]
    pub encrypt: Option<PathBuf>,
    /// Hold only what is not in the checkpoint BASE, which is then needed wherever the program is to go on
    #[arg(long, value_name = "BASE")]
    pub incremental: Option<PathBuf>,
    /// Let the next --incremental on it find what has changed without reading all memory (root only): each page that the program
    /// writes to meanwhile takes its room twice
    #[arg(long, conflicts_with = "stop")]
    pub keep: bool,
    /// End the program where its checkpoint is taken: nothing of it happens behind that
    #[arg(long)]
    pub stop: bool,
    /// Also copy the files that the program has open to be written, as they are at that moment, into the new folder DIR
    #[arg(long, value_name = "DIR", conflicts_with = "encrypt")]
    pub with_files: Option<PathBuf>,
    /// With them all that lies in DIR, where the program makes and removes files [repeatable]
    #[arg(long = "volume", value_name = "DIR", requires = "with_files")]
    pub volumes: Vec<PathBuf>,
}
