//! Whether Grafana takes the board of `contrib/`: its fields and their values, as Grafana's schema of dashboards has them
//! (kinds/dashboard, and the panels' own panelcfg), as far as the board may come to use them. What that schema closes is closed
//! here: a field that it does not know fails. What it asks for without a default has to be there.

use std::collections::BTreeSet;

use serde_json::Value;

/// What a value may be.
enum Is {
    Text,
    Flag,
    Number,
    /// A whole number between these.
    Whole(i64, i64),
    /// One of these words.
    Word(&'static [&'static str]),
    /// A list of these.
    List(&'static Is),
    /// An object with these fields, and no others.
    Closed(&'static [Field]),
    /// An object with these fields, and any others.
    Open(&'static [Field]),
    /// An object whose names are the board's own.
    Map(&'static Is),
    /// Either.
    Or(&'static Is, &'static Is),
    Null,
    /// `false`, and not `true`.
    Off,
}

use Is::{Closed, Flag, List, Map, Null, Number, Off, Open, Or, Text, Whole, Word};

/// Its name, whether it has to be there, and what it is.
struct Field(&'static str, bool, Is);

const MUST: bool = true;
const MAY: bool = false;
const U16: Is = Whole(0, 65_535);
const U32: Is = Whole(0, 4_294_967_295);
const I32: Is = Whole(-2_147_483_648, 2_147_483_647);
const ANY: Is = Open(&[]);

const BOARD: Is = Closed(&[
    Field("id", MAY, Or(&U32, &Null)),
    Field("uid", MAY, Text),
    Field("title", MAY, Text),
    Field("description", MAY, Text),
    Field("tags", MAY, List(&Text)),
    Field("timezone", MAY, Text),
    Field("editable", MAY, Flag),
    Field("graphTooltip", MAY, Whole(0, 2)),
    Field("time", MAY, Closed(&[Field("from", MUST, Text), Field("to", MUST, Text)])),
    Field("fiscalYearStartMonth", MAY, Whole(0, 11)),
    Field("liveNow", MAY, Flag),
    Field("weekStart", MAY, Text),
    Field("refresh", MAY, Or(&Text, &Off)),
    Field("schemaVersion", MUST, U16),
    Field("version", MAY, U32),
    Field("panels", MUST, List(&ANY)),
    Field("templating", MAY, Closed(&[Field("list", MAY, List(&VARIABLE))])),
    Field("annotations", MAY, Closed(&[Field("list", MAY, List(&ANNOTATION))])),
    Field("links", MAY, List(&LINK)),
]);

const SOURCE: Is = Closed(&[Field("type", MAY, Text), Field("uid", MAY, Text)]);

const ANNOTATION: Is = Open(&[
    Field("name", MUST, Text),
    Field("datasource", MUST, SOURCE),
    Field("enable", MAY, Flag),
    Field("hide", MAY, Flag),
    Field("iconColor", MUST, Text),
]);

const LINK: Is = Closed(&[
    Field("title", MUST, Text),
    Field("type", MUST, Word(&["link", "dashboards"])),
    Field("icon", MUST, Text),
    Field("tooltip", MUST, Text),
    Field("url", MAY, Or(&Text, &Null)),
    Field("tags", MUST, List(&Text)),
    Field("asDropdown", MAY, Flag),
    Field("targetBlank", MAY, Flag),
    Field("includeVars", MAY, Flag),
    Field("keepTime", MAY, Flag),
]);

/// The schema leaves it open for what a kind of variable has besides; this is what there is of these two kinds.
const VARIABLE: Is = Closed(&[
    Field("type", MUST, Word(&["query", "datasource"])),
    Field("name", MUST, Text),
    Field("label", MAY, Text),
    Field("description", MAY, Text),
    Field("hide", MAY, Whole(0, 2)),
    Field("skipUrlSync", MAY, Flag),
    Field("query", MUST, Or(&Text, &ANY)),
    Field("definition", MAY, Text),
    Field("datasource", MAY, SOURCE),
    Field("current", MAY, ANY),
    Field("options", MAY, List(&ANY)),
    Field("refresh", MAY, Whole(0, 2)),
    Field("regex", MAY, Text),
    Field("includeAll", MAY, Flag),
    Field("multi", MAY, Flag),
    Field("allValue", MAY, Text),
    Field("sort", MAY, Whole(0, 8)),
]);

/// A panel, whose options are of this kind.
fn panel(options: &'static Is) -> [Field; 15] {
    [
        Field("type", MUST, Text),
        Field("id", MAY, U32),
        Field("pluginVersion", MAY, Text),
        Field("targets", MAY, List(&QUERY)),
        Field("title", MAY, Text),
        Field("description", MAY, Text),
        Field("transparent", MAY, Flag),
        Field("datasource", MAY, SOURCE),
        Field(
            "gridPos",
            MUST,
            Closed(&[
                Field("h", MUST, Whole(1, 1000)),
                Field("w", MUST, Whole(1, 24)),
                Field("x", MUST, Whole(0, 23)),
                Field("y", MUST, U32),
            ]),
        ),
        Field("links", MAY, List(&LINK)),
        Field("maxDataPoints", MAY, Number),
        Field("interval", MAY, Text),
        Field("timeFrom", MAY, Text),
        Field("options", MUST, Or(options, options)),
        Field(
            "fieldConfig",
            MUST,
            Closed(&[Field("defaults", MUST, FIELDS), Field("overrides", MUST, List(&OVERRIDE))]),
        ),
    ]
}

/// The schema leaves a target to its data source; this is Prometheus's.
const QUERY: Is = Closed(&[
    Field("refId", MUST, Text),
    Field("expr", MUST, Text),
    Field("datasource", MAY, SOURCE),
    Field("legendFormat", MAY, Text),
    Field("instant", MAY, Flag),
    Field("range", MAY, Flag),
    Field("exemplar", MAY, Flag),
    Field("hide", MAY, Flag),
    Field("interval", MAY, Text),
    Field("format", MAY, Word(&["time_series", "table", "heatmap"])),
    Field("editorMode", MAY, Word(&["code", "builder"])),
]);

const FIELDS: Is = Closed(&[
    Field("displayName", MAY, Text),
    Field("description", MAY, Text),
    Field("unit", MAY, Text),
    Field("decimals", MAY, Number),
    Field("min", MAY, Number),
    Field("max", MAY, Number),
    Field("mappings", MAY, List(&MAPPING)),
    Field(
        "thresholds",
        MAY,
        Closed(&[Field("mode", MUST, Word(&["absolute", "percentage"])), Field("steps", MUST, List(&STEP))]),
    ),
    Field("color", MAY, Closed(&[Field("mode", MUST, Text), Field("fixedColor", MAY, Text)])),
    Field("links", MAY, List(&ANY)),
    Field("noValue", MAY, Text),
    Field("custom", MAY, ANY),
]);

const STEP: Is = Closed(&[Field("value", MAY, Or(&Number, &Null)), Field("color", MUST, Text)]);

const MAPPING: Is = Closed(&[Field("type", MUST, Word(&["value"])), Field("options", MUST, Map(&MAPPED))]);

const MAPPED: Is = Closed(&[
    Field("text", MAY, Text),
    Field("color", MAY, Text),
    Field("icon", MAY, Text),
    Field("index", MAY, I32),
]);

const OVERRIDE: Is = Closed(&[
    Field("matcher", MUST, Open(&[Field("id", MUST, Text)])),
    Field("properties", MUST, List(&Open(&[Field("id", MUST, Text)]))),
]);

const STAT: Is = Closed(&[
    Field("graphMode", MAY, Word(&["none", "line", "area"])),
    Field("colorMode", MAY, Word(&["value", "background", "background_solid", "none"])),
    Field("justifyMode", MAY, Word(&["auto", "center"])),
    Field("textMode", MAY, Word(&["auto", "value", "value_and_name", "name", "none"])),
    Field("wideLayout", MAY, Flag),
    Field(
        "reduceOptions",
        MUST,
        Closed(&[
            Field("calcs", MUST, List(&Text)),
            Field("fields", MAY, Text),
            Field("values", MAY, Flag),
            Field("limit", MAY, Number),
        ]),
    ),
    Field("orientation", MUST, Word(&["auto", "vertical", "horizontal"])),
]);

const SERIES: Is = Closed(&[
    Field("timezone", MAY, List(&Text)),
    Field(
        "legend",
        MUST,
        Closed(&[
            Field("displayMode", MUST, Word(&["list", "table", "hidden"])),
            Field("placement", MUST, Word(&["bottom", "right"])),
            Field("showLegend", MUST, Flag),
            Field("calcs", MUST, List(&Text)),
        ]),
    ),
    Field(
        "tooltip",
        MUST,
        Closed(&[
            Field("mode", MUST, Word(&["single", "multi", "none"])),
            Field("sort", MUST, Word(&["asc", "desc", "none"])),
        ]),
    ),
]);

const HEATMAP: Is = Closed(&[
    Field("calculate", MAY, Flag),
    Field("cellGap", MAY, Whole(0, 25)),
    Field(
        "yAxis",
        MUST,
        Closed(&[
            Field("unit", MAY, Text),
            Field("reverse", MAY, Flag),
            Field("decimals", MAY, Number),
            Field("min", MAY, Number),
            Field("max", MAY, Number),
            Field("axisPlacement", MAY, Word(&["auto", "top", "right", "bottom", "left", "hidden"])),
        ]),
    ),
]);

/// What of a value is not as it should be, each with its place.
fn wrong(at: &str, value: &Value, is: &Is, found: &mut Vec<String>) {
    let right = match is {
        Text => value.is_string(),
        Flag => value.is_boolean(),
        Number => value.is_number(),
        Null => value.is_null(),
        Off => *value == Value::Bool(false),
        Whole(from, to) => value.as_i64().is_some_and(|number| (*from..=*to).contains(&number)),
        Word(words) => value.as_str().is_some_and(|word| words.contains(&word)),
        Or(one, other) => {
            let (mut of_one, mut of_other) = (Vec::new(), Vec::new());
            wrong(at, value, one, &mut of_one);
            wrong(at, value, other, &mut of_other);
            if !of_one.is_empty() && !of_other.is_empty() {
                found.append(&mut of_one);
            }
            return;
        }
        List(each) => {
            for (number, entry) in value.as_array().into_iter().flatten().enumerate() {
                wrong(&format!("{at}[{number}]"), entry, each, found);
            }
            value.is_array()
        }
        Map(each) => {
            for (name, entry) in value.as_object().into_iter().flatten() {
                wrong(&format!("{at}.{name}"), entry, each, found);
            }
            value.is_object()
        }
        Closed(fields) | Open(fields) => {
            fields_of(at, value, fields, matches!(is, Closed(_)), found);
            value.is_object()
        }
    };
    if !right {
        found.push(format!("{at} is {value}"));
    }
}

fn fields_of(at: &str, value: &Value, fields: &[Field], is_closed: bool, found: &mut Vec<String>) {
    let Some(object) = value.as_object() else { return };
    for Field(name, must, is) in fields {
        match object.get(*name) {
            Some(entry) => wrong(&format!("{at}.{name}"), entry, is, found),
            None if *must => found.push(format!("{at}.{name} is missing")),
            None => {}
        }
    }
    let unknown = object.keys().filter(|name| !fields.iter().any(|field| field.0 == **name));
    found.extend(unknown.filter(|_| is_closed).map(|name| format!("{at}.{name} is unknown")));
}

fn options_of(kind: &str) -> Option<&'static Is> {
    match kind {
        "stat" => Some(&STAT),
        "timeseries" => Some(&SERIES),
        "heatmap" => Some(&HEATMAP),
        _ => None,
    }
}

fn board() -> Value {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/grafana/understudy.json");
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

/// All that is wrong with a board.
fn mistakes(board: &Value) -> Vec<String> {
    let mut found = Vec::new();
    wrong("board", board, &BOARD, &mut found);
    for panel_value in board["panels"].as_array().into_iter().flatten() {
        let at = format!("panel {:?}", panel_value["title"].as_str().unwrap_or("without a title"));
        match options_of(panel_value["type"].as_str().unwrap_or_default()) {
            Some(options) => fields_of(&at, panel_value, &panel(options), true, &mut found),
            None => found.push(format!("{at}: its type is unknown")),
        }
        // The first step begins below everything, and the others follow in order.
        let steps = panel_value["fieldConfig"]["defaults"]["thresholds"]["steps"].as_array();
        let values: Vec<Option<f64>> =
            steps.into_iter().flatten().map(|step| step["value"].as_f64()).collect();
        if values.iter().skip(1).any(Option::is_none)
            || !values.is_sorted()
            || values.first().is_some_and(Option::is_some)
        {
            found.push(format!("{at}: its steps are not in order"));
        }
    }
    found
}

#[test]
fn the_board_is_what_grafanas_schema_asks_for() {
    assert_eq!(mistakes(&board()), Vec::<String>::new());
}

/// What makes a board wrong.
type Break = fn(&mut Value);

/// A check that finds nothing would prove nothing.
#[test]
fn a_wrong_board_is_noticed() {
    let breaks: [(&str, Break); 8] = [
        ("board.graphTooltip is 3", |board| board["graphTooltip"] = 3.into()),
        ("board.schemaVersion is missing", |board| {
            _ = board.as_object_mut().unwrap().remove("schemaVersion")
        }),
        ("board.refreshed is unknown", |board| board["refreshed"] = "10s".into()),
        (".colorMode is \"loud\"", |board| board["panels"][0]["options"]["colorMode"] = "loud".into()),
        (".gridPos.w is 25", |board| board["panels"][0]["gridPos"]["w"] = 25.into()),
        (".expr is missing", |board| {
            _ = board["panels"][0]["targets"][0].as_object_mut().unwrap().remove("expr")
        }),
        ("its type is unknown", |board| board["panels"][0]["type"] = "statt".into()),
        (".unit is 1", |board| board["panels"][0]["fieldConfig"]["defaults"]["unit"] = 1.into()),
    ];
    for (said, break_it) in breaks {
        let mut board = board();
        break_it(&mut board);
        let found = mistakes(&board);
        assert!(found.iter().any(|mistake| mistake.contains(said)), "{said}: {found:?}");
    }
}

/// What the schema cannot say: panels that do not lie on each other, each with its own number, that ask the chosen data source.
#[test]
fn the_board_is_laid_out() {
    let board = board();
    let uid = board["uid"].as_str().unwrap();
    assert!((8..=40).contains(&uid.len()) && uid.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{uid}");
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in board["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: its id is another's");
        let at = |side: &str| panel["gridPos"][side].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{title}: it is outside");
        for (x, y) in (0..at("w")).flat_map(|x| (0..at("h")).map(move |y| (x, y))) {
            assert!(cells.insert((at("x") + x, at("y") + y)), "{title}: it lies on another");
        }
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{title}: it asks nothing");
        let letters: BTreeSet<&str> =
            targets.iter().map(|target| target["refId"].as_str().unwrap()).collect();
        assert_eq!(letters.len(), targets.len(), "{title}");
        assert!(targets.iter().all(|target| target["datasource"]["uid"] == "${datasource}"), "{title}");
    }
}
