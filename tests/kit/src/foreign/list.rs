//! The two tables of the foreign battery: which programs there are, and which differences are known.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

/// How a program of the list is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Without Understudy.
    Native,
    /// With the runtime and without a standby.
    Bare,
    /// With a standby.
    Protected,
    /// With a standby, and primaries are killed. What differs in the way before differs in this one.
    Killed,
}

impl Way {
    /// As in the table of differences.
    pub const fn name(self) -> &'static str {
        match self {
            Way::Native => "native",
            Way::Bare => "bare",
            Way::Protected => "protected",
            Way::Killed => "killed",
        }
    }
}

/// One line of a list: `NAME | PACKAGES | COMMAND`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// What it is called in reports and in the table of differences.
    pub name: String,
    /// Debian's packages that it needs.
    pub packages: Vec<String>,
    /// For `sh -c`, in an empty folder.
    pub command: String,
}

/// One line of the table: `NAME | WAYS | DIFFERENCE | REASON`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The task's name; of a suite `NAME/CASE`, in which `*` is any case.
    pub name: String,
    /// In which ways it differs.
    pub ways: Vec<Way>,
    /// Whether it may also be as natively: a race.
    pub sometimes: bool,
    /// What differs, and why.
    pub words: String,
}

impl Known {
    /// Whether this line is about that task, or case of a suite, run that way.
    pub fn covers(&self, name: &str, way: Way) -> bool {
        let same = match self.name.split_once('*') {
            Some((front, back)) => {
                name.len() >= front.len() + back.len() && name.starts_with(front) && name.ends_with(back)
            }
            None => self.name == name,
        };
        let ways = &self.ways;
        same && (ways.contains(&way) || way == Way::Killed && ways.contains(&Way::Protected))
    }
}

/// Lines that say something, with their numbers.
fn rows(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

/// Reads a list of tasks.
pub fn tasks(path: &Path) -> Result<Vec<Task>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    parse_tasks(&text).with_context(|| path.display().to_string())
}

fn parse_tasks(text: &str) -> Result<Vec<Task>> {
    let mut found = Vec::new();
    let mut names = BTreeSet::new();
    for (number, line) in rows(text) {
        let cells: Vec<&str> = line.splitn(3, " | ").map(str::trim).collect();
        let [name, packages, command] = cells[..] else {
            bail!("line {number}: expected NAME | PACKAGES | COMMAND")
        };
        ensure!(names.insert(name), "line {number}: {name} is there twice");
        found.push(Task {
            name: name.to_owned(),
            packages: packages.split(' ').map(str::to_owned).collect(),
            command: command.to_owned(),
        });
    }
    Ok(found)
}

/// Reads the table of known differences.
pub fn known(path: &Path) -> Result<Vec<Known>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    parse_known(&text).with_context(|| path.display().to_string())
}

fn parse_known(text: &str) -> Result<Vec<Known>> {
    let mut found = Vec::new();
    for (number, line) in rows(text) {
        let cells: Vec<&str> = line.splitn(4, " | ").map(str::trim).collect();
        let [name, how, difference, reason] = cells[..] else {
            bail!("line {number}: expected NAME | WAYS | DIFFERENCE | REASON")
        };
        ensure!(!difference.is_empty() && !reason.is_empty(), "line {number}: what differs, and why?");
        let (mut ways, mut sometimes) = (Vec::new(), false);
        for word in how.split(' ') {
            match word {
                "bare" => ways.push(Way::Bare),
                "protected" => ways.push(Way::Protected),
                "killed" => ways.push(Way::Killed),
                "both" => ways.extend([Way::Bare, Way::Protected]),
                "sometimes" => sometimes = true,
                _ => bail!("line {number}: {word} is neither bare, protected, both, killed nor sometimes"),
            }
        }
        ensure!(!ways.is_empty(), "line {number}: in which way does it differ?");
        let words = format!("{difference}: {reason}");
        found.push(Known { name: name.to_owned(), ways, sometimes, words });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{Way, known, parse_known, parse_tasks, tasks};

    #[test]
    fn a_command_may_have_pipes() {
        let found =
            parse_tasks("# words\n\nsort-u | coreutils | printf 'b\\na\\n' | sort\n").expect("a list");
        assert_eq!(found[0].command, "printf 'b\\na\\n' | sort");
        assert!(parse_tasks("a | b\n").is_err());
        assert!(parse_tasks("a | b | c\na | b | d\n").is_err());
    }

    #[test]
    fn a_difference_has_a_reason() {
        let found = parse_known("suite/*_x | both sometimes | other text | a race\n").expect("a table");
        assert!(found[0].sometimes && found[0].covers("suite/test_x", Way::Bare));
        assert!(!found[0].covers("suite/test_y", Way::Bare));
        assert!(found[0].covers("suite/test_x", Way::Killed));
        let killed = parse_known("a | killed sometimes | other text | a number\n").expect("a table");
        assert!(killed[0].covers("a", Way::Killed) && !killed[0].covers("a", Way::Protected));
        assert!(parse_known("a | both | other text\n").is_err());
        assert!(parse_known("a | never | other text | a reason\n").is_err());
    }

    #[test]
    fn the_tables_of_the_tree_can_be_read() {
        let folder = us_tree().join("tests/foreign");
        let listed = tasks(&folder.join("programs")).expect("programs");
        assert!(listed.len() >= 100, "only {} programs", listed.len());
        known(&folder.join("expected")).expect("the table of differences");
    }

    fn us_tree() -> std::path::PathBuf {
        std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .nth(2)
            .expect("two folders up")
            .to_path_buf()
    }
}
