//! What form of an answer a client accepts.

use serde_json::Value;

use super::{Encoding, JSON, OBJECTS, PROTOBUF, STREAMS, YAML};
use crate::status::Failure;
use crate::table::MetaVersion;

/// What the answer is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Whatever the request is about.
    Plain,
    Table(MetaVersion),
    Partial(MetaVersion),
    PartialList(MetaVersion),
    /// All groups and their resources at once.
    AggregatedDiscovery,
}

/// How to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub form: Form,
    pub encoding: Encoding,
    /// For people to read.
    pub pretty: bool,
}

/// Who answers, which decides what can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// One object of a built-in kind, or a write.
    BuiltIn,
    /// Many objects of a built-in kind.
    BuiltInList,
    /// Objects of a custom kind.
    Custom,
    /// `/api` and `/apis`.
    Groups,
    /// What is below them.
    Discovery,
}

impl Answer {
    /// In this form, for who says nothing about it.
    pub(crate) const JSON: Self = Self {
        form: Form::Plain,
        encoding: Encoding::Json,
        pretty: false,
    };

    pub(crate) fn content_type(&self) -> &'static str {
        match (self.encoding, self.form) {
            (Encoding::Json, Form::AggregatedDiscovery) => {
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            }
            (Encoding::Yaml, Form::AggregatedDiscovery) => {
                "application/yaml;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            }
            (Encoding::Json, _) => JSON,
            (Encoding::Yaml, _) => YAML,
        }
    }

    /// The body of an answer.
    pub(crate) fn render(&self, value: &Value) -> Result<Vec<u8>, Failure> {
        let failed = |error: &dyn std::error::Error| Failure::internal(error.to_string());
        match (self.encoding, self.pretty) {
            (Encoding::Yaml, _) => serde_saphyr::to_string(value)
                .map(String::into_bytes)
                .map_err(|error| failed(&error)),
            (Encoding::Json, true) => {
                serde_json::to_vec_pretty(value).map_err(|error| failed(&error))
            }
            (Encoding::Json, false) => {
                let mut line = serde_json::to_vec(value).map_err(|error| failed(&error))?;
                line.push(b'\n');
                Ok(line)
            }
        }
    }
}

/// The best that an `Accept` header allows. A watch is streamed, which YAML is not.
pub(crate) fn negotiate(
    header: Option<&str>,
    endpoint: Endpoint,
    watch: bool,
) -> Result<Answer, Failure> {
    let header = header.unwrap_or_default();
    if header.is_empty() {
        return Ok(Answer::JSON);
    }
    check_route(header, endpoint)?;
    let clauses = clauses(header);
    // aggregated discovery is preferred wherever it stands in the header
    let wanted: &[Wanted] = match endpoint {
        Endpoint::BuiltIn | Endpoint::BuiltInList | Endpoint::Custom => &[Wanted::Objects],
        Endpoint::Groups => &[Wanted::AggregatedDiscovery, Wanted::Plain],
        Endpoint::Discovery => &[Wanted::Plain],
    };
    let answer = wanted
        .iter()
        .find_map(|wanted| clauses.iter().find_map(|clause| clause.answer(*wanted)));
    match answer {
        None => Err(Failure::not_acceptable(&OBJECTS)),
        Some(answer) if watch && answer.encoding == Encoding::Yaml => {
            Err(Failure::not_acceptable(&STREAMS))
        }
        Some(answer) => Ok(answer),
    }
}

/// Which of the media types on offer an `Accept` header prefers; the first if there is none.
pub(crate) fn preferred<'o>(header: Option<&str>, offered: &[&'o str]) -> Option<&'o str> {
    let header = header.filter(|header| !header.is_empty());
    clauses(header.unwrap_or("*/*"))
        .iter()
        .find_map(|clause| offered.iter().find(|one| clause.matches(one)))
        .copied()
}

/// The router of built-in kinds looks at the header before anything else, and knows no `application/*`.
fn check_route(header: &str, endpoint: Endpoint) -> Result<(), Failure> {
    let available: &[&[&str]] = match endpoint {
        Endpoint::BuiltIn => &[&OBJECTS],
        Endpoint::BuiltInList => &[&OBJECTS, &STREAMS],
        Endpoint::Custom | Endpoint::Groups | Endpoint::Discovery => return Ok(()),
    };
    let known = header.split(',').any(|clause| {
        let media_type = clause.split(';').next().unwrap_or_default();
        let media_type = media_type.trim_matches(' ');
        media_type == "*/*" || OBJECTS.contains(&media_type)
    });
    match known {
        true => Ok(()),
        false => Err(Failure::no_representation(&available.concat())),
    }
}

