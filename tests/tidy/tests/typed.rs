//! What others hand over: the program's addresses, which the doors look at only by way of `crates/runtime/src/guest.rs`, and the
//! kernel's texts, which the supervisor reads only by way of its module `proc`.

use us_tidy::{Complaints, root, sources};

const DOORS: &str = "crates/runtime/src/door/";

/// What copies at a bare address.
const BARE: [&str; 6] =
    ["guest::load", "guest::store", "guest::read", "guest::write", "guest::is_writable", "guest::string_len"];

/// What makes a pointer of a number, or of another pointer.
const CASTS: [&str; 2] = ["as *const ", "as *mut "];

/// What is no pointer into the program's memory: the address of a function of ours, for a table or for the kernel.
const FUNCTION: &str = "as *const () as u64";

/// Doors that make pointers, and why those cannot lead where the kernel would say EFAULT.
const MADE: [(&str, &str); 16] = [
    ("barrier.rs", OBJECT),
    ("common.rs", OBJECT),
    ("cond.rs", OBJECT),
    ("mutex.rs", OBJECT),
    ("rwlock.rs", OBJECT),
    ("sem.rs", OBJECT),
    ("spin.rs", OBJECT),
    ("robust.rs", "the list that libc has made known to the kernel, of locks that this thread holds"),
    ("thread_target.rs", "a lock of ours, by its own address"),
    ("thread_c11.rs", HANDED_ON),
    ("thread_create.rs", HANDED_ON),
    ("thread_schedule.rs", HANDED_ON),
    ("timer_notify.rs", HANDED_ON),
    ("exec.rs", "memory that has just been mapped for the environment"),
    ("batch.rs", RING),
    ("witness.rs", RING),
];
const RING: &str = "places in the thread's own ring";
const OBJECT: &str = "an object of libc's: its functions follow a bad address as well";
const HANDED_ON: &str = "a function or a value that is handed on, and not followed";

#[test]
fn doors_look_at_the_program_by_copies_that_may_fail() {
    let mut complaints = Complaints::default();
    for file in sources().iter().filter(|file| file.path.starts_with(DOORS)) {
        for (number, line) in file.text.lines().enumerate() {
            for bare in BARE.iter().filter(|bare| line.contains(**bare)) {
                complaints.add(format!("{}:{}: {bare}", file.path, number + 1));
            }
        }
    }
    complaints.settle("say by GuestPtr or GuestMut what lies there, and which way it goes:");
}

/// The lines of a door that make a pointer.
fn casts(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter(|(_, line)| {
        let line = line.split("//").next().unwrap_or_default().replace(FUNCTION, "");
        CASTS.iter().any(|cast| line.contains(cast))
    })
}

#[test]
fn doors_make_no_pointers_of_addresses() {
    let mut complaints = Complaints::default();
    for file in sources().iter().filter(|file| file.path.starts_with(DOORS)) {
        let name = &file.path[DOORS.len()..];
        if MADE.iter().all(|(known, _)| *known != name) {
            for (number, line) in casts(&file.text) {
                complaints.add(format!("{}:{}: {}", file.path, number + 1, line.trim()));
            }
        }
    }
    for (name, why) in MADE {
        let text = std::fs::read_to_string(root().join(DOORS).join(name)).unwrap_or_default();
        if casts(&text).next().is_none() {
            complaints.add(format!("{DOORS}{name}: needs no exemption any more ({why})"));
        }
    }
    complaints.settle("an address of the program's is no pointer of ours (crates/runtime/src/guest.rs):");
}

/// What is not shipped, and comments, say `/proc` as they like.
fn names_of_proc(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let shipped = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    shipped.lines().enumerate().filter(|(_, line)| {
        !line.trim_start().starts_with("//") && (line.contains("\"/proc") || line.contains("/proc/"))
    })
}

#[test]
fn one_module_reads_what_the_kernel_says_of_others() {
    const READER: [&str; 2] = ["crates/supervisor/src/proc.rs", "crates/supervisor/src/proc/"];
    /// The name of a check.
    const SAID: [(&str, &str); 1] = [("crates/supervisor/src/doctor.rs", "Check::new(\"/proc\",")];
    let mut complaints = Complaints::default();
    let is_ours =
        |path: &str| path.starts_with("crates/supervisor/src/") || path.starts_with("crates/cli/src/");
    for file in sources().iter().filter(|file| is_ours(&file.path)) {
        if READER.iter().any(|reader| file.path.starts_with(reader)) {
            continue;
        }
        for (number, line) in names_of_proc(&file.text) {
            if !SAID.iter().any(|(path, said)| *path == file.path && line.contains(said)) {
                complaints.add(format!("{}:{}: {}", file.path, number + 1, line.trim()));
            }
        }
    }
    complaints.settle("crates/supervisor/src/proc.rs reads there, and knows what the texts mean:");
}
