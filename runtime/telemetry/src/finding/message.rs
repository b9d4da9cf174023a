//! Deserializes findings of any version of Volt.
//!
//! Invariants:
//! * ONLY NEW THINGS ARE LOST: an unknown rule, place or piece of evidence is left out; the rest
//!   is kept.
//! * BOUNDED WHILE READING: all findings of one runtime, with their numbers, have a weight of at
//!   most `MAX_WEIGHT`.

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{Evidence, Figure, Finding, Place, Seen, Severity, TaskName};
use crate::bounded;
use crate::rule::Rule;

/// Maximum total weight of one runtime's findings and their numbers; a program keeps far fewer.
pub(super) const MAX_WEIGHT: usize = 16 * 1024;

/// A finding as another version of Volt may send it.
#[derive(Deserialize)]
struct Sent {
    rule: String,
    severity: Severity,
    #[serde(default)]
    title: String,
    #[serde(default, deserialize_with = "evidence")]
    evidence: Vec<Evidence>,
    #[serde(default, deserialize_with = "bounded_list")]
    workers: Vec<u32>,
    #[serde(default, deserialize_with = "bounded_list")]
    tasks: Vec<TaskName>,
    #[serde(default, deserialize_with = "places")]
    locations: Vec<Place>,
    #[serde(default)]
    advice: String,
    #[serde(default)]
    seen: Seen,
}

fn bounded_list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    bounded::list(deserializer, MAX_WEIGHT, |_| 1)
}

fn evidence<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Evidence>, D::Error> {
    bounded::known(deserializer, MAX_WEIGHT, |element: Element| element.fields()?.evidence())
}

fn places<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Place>, D::Error> {
    bounded::known(deserializer, MAX_WEIGHT, |element: Element| element.fields()?.place())
}

/// An element of a list, possibly of a kind that a later version of Volt added.
///
/// Unknown parts are skipped while they are read. An untagged enum would buffer the whole element
/// until its kind is known, which takes many times the memory of the message.
enum Element {
    Figure(Figure),
    Fields(Box<Fields>),
    Other,
}

/// The fields of evidence and places, with values of any type.
#[derive(Default)]
struct Fields {
    key: Option<Figure>,
    value: Option<Figure>,
    text: Option<Figure>,
    kind: Option<Figure>,
    at: Option<Figure>,
    function: Option<Figure>,
}

impl Fields {
    fn evidence(self) -> Option<Evidence> {
        Some(Evidence { key: text(self.key)?.into(), value: self.value?, text: text(self.text)? })
    }

    fn place(self) -> Option<Place> {
        let at = text(self.at)?;
        match text(self.kind)?.as_str() {
            "guilty" => Some(Place::Guilty { at, function: text(self.function) }),
            "spawned" => Some(Place::Spawned { at }),
            _ => None,
        }
    }
}

fn text(field: Option<Figure>) -> Option<String> {
    if let Some(Figure::Text(text)) = field { Some(text) } else { None }
}

impl Element {
    fn fields(self) -> Option<Fields> {
        if let Element::Fields(fields) = self { Some(*fields) } else { None }
    }

    fn figure(self) -> Option<Figure> {
        if let Element::Figure(figure) = self { Some(figure) } else { None }
    }
}

impl<'de> Deserialize<'de> for Element {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ElementVisitor)
    }
}

struct ElementVisitor;

impl<'de> Visitor<'de> for ElementVisitor {
    type Value = Element;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("evidence or a place")
    }

    fn visit_u64<E>(self, count: u64) -> Result<Element, E> {
        Ok(Element::Figure(Figure::Count(count)))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Element, E> {
        Ok(Element::Figure(u64::try_from(number).map_or(Figure::Number(number as f64), Figure::Count)))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Element, E> {
        Ok(Element::Figure(Figure::Number(number)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Element, E> {
        Ok(Element::Figure(Figure::Text(text.to_owned())))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Element, E> {
        Ok(Element::Other)
    }

    fn visit_unit<E>(self) -> Result<Element, E> {
        Ok(Element::Other)
    }

    fn visit_bytes<E>(self, _: &[u8]) -> Result<Element, E> {
        Ok(Element::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Element, A::Error> {
        while elements.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Element::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Element, A::Error> {
        let mut fields = Box::<Fields>::default();
        while let Some(name) = map.next_key::<String>()? {
            let field = match name.as_str() {
                "key" => &mut fields.key,
                "value" => &mut fields.value,
                "text" => &mut fields.text,
                "kind" => &mut fields.kind,
                "at" => &mut fields.at,
                "function" => &mut fields.function,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            *field = map.next_value::<Element>()?.figure();
        }
        Ok(Element::Fields(fields))
    }
}

/// Deserializes the findings of a message, and leaves out unknown rules, places and evidence.
pub(crate) fn of_message<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<Finding>>, D::Error> {
    let known = |sent: Sent| {
        let Sent { rule, severity, title, evidence, workers, tasks, locations, advice, seen } = sent;
        let rule = Rule::by_name(&rule)?;
        Some(Finding { rule, severity, title, evidence, workers, tasks, locations, advice, seen })
    };
    let sent: Option<SentList> = Option::deserialize(deserializer)?;
    Ok(sent.map(|SentList(list)| list.into_iter().filter_map(known).collect()))
}

struct SentList(Vec<Sent>);

impl<'de> Deserialize<'de> for SentList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let weigh =
            |sent: &Sent| 1 + sent.evidence.len() + sent.workers.len() + sent.tasks.len() + sent.locations.len();
        bounded::list(deserializer, MAX_WEIGHT, weigh).map(SentList)
    }
}