/// Whether an answer in JSON is to be indented: as the query says, else if the client is one that people sit before.
pub(crate) fn pretty(query: Option<&str>, user_agent: Option<&str>) -> bool {
    match query {
        Some(query) if !query.is_empty() => {
            matches!(query, "1" | "t" | "T" | "TRUE" | "true" | "True")
        }
        _ => user_agent.is_some_and(|agent| {
            ["curl", "Wget", "Mozilla/5.0"]
                .iter()
                .any(|human| agent.starts_with(human))
        }),
    }
}

/// What is looked for in a header.
#[derive(Clone, Copy)]
enum Wanted {
    /// Or something made of them.
    Objects,
    Plain,
    AggregatedDiscovery,
}

/// One entry of an `Accept` header.
#[derive(Debug, Default, PartialEq)]
struct Clause<'a> {
    main: &'a str,
    sub: &'a str,
    quality: f64,
    convert: Option<Target<'a>>,
    stream: &'a str,
    server_version: &'a str,
    pretty: bool,
}

/// The kind an answer should have instead of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Target<'a> {
    kind: &'a str,
    group: &'a str,
    version: &'a str,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';');
        let media_type = parts.next()?.trim_matches(' ');
        let (main, sub) = match media_type.split_once('/') {
            Some((_, sub)) if sub.is_empty() || sub.contains('/') => return None,
            Some((main, sub)) => (main.trim_matches(' '), sub.trim_matches(' ')),
            None if media_type == "*" => ("*", "*"),
            None => return None,
        };
        let mut clause = Self {
            main,
            sub,
            quality: 1.0,
            ..Self::default()
        };
        for part in parts {
            let Some((key, value)) = part.split_once('=') else {
                continue;
            };
            if !value.is_empty() && !value.contains('=') {
                clause.set(key.trim_matches(' '), value);
            }
        }
        Some(clause)
    }

    fn set(&mut self, key: &str, value: &'a str) {
        let trimmed = value.trim_matches(' ');
        match key {
            "q" => self.quality = value.parse().unwrap_or_default(),
            "as" => self.convert.get_or_insert_default().kind = trimmed,
            "g" => self.convert.get_or_insert_default().group = trimmed,
            "v" => self.convert.get_or_insert_default().version = trimmed,
            "stream" => self.stream = trimmed,
            "sv" => self.server_version = trimmed,
            "pretty" => self.pretty = trimmed == "1",
            _ => {}
        }
    }

    /// Whether this one is preferred to another.
    fn precedes(&self, other: &Self) -> bool {
        self.quality > other.quality
            || (self.main != "*" && other.main == "*")
            || (self.sub != "*" && other.sub == "*")
    }

    fn matches(&self, media_type: &str) -> bool {
        let (main, sub) = media_type.split_once('/').unwrap_or_default();
        match (self.main, self.sub) {
            ("*", "*") => true,
            (own, "*") => own == main,
            (own, own_sub) => own == main && own_sub == sub,
        }
    }

    fn answer(&self, wanted: Wanted) -> Option<Answer> {
        let form = match wanted {
            Wanted::Objects => self.form_of_objects(),
            Wanted::Plain => self.plain(),
            Wanted::AggregatedDiscovery => self.aggregated_discovery(),
        }?;
        [(JSON, Encoding::Json), (YAML, Encoding::Yaml)]
            .into_iter()
            .filter(|(media_type, _)| self.matches(media_type))
            .map(|(_, encoding)| encoding)
            .find(|encoding| {
                self.stream.is_empty() || (self.stream == "watch" && *encoding == Encoding::Json)
            })
            .map(|encoding| Answer {
                form,
                encoding,
                pretty: self.pretty,
            })
    }

    fn form_of_objects(&self) -> Option<Form> {
        if !matches!(self.server_version, "" | "v1") {
            return None;
        }
        let Some(target) = self.convert else {
            return Some(Form::Plain);
        };
        let version = match (target.group, target.version) {
            ("meta.k8s.io", "v1") => MetaVersion::V1,
            ("meta.k8s.io", "v1beta1") => MetaVersion::V1Beta1,
            _ => return None,
        };
        match target.kind {
            "Table" => Some(Form::Table(version)),
            "PartialObjectMetadata" => Some(Form::Partial(version)),
            "PartialObjectMetadataList" => Some(Form::PartialList(version)),
            _ => None,
        }
    }

    fn plain(&self) -> Option<Form> {
        (self.convert.is_none() && self.server_version.is_empty()).then_some(Form::Plain)
    }

    fn aggregated_discovery(&self) -> Option<Form> {
        let wanted = Target {
            kind: "APIGroupDiscoveryList",
            group: "apidiscovery.k8s.io",
            version: "v2",
        };
        (self.convert == Some(wanted) && self.server_version.is_empty())
            .then_some(Form::AggregatedDiscovery)
    }
}

