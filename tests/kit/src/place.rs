//! Where things are: the source tree, the target folder, the understudy binary.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};

/// The folders of one kit run.
#[derive(Clone, Debug)]
pub struct Place {
    /// The source tree: the folder that holds `guests/guest.h`.
    pub root: PathBuf,
    /// Where built guests, references and artifacts go.
    pub target: PathBuf,
}

/// Flags shared by all subcommands that say where things are.
#[derive(Clone, Debug, clap::Args)]
pub struct PlaceOptions {
    /// The understudy binary [default: target/release/understudy of the source tree]
    #[arg(long, value_name = "PATH", env = "UNDERSTUDY")]
    pub understudy: Option<PathBuf>,
    /// The source tree [default: the nearest folder upward that holds guests/guest.h]
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Folder for built guests and artifacts [default: target/ of the source tree]
    #[arg(long, value_name = "DIR")]
    pub target: Option<PathBuf>,
}

impl PlaceOptions {
    /// Finds the source tree and makes the target folder.
    pub fn place(&self) -> Result<Place> {
        let root = match &self.root {
            Some(root) => root.clone(),
            None => find_root(&env::current_dir()?)?,
        };
        let target = self.target.clone().unwrap_or_else(|| root.join("target"));
        fs::create_dir_all(&target).with_context(|| format!("making {}", target.display()))?;
        Ok(Place { root, target: target.canonicalize()? })
    }

    /// The flags that say the same again, for a command that repeats a failure.
    pub fn repeat(&self) -> String {
        let flags = [("--understudy", &self.understudy), ("--root", &self.root), ("--target", &self.target)];
        let given = flags.into_iter().filter_map(|(flag, path)| path.as_ref().map(|path| (flag, path)));
        given.map(|(flag, path)| format!(" {flag} {}", path.display())).collect()
    }

    /// The understudy binary, or the reason why protected modes cannot run.
    pub fn understudy(&self, place: &Place) -> Result<PathBuf, String> {
        let path = self.understudy.clone().unwrap_or_else(|| place.root.join("target/release/understudy"));
        path.canonicalize().map_err(|_| format!("no understudy binary at {}", path.display()))
    }
}

fn find_root(from: &Path) -> Result<PathBuf> {
    match from.ancestors().find(|dir| dir.join("guests/guest.h").is_file()) {
        Some(dir) => Ok(dir.to_path_buf()),
        None => bail!("no guests/guest.h in {} or above it: give --root", from.display()),
    }
}

impl Place {
    /// The folder of the guest binaries.
    pub fn guests(&self) -> PathBuf {
        self.target.join("guests")
    }

    /// A fresh folder for one trial, unique to this kit process.
    pub fn fresh(&self, label: &str) -> Result<PathBuf> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = self.target.join("kit/work").join(format!("{}-{n}-{label}", std::process::id()));
        fs::create_dir_all(dir.join("tmp")).with_context(|| format!("making {}", dir.display()))?;
        Ok(dir)
    }

    /// Moves a failed trial's folder to where it is kept; an older one of the same name is replaced.
    pub fn keep(&self, dir: &Path, label: &str) -> Result<PathBuf> {
        let kept = self.target.join("kit/failed").join(label);
        if kept.exists() {
            fs::remove_dir_all(&kept)?;
        }
        fs::create_dir_all(self.target.join("kit/failed"))?;
        fs::rename(dir, &kept).with_context(|| format!("keeping {}", kept.display()))?;
        Ok(kept)
    }
}

/// How this kit was started, for commands to paste.
pub fn own_path() -> String {
    env::args().next().unwrap_or_else(|| "kit".to_owned())
}

/// The full path of a program on `PATH`, or where servers are, if it is installed.
pub fn installed(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let system = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    env::split_paths(&path).chain(system).map(|dir| dir.join(program)).find(|file| file.is_file())
}
