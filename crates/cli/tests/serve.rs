//! `serve`: figures for Prometheus, and clients that mean no good.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::{Sandbox, kill, pid, wait_for};
use rustix::process::Signal;

struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(sandbox: &Sandbox) -> Server {
        let mut command = sandbox.understudy(&["serve", "--metrics", "127.0.0.1:0"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address =
            line.trim().strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap().to_owned();
        Server { child, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    fn ask(&self, question: &[u8]) -> String {
        answer_to(self.connect(), question)
    }

    fn metrics(&self) -> String {
        self.ask(METRICS)
    }
}

const METRICS: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn answer_to(mut stream: TcpStream, question: &[u8]) -> String {
    let _ = stream.write_all(question);
    let mut answer = Vec::new();
    // One that is cut off in the middle of its question may hear of a reset.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Each line is a comment or a name, labels and a number; each name has its type said before.
fn check_format(answer: &str) {
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    let mut kinds: Vec<&str> = Vec::new();
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            if let Some(kind) = rest.strip_prefix("TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap();
                assert!(
                    matches!(kind, "gauge" | "counter" | "histogram") && !kinds.contains(&name),
                    "{line}"
                );
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                kinds.push(name);
            }
            continue;
        }
        let (name, rest) = line.split_once('{').unwrap();
        let (labels, value) = rest.split_once("} ").unwrap();
        let base =
            ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        assert!(kinds.contains(&name) || kinds.contains(&base), "{line}");
        let first = if name == "understudy_build_info" { "version=\"" } else { "group=\"" };
        assert!(labels.starts_with(first) && value.parse::<f64>().is_ok(), "{line}");
    }
    assert!(kinds.len() > 10, "{kinds:?}");
}

#[test]
fn figures_of_a_group() {
    let sandbox = Sandbox::new("follow");
    let _running = sandbox.start("g", &["wait"]);
    kill(pid(&sandbox.wait_for_event("protected")["primary"]), Signal::KILL);
    sandbox.wait_for_event("recloned");
    let server = Server::start(&sandbox);
    let wanted = "understudy_failovers_total{group=\"g\"} 1\n";
    let answer = wait_for(|| Some(server.metrics()).filter(|answer| answer.contains(wanted)), wanted);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{answer}");
    for line in [
        "understudy_group_protected{group=\"g\"} 1\n",
        "understudy_unsettled_calls_total{group=\"g\"} 0\n",
        "understudy_group_state{group=\"g\",state=\"protected\"} 1\n",
        "understudy_failover_blackout_seconds_count{group=\"g\"} 1\n",
        "understudy_reclone_pause_seconds_bucket{group=\"g\",le=\"+Inf\"} 1\n",
        "understudy_standby_lag_bytes{group=\"g\",process=\"",
    ] {
        assert!(answer.contains(line), "{line} is not in {answer}");
    }
    check_format(&answer);
    let table = server.ask(b"GET /status.txt HTTP/1.0\r\n\r\n");
    assert!(table.contains("\r\n\r\nNAME") && table.contains("\ng     protected"), "{table}");
    assert!(sandbox.output(&["stop", "g"]).status.success());
    wait_for(|| (!server.metrics().contains("group=\"g\"")).then_some(()), "the group to be gone");
    check_format(&server.metrics());
}

#[test]
fn figures_of_one_group_beside_its_run() {
    let sandbox = Sandbox::new("follow");
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let address = free();
    let running = sandbox.start_with(&["--metrics", &address], "g", &["wait"]);
    let _other = sandbox.start("h", &["wait"]);
    let ask = |question| TcpStream::connect(&address).map(|stream| answer_to(stream, question)).ok();
    let wanted = "understudy_group_protected{group=\"g\"} 1\n";
    let answer = wait_for(|| ask(METRICS).filter(|answer| answer.contains(wanted)), wanted);
    assert!(!answer.contains("group=\"h\""), "{answer}");
    check_format(&answer);
    let table = ask(b"GET /status.txt HTTP/1.0\r\n\r\n").unwrap();
    assert!(table.contains("\ng     protected") && !table.contains("\nh "), "{table}");
    // Signals go on to the program, not to who answers.
    assert!(sandbox.output(&["stop", "g"]).status.success());
    let (_, said) = running.finish();
    assert!(said.contains(&format!("figures at http://{address}/metrics")), "{said}");
    assert!(TcpStream::connect(&address).is_err());
}

/// A program may call itself what it likes: the page has nothing of that, and the figures have it as a string.
#[test]
fn a_page_and_what_it_asks_for() {
    const NAME: &str = "<b id=x>\u{202e}&\"'";
    let sandbox = Sandbox::new("follow");
    let program = sandbox.folder.path().join(NAME);
    std::fs::copy(&common::built().guest, &program).unwrap();
    let events = sandbox.events_path();
    let mut command = sandbox.understudy(&["run", "--name", "g", "--events", events.to_str().unwrap(), "--"]);
    let mut running = command.arg(&program).arg("wait").stdout(Stdio::null()).spawn().unwrap();
    sandbox.wait_for_event("protected");
    let server = Server::start(&sandbox);
    let figures = || {
        let answer = server.ask(b"GET /figures.json HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("\r\nContent-Type: application/json\r\n"), "{head}");
        assert!(!head.contains("Access-Control-Allow-Origin"), "{head}");
        let figures: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(figures["version"], 1);
        figures["groups"].get(0).cloned()
    };
    let group = wait_for(figures, "figures of the group");
    assert_eq!((&group["name"], &group["state"]), (&"g".into(), &"protected".into()), "{group}");
    let process = &group["processes"][0];
    assert_eq!(process["program"], "<b id=x>\\u{202e}&\"'", "{group}");
    assert!(process["primary_pid"].is_u64() && process["standbys"][0]["lag_bytes"].is_u64(), "{group}");
    let bounds = group["blackout"]["bounds"].as_array().unwrap().len();
    assert_eq!(group["blackout"]["counts"].as_array().unwrap().len(), bounds + 1, "{group}");
    let page = server.ask(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let (head, body) = page.split_once("\r\n\r\n").unwrap();
    let nonce = body.split("<script nonce=\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(head.contains("\r\nContent-Type: text/html; charset=utf-8\r\n"), "{head}");
    let policy = format!(
        "\r\nContent-Security-Policy: default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; "
    );
    assert!(nonce.len() == 32 && head.contains(&policy), "{head}");
    assert!(!body.contains("id=x") && !server.ask(b"GET / HTTP/1.0\r\n\r\n").contains(nonce));
    assert!(sandbox.output(&["stop", "g"]).status.success());
    running.wait().unwrap();
}

#[test]
fn clients_that_mean_no_good() {
    let sandbox = Sandbox::new("silent");
    let server = Server::start(&sandbox);
    // More than there is room for say nothing, or as little as keeps them alive.
    let mut silent: Vec<TcpStream> = (0..40).map(|_| server.connect()).collect();
    let begun = Instant::now();
    let answer = wait_for(
        || {
            silent.iter_mut().for_each(|stream| _ = stream.write_all(b"G"));
            Some(server.metrics()).filter(|answer| answer.starts_with("HTTP/1.1 200"))
        },
        "an answer",
    );
    check_format(&answer);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    for (question, code) in [
        (&b"POST /metrics HTTP/1.1\r\n\r\n"[..], "405"),
        (b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403"),
        (b"GET /../etc/passwd HTTP/1.1\r\n\r\n", "404"),
        (b"\xff\xfe\r\n\r\n", "400"),
    ] {
        let answer = server.ask(question);
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{code}: {answer}");
    }
    let mut long = b"GET / HTTP/1.1\r\n".to_vec();
    long.resize(1 << 20, b'x');
    let answer = server.ask(&long);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    // One that does not listen.
    let mut deaf = server.connect();
    deaf.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    drop(deaf);
    assert!(server.metrics().starts_with("HTTP/1.1 200"));
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", server.child.id())).unwrap().count();
    assert!(descriptors < 30, "{descriptors}");
}

#[test]
fn an_address_that_is_taken_is_said() {
    let sandbox = Sandbox::new("silent");
    let server = Server::start(&sandbox);
    let out = sandbox.output(&["serve", "--metrics", &server.address]);
    let said = common::text(&out.stderr);
    assert_eq!(out.status.code(), Some(1));
    assert!(said.starts_with(&format!("understudy: cannot listen on {}: ", server.address)), "{said}");
}

/// A file of `contrib/`.
fn contributed(path: &str) -> String {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib").join(path);
    std::fs::read_to_string(file).unwrap()
}

/// Names of metrics in a text.
fn names(text: &str) -> std::collections::BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let starts = text.match_indices("understudy_").filter(|(at, _)| !text[..*at].ends_with(is_part));
    starts.map(|(at, _)| text[at..].split(|c| !is_part(c)).next().unwrap()).collect()
}

/// Whether `serve` exports a series of this name: of a histogram there are three.
fn is_exported(metrics: &str, name: &str) -> bool {
    let has = |name: &str, kind: &str| metrics.contains(&format!("\n# TYPE {name} {kind}\n"));
    let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
    has(name, "gauge") || has(name, "counter") || base.is_some_and(|base| has(base, "histogram"))
}

#[test]
fn the_board_and_the_alerts_use_what_is_exported() {
    let sandbox = Sandbox::new("silent");
    let metrics = Server::start(&sandbox).metrics();
    let rules = contributed("prometheus/understudy.rules.yml");
    let expressions: Vec<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).collect();
    for wanted in ["severity: ", "summary: ", "description: "] {
        let has = rules.lines().filter(|line| line.trim().starts_with(wanted)).count();
        assert_eq!(has, expressions.len(), "{wanted}");
    }
    let board = contributed("grafana/understudy.json");
    for (file, text) in [("rules", expressions.join("\n")), ("board", board)] {
        let used = names(&text);
        assert!(used.len() > 5, "{file}: {used:?}");
        let unknown: Vec<_> = used.iter().filter(|name| !is_exported(&metrics, name)).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
}

/// By Prometheus's own tool, where it is installed: of the package `prometheus`.
#[test]
fn prometheus_takes_the_rules_and_the_figures() {
    let promtool = |arguments: &[&str], input: Stdio| {
        let mut command = std::process::Command::new("promtool");
        command.args(arguments).stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    };
    let rules = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../contrib/prometheus/understudy.rules.yml");
    let checked = match promtool(
        &["check", "rules", "--lint=all", "--lint-fatal", rules.to_str().unwrap()],
        Stdio::null(),
    ) {
        Ok(child) => child.wait_with_output().unwrap(),
        Err(cause) => {
            return eprintln!("prometheus_takes_the_rules_and_the_figures skipped: no promtool: {cause}");
        }
    };
    assert!(checked.status.success(), "{}{}", common::text(&checked.stdout), common::text(&checked.stderr));
    let sandbox = Sandbox::new("follow");
    let _running = sandbox.start("g", &["wait"]);
    sandbox.wait_for_event("protected");
    let server = Server::start(&sandbox);
    let answer =
        wait_for(|| Some(server.metrics()).filter(|answer| answer.contains("group=\"g\"")), "figures");
    let figures = answer.split_once("\r\n\r\n").unwrap().1;
    let mut child = promtool(&["check", "metrics"], Stdio::piped()).unwrap();
    child.stdin.take().unwrap().write_all(figures.as_bytes()).unwrap();
    let checked = child.wait_with_output().unwrap();
    assert!(checked.status.success(), "{}{}", common::text(&checked.stdout), common::text(&checked.stderr));
}