/// The entries of a header, the preferred ones first. One that wants protobuf is as good as none.
fn clauses(header: &str) -> Vec<Clause<'_>> {
    let mut sorted: Vec<Clause> = Vec::new();
    let wanted = header.split(',').filter_map(Clause::parse);
    for clause in wanted.filter(|clause| format!("{}/{}", clause.main, clause.sub) != PROTOBUF) {
        // preference is no order: it may hold both ways, so the way of sorting matters
        let at = sorted
            .iter()
            .rposition(|before| !clause.precedes(before))
            .map_or(0, |before| before + 1);
        sorted.insert(at, clause);
    }
    sorted
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use serde_json::json;

    use super::{Answer, Encoding, Endpoint, Form, negotiate, pretty};
    use crate::table::MetaVersion;

    const KUBECTL: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,\
                           application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
    const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

    fn chosen(header: &str, endpoint: Endpoint) -> Option<(Form, Encoding)> {
        let answer = negotiate(Some(header), endpoint, false).ok()?;
        Some((answer.form, answer.encoding))
    }

    #[test]
    fn the_best_possible_form_is_chosen() {
        let table = Form::Table(MetaVersion::V1);
        let (json, yaml) = (Encoding::Json, Encoding::Yaml);
        for (header, expected) in [
            ("", Some((Form::Plain, json))),
            ("*/*", Some((Form::Plain, json))),
            (KUBECTL, Some((table, json))),
            (
                "application/json; as=Table; v=v1; g=meta.k8s.io",
                Some((table, json)),
            ),
            ("*/*;as=Table;v=v1;g=meta.k8s.io", Some((table, json))),
            (
                "application/yaml;as=Table;v=v1;g=meta.k8s.io",
                Some((table, yaml)),
            ),
            (
                "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
                Some((Form::Table(MetaVersion::V1Beta1), json)),
            ),
            (
                "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
                Some((Form::PartialList(MetaVersion::V1), json)),
            ),
            (
                "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
                Some((Form::Partial(MetaVersion::V1), json)),
            ),
            (
                "application/json;as=Table;v=v9;g=meta.k8s.io,application/json",
                Some((Form::Plain, json)),
            ),
            ("application/json;as=Table;v=v9;g=meta.k8s.io", None),
            ("application/json;as=Chair;v=v1;g=meta.k8s.io", None),
            ("application/json;as=Table", None),
            (
                "application/json;q=0.1,application/yaml",
                Some((Form::Plain, yaml)),
            ),
            (
                "application/yaml;q=0.5,application/json;q=0.4",
                Some((Form::Plain, yaml)),
            ),
            ("text/html,*/*;q=0.8", Some((Form::Plain, json))),
            (
                "text/html, application/json;q=0.5",
                Some((Form::Plain, json)),
            ),
            ("application/json;q=0", Some((Form::Plain, json))),
            ("application/json;foo=bar", Some((Form::Plain, json))),
            ("application/json;sv=v1", Some((Form::Plain, json))),
            ("application/json;sv=v2", None),
            ("application/json;stream=watch", Some((Form::Plain, json))),
            (
                "application/vnd.kubernetes.protobuf,application/json",
                Some((Form::Plain, json)),
            ),
            (
                "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json",
                Some((Form::Plain, json)),
            ),
            ("Application/JSON", None),
            ("garbage", None),
        ] {
            assert_eq!(chosen(header, Endpoint::BuiltInList), expected, "{header}");
        }
    }

    #[test]
    fn what_cannot_be_given_is_refused_in_the_words_of_who_refuses() {
        let message = |header, endpoint, watch| {
            let failure = negotiate(Some(header), endpoint, watch).unwrap_err();
            assert_eq!(failure.code(), 406);
            failure.body()
        };
        let routed = message("text/html", Endpoint::BuiltInList, false);
        assert_eq!(
            routed["message"],
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
             application/vnd.kubernetes.protobuf, application/json;stream=watch, \
             application/vnd.kubernetes.protobuf;stream=watch"
        );
        assert_eq!(routed["details"], json!({}));
        let custom = message("text/html", Endpoint::Custom, false);
        assert_eq!(
            custom["message"],
            "only the following media types are accepted: application/json, application/yaml, \
             application/vnd.kubernetes.protobuf"
        );
        assert_eq!(custom.get("details"), None);
        assert_eq!(
            message("application/yaml", Endpoint::Custom, true)["message"],
            "only the following media types are accepted: application/json;stream=watch, \
             application/vnd.kubernetes.protobuf;stream=watch"
        );
    }

    #[test]
    fn a_wildcard_of_subtypes_is_understood_everywhere_but_for_built_in_kinds() {
        assert_eq!(chosen("application/*", Endpoint::BuiltIn), None);
        let plain = Some((Form::Plain, Encoding::Json));
        assert_eq!(chosen("application/*", Endpoint::Custom), plain);
        assert_eq!(chosen("application/*", Endpoint::Groups), plain);
    }

    #[test]
    fn discovery_is_aggregated_wherever_that_stands_in_the_list() {
        let aggregated = Some((Form::AggregatedDiscovery, Encoding::Json));
        let plain = Some((Form::Plain, Encoding::Json));
        let late = format!("application/json,{DISCOVERY};q=0.1");
        assert_eq!(chosen(DISCOVERY, Endpoint::Groups), aggregated);
        assert_eq!(chosen(&late, Endpoint::Groups), aggregated);
        assert_eq!(chosen(&late, Endpoint::Discovery), plain);
        assert_eq!(chosen(DISCOVERY, Endpoint::Discovery), None);
        assert_eq!(
            chosen(&DISCOVERY.replace("v2", "v2beta1"), Endpoint::Groups),
            None
        );
        assert_eq!(chosen(KUBECTL, Endpoint::Groups), plain);
        assert_eq!(
            chosen(
                "application/json;as=Table;v=v1;g=meta.k8s.io",
                Endpoint::Groups
            ),
            None
        );
    }

    #[test]
    fn answers_are_indented_for_people() {
        for (query, agent, expected) in [
            (None, None, false),
            (None, Some("curl/8"), true),
            (Some(""), Some("curl/8"), true),
            (Some("0"), Some("curl/8"), false),
            (Some("yes"), Some("curl/8"), false),
            (Some("true"), Some("kubectl"), true),
            (None, Some("kubectl"), false),
        ] {
            assert_eq!(pretty(query, agent), expected, "{query:?} {agent:?}");
        }
        let header = Some("application/json;pretty=1");
        assert!(negotiate(header, Endpoint::Custom, false).unwrap().pretty);
    }

    #[test]
    fn an_answer_is_written_in_its_encoding() {
        let value = json!({"a": [1, "true"]});
        let written = |answer: Answer| String::from_utf8(answer.render(&value).unwrap()).unwrap();
        assert_eq!(written(Answer::JSON), "{\"a\":[1,\"true\"]}\n");
        let pretty = Answer {
            pretty: true,
            ..Answer::JSON
        };
        assert_eq!(
            written(pretty),
            "{\n  \"a\": [\n    1,\n    \"true\"\n  ]\n}"
        );
        let yaml = Answer {
            encoding: Encoding::Yaml,
            ..Answer::JSON
        };
        let text = written(yaml);
        assert_eq!(
            serde_saphyr::from_str::<serde_json::Value>(&text).unwrap(),
            value,
            "{text}"
        );
        assert_eq!(yaml.content_type(), "application/yaml");
    }
}
