//! `man` and `completions`: what other programs show of the definition of the flags.

use std::path::Path;

use clap_complete::Shell;
use us_supervisor::{Error, folder};

use super::print;

/// What clap does not know: the end of the first page, in roff.
const MORE: &str = include_str!("more.roff");

/// Commands whose argument is a group.
const OF_GROUPS: [&str; 7] = ["status", "explain", "top", "wait", "stop", "failover", "signal"];

/// The page of `command`, or of understudy itself.
pub fn page(command: Option<&str>, definition: &clap::Command) -> Result<i32, Error> {
    let all = pages(definition);
    let wanted = command.map_or("understudy".into(), |command| format!("understudy-{command}"));
    match all.iter().find(|(name, _)| *name == wanted) {
        Some((_, page)) => Ok(print(page)),
        None => {
            let names: Vec<&str> =
                all.iter().filter_map(|(name, _)| name.strip_prefix("understudy-")).collect();
            let wanted = command.unwrap_or_default();
            Err(Error::Usage(format!("there is no command {wanted}; there are: {}", names.join(", "))))
        }
    }
}

/// Writes every page into `folder`, which is made where it is missing.
pub fn write_all(folder: &Path, definition: &clap::Command) -> Result<i32, Error> {
    std::fs::create_dir_all(folder).map_err(|cause| Error::file("make", folder, cause))?;
    for (name, page) in pages(definition) {
        let file = folder.join(format!("{name}.1"));
        std::fs::write(&file, page).map_err(|cause| Error::file("write", file, cause))?;
    }
    Ok(0)
}

/// All pages and their names.
fn pages(definition: &clap::Command) -> Vec<(String, Vec<u8>)> {
    let mut whole = definition.clone().disable_help_subcommand(true);
    whole.build();
    let commands = whole.get_subcommands().filter(|command| !command.is_hide_set());
    let mut pages: Vec<_> = commands.map(|command| rendered(command, SEE)).collect();
    pages.insert(0, rendered(&whole, MORE));
    pages
}

/// The end of every other page.
const SEE: &str = ".SH \"SEE ALSO\"\n.BR understudy (1)\n";

fn rendered(command: &clap::Command, end: &str) -> (String, Vec<u8>) {
    let name = command.get_display_name().unwrap_or("understudy").to_owned();
    let mut page = Vec::new();
    let source = concat!("understudy ", env!("CARGO_PKG_VERSION"));
    // Writing to memory does not fail.
    let _ = clap_mangen::Man::new(command.clone()).source(source).manual("Understudy").render(&mut page);
    page.extend(end.bytes());
    (name, ascii(&String::from_utf8_lossy(&page)).into_bytes())
}

/// The page as every roff reads it.
fn ascii(page: &str) -> String {
    let written = |c: char| if c.is_ascii() { c.to_string() } else { format!("\\[u{:04X}]", c as u32) };
    page.chars().map(written).collect()
}

/// Names of this user's groups, one a line.
pub fn names() -> i32 {
    print(folder::groups().into_iter().map(|group| group.name + "\n").collect::<String>().as_bytes())
}

/// The completions of `shell`: of the flags, and of groups where their names are meant.
pub fn completions(shell: Shell, definition: &mut clap::Command) -> i32 {
    let mut script = Vec::new();
    clap_complete::generate(shell, definition, "understudy", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    print(with_names(shell, script).as_bytes())
}

fn with_names(shell: Shell, script: String) -> String {
    let commands = OF_GROUPS.join("|");
    match shell {
        Shell::Bash => {
            // Behind the generated function, which knows the flags and not the groups.
            let both = format!(
                r#"
_understudy_and_groups() {{
    _understudy "$@"
    case "${{COMP_WORDS[1]}}" in
        {commands})
            if [[ ${{COMP_WORDS[COMP_CWORD]}} != -* && ${{COMP_WORDS[COMP_CWORD - 1]}} != -* ]]; then
                COMPREPLY=($(compgen -W "$(understudy names 2>/dev/null)" -- "${{COMP_WORDS[COMP_CWORD]}}"))
            fi
            ;;
    esac
}}
complete -F _understudy_and_groups -o nosort -o bashdefault -o default understudy
"#
            );
            script + &both
        }
        Shell::Zsh => {
            let group =
                ["name -- The group:_default", "name -- The group; it may be about to start:_default"];
            let named = group.iter().fold(script, |script, old| {
                script.replace(old, &old.replace("_default", "_understudy_groups"))
            });
            let named = named.replace(
                "::name -- Only groups whose names contain this:_default",
                "::name -- Only groups whose names contain this:_understudy_groups",
            );
            let named = named.replace(
                "::name -- Only this group:_default",
                "::name -- Only this group:_understudy_groups",
            );
            let function = "_understudy_groups() {\n    local -a groups\n    groups=(${(f)\"$(understudy names 2>/dev/null)\"})\n    compadd -a groups\n}\n\n";
            named.replacen("_understudy() {", &format!("{function}_understudy() {{"), 1)
        }
        Shell::Fish => {
            let commands = OF_GROUPS.join(" ");
            script
                + &format!(
                    "complete -c understudy -n \"__fish_seen_subcommand_from {commands}\" -f -a \"(understudy names 2>/dev/null)\"\n"
                )
        }
        _ => script,
    }
}
