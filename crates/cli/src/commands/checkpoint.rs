//! `understudy checkpoint`: a checkpoint of a program that runs.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use us_supervisor::checkpoint::files::{self, Prepared};
use us_supervisor::checkpoint::key::KeyFile;
use us_supervisor::folder::Found;
use us_supervisor::{Error, checkpoint};

use super::print;
use crate::args::checkpoint::Order;

/// Writes the checkpoint, and says how large it is. Nothing is left of one that is not whole.
pub fn take(group: &Found, wanted: &Order, json: bool) -> Result<i32, Error> {
    let output = &*wanted.output;
    let key = wanted.encrypt.as_deref().map(KeyFile::read).transpose()?;
    let open = |path: &Path| File::open(path).map_err(|cause| Error::file("open", path, cause));
    let base = wanted.incremental.as_deref().map(open).transpose()?;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(output);
    let file = file.map_err(|cause| Error::file("make", output, cause))?;
    let ends = (wanted.stop, wanted.keep);
    let prepare = |folder: &PathBuf| files::prepare(group, folder, &wanted.volumes);
    let taken = wanted.with_files.as_ref().map(prepare).transpose().and_then(|prepared| {
        let answer =
            checkpoint::take::ask(group, &file, ends, key.as_ref(), base.as_ref(), prepared.as_ref())?;
        prepared.into_iter().for_each(Prepared::keep);
        Ok(answer)
    });
    let answer = taken.inspect_err(|_| {
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
    let files = wanted.with_files.as_ref().map_or(String::new(), |folder| {
        format!(
            "; {} files, {:.1} MiB, are in {}: {:.1} MiB of them were copied while it stood still",
            number("files"),
            mib("file_bytes"),
            folder.display(),
            mib("file_bytes_standing"),
        )
    });
    let line = format!(
        "{}: {} holds {:.1} MiB of memory{changed} in {:.1} MiB, written in {:.2} s{files}\n",
        group.name,
        output.display(),
        mib("memory_bytes"),
        mib("bytes"),
        number("seconds"),
    );
    Ok(print(line.as_bytes()))
}
