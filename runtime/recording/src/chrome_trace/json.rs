//! One line of a trace: JSON that is written as it is built.
//!
//! Rejected alternative: `serde_json`, a further dependency only for strings and numbers in fixed
//! places.

use std::fmt::Write;

/// One event of a trace.
#[must_use = "a line is written by `finish`"]
pub(super) struct Line {
    json: String,
    has_args: bool,
}

/// The value of an argument.
pub(super) enum Value<'a> {
    Text(&'a str),
    Number(u64),
    Flag(bool),
    Numbers([u64; 4]),
}

impl Line {
    /// Creates an event of that phase. The format requires microseconds, so `at_ns` is written with
    /// three digits after the point.
    pub(super) fn at(pid: u32, tid: u32, phase: char, at_ns: u64) -> Self {
        let (us, rest_ns) = (at_ns / 1000, at_ns % 1000);
        Self {
            json: format!("{{\"ph\":\"{phase}\",\"pid\":{pid},\"tid\":{tid},\"ts\":{us}.{rest_ns:03}"),
            has_args: false,
        }
    }

    /// Creates metadata: the name of a program or a thread.
    pub(super) fn metadata(pid: u32, tid: u32, name: &str) -> Self {
        Self { json: format!("{{\"ph\":\"M\",\"pid\":{pid},\"tid\":{tid}"), has_args: false }.name(name)
    }

    pub(super) fn name(self, name: &str) -> Self {
        self.field("name", name)
    }

    pub(super) fn category(self, category: &str) -> Self {
        self.field("cat", category)
    }

    /// Sets the scope of an instant event: `t` for its thread, `p` for its program.
    pub(super) fn scope(self, scope: char) -> Self {
        self.field("s", scope.encode_utf8(&mut [0; 4]))
    }

    /// Sets the number of a flow, whose end binds to the enclosing slice.
    pub(super) fn flow(mut self, number: u64) -> Self {
        // Writing to a string cannot fail.
        let _ = write!(self.json, ",\"id\":{number},\"bp\":\"e\"");
        self
    }

    fn field(mut self, key: &str, text: &str) -> Self {
        self.json.push(',');
        push_text(&mut self.json, key);
        self.json.push(':');
        push_text(&mut self.json, text);
        self
    }

    /// Adds an argument. All arguments come after the fields.
    pub(super) fn arg<'a>(mut self, key: &str, value: impl Into<Value<'a>>) -> Self {
        self.json.push_str(if self.has_args { "," } else { ",\"args\":{" });
        self.has_args = true;
        push_text(&mut self.json, key);
        self.json.push(':');
        push_value(&mut self.json, &value.into());
        self
    }

    pub(super) fn arg_if(self, key: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.arg(key, value),
            None => self,
        }
    }

    pub(super) fn finish(mut self) -> String {
        self.json.push_str(if self.has_args { "}}" } else { "}" });
        self.json
    }
}

/// Returns a separate JSON object.
pub(super) fn object<'a>(members: impl IntoIterator<Item = (&'static str, Value<'a>)>) -> String {
    let mut json = String::new();
    for (key, value) in members {
        json.push(if json.is_empty() { '{' } else { ',' });
        push_text(&mut json, key);
        json.push(':');
        push_value(&mut json, &value);
    }
    json.push('}');
    json
}

fn push_value(json: &mut String, value: &Value<'_>) {
    // Writing to a string cannot fail.
    let _ = match value {
        Value::Text(text) => {
            push_text(json, text);
            Ok(())
        }
        Value::Number(number) => write!(json, "{number}"),
        Value::Flag(flag) => write!(json, "{flag}"),
        Value::Numbers(numbers) => write!(json, "{numbers:?}"),
    };
}

fn push_text(json: &mut String, text: &str) {
    json.push('"');
    // 0xc2 begins the control characters beyond ASCII, which a terminal interprets as well.
    let is_plain = |byte: u8| byte >= b' ' && !matches!(byte, b'"' | b'\\' | 0x7f | 0xc2);
    if text.bytes().all(is_plain) {
        json.push_str(text);
        json.push('"');
        return;
    }
    for character in text.chars() {
        match character {
            '"' | '\\' => json.extend(['\\', character]),
            character if character.is_control() => {
                // Writing to a string cannot fail.
                let _ = write!(json, "\\u{:04x}", u32::from(character));
            }
            character => json.push(character),
        }
    }
    json.push('"');
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Value<'_> {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for Value<'_> {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<[u64; 4]> for Value<'_> {
    fn from(numbers: [u64; 4]) -> Self {
        Self::Numbers(numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_json_whatever_stands_in_it() {
        let odd = "a \"name\" \\ with\ncontrol \u{1} \u{7f} \u{9b}2J and ü\u{a0}";
        let line = Line::at(7, 2, 'B', 12_345_006).name(odd).arg("n", u64::MAX).arg("is", true).arg_if("no", None);
        let line = line.finish();
        assert!(!line.trim_end().chars().any(char::is_control), "none that a terminal obeys: {line:?}");
        let json: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(json["name"], odd);
        assert_eq!((json["ph"].as_str(), json["pid"].as_u64(), json["tid"].as_u64()), (Some("B"), Some(7), Some(2)));
        assert_eq!(json["ts"].as_f64(), Some(12_345.006));
        assert_eq!((json["args"]["n"].as_u64(), json["args"]["is"].as_bool()), (Some(u64::MAX), Some(true)));
    }

    #[test]
    fn an_object_is_json() {
        let json = object([("a", "b".into()), ("c", [1, 2, 3, 4].into())]);
        assert_eq!(json, r#"{"a":"b","c":[1, 2, 3, 4]}"#);
    }
}
