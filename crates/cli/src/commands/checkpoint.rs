//! `understudy checkpoint`: a checkpoint of a program that runs.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use us_supervisor::checkpoint::key::KeyFile;
use us_supervisor::folder::Found;
use us_supervisor::{Error, checkpoint};

use super::print;

/// Writes the checkpoint, and says how large it is. Nothing is left of one that is not whole.
pub fn take(
    group: &Found,
    output: &Path,
    (key, base): (Option<&KeyFile>, Option<&Path>),
    (stop, keep): (bool, bool),
    json: bool,
) -> Result<i32, Error> {
    let base = base.map(|path| File::open(path).map_err(|cause| Error::file("open", path, cause)));
    let base = base.transpose()?;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(output);
    let file = file.map_err(|cause| Error::file("make", output, cause))?;
    let answer = checkpoint::take::ask(group, &file, (stop, keep), key, base.as_ref()).inspect_err(|_| {
        let _ = std::fs::remove_file(output);
    })?;
    if json {
        return Ok(print(format!("{answer}\n").as_bytes()));
    }
    let number = |name: &str| answer[name].as_f64().unwrap_or_default();
    let mib = |name: &str| number(name) / f64::from(1 << 20);
    let changed = match answer["base"].as_str() {
        Some(base) => format!(", {:.1} MiB of it not in {base},", mib("changed_bytes")),
        None => String::new(),
    };
    let line = format!(
        "{}: {} holds {:.1} MiB of memory{changed} in {:.1} MiB, written in {:.2} s\n",
        group.name,
        output.display(),
        mib("memory_bytes"),
        mib("bytes"),
        number("seconds"),
    );
    Ok(print(line.as_bytes()))
}
