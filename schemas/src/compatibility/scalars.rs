//! Keywords whose values are numbers, texts and lists.

use std::cmp::Ordering;

use serde_json::{Number, Value};

use super::old::{self, ARRAY, INTEGER, NUMBER, OBJECT, Old, STRING, Types};

/// Formats of Rust's and OpenAPI's numbers, which no validator holds documents against.
const NOT_HELD: [&str; 12] =
    ["int8", "int16", "int32", "int64", "int", "uint8", "uint16", "uint32", "uint64", "uint", "float", "double"];

/// Whether a keyword of the new schema follows, and else what changed; `None` for keywords of other kinds.
pub(super) fn check(old: &Old<'_>, keyword: &str, new: &Value) -> Option<Result<(), String>> {
    let concerned: Types = match keyword {
        "type" => return Some(types(old, new)),
        "enum" => return Some(listed(old, new.as_array().map_or(&[][..], Vec::as_slice))),
        "const" => return Some(listed(old, std::slice::from_ref(new))),
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => NUMBER,
        "minLength" | "maxLength" | "pattern" => STRING,
        "minItems" | "maxItems" | "uniqueItems" => ARRAY,
        "minProperties" | "maxProperties" | "required" => OBJECT,
        "format" => STRING | NUMBER,
        _ => return None,
    };
    if old.types() & concerned == 0 {
        return Some(Ok(()));
    }
    Some(match keyword {
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => bound(old, keyword, new),
        "multipleOf" => multiple(old, new),
        "pattern" => kept(old, keyword, new),
        "format" if new.as_str().is_some_and(|it| NOT_HELD.contains(&it)) => Ok(()),
        "format" => kept(old, keyword, new),
        "uniqueItems" if new == &Value::Bool(false) => Ok(()),
        "uniqueItems" => kept(old, keyword, new),
        "required" => required(old, new),
        _ => count(old, keyword, new),
    })
}

fn types(old: &Old<'_>, new: &Value) -> Result<(), String> {
    let allowed = old::read(new).ok_or("an unknown type")?;
    match old.types() & !allowed {
        0 => Ok(()),
        lost => Err(format!("no longer accepted: {}", old::names(lost))),
    }
}

/// Values of `enum` or `const`.
fn listed(old: &Old<'_>, new: &[Value]) -> Result<(), String> {
    let constants = old.values("const").map(std::slice::from_ref);
    let mut lists = old.values("enum").filter_map(Value::as_array).map(Vec::as_slice).chain(constants).peekable();
    if lists.peek().is_none() {
        return Err("only some values are accepted now".to_owned());
    }
    let lost = lists.map(|it| it.iter().filter(|it| !new.contains(it)).count()).min().unwrap_or_default();
    if lost == 0 { Ok(()) } else { Err(format!("{lost} of the listed values are gone")) }
}

fn kept(old: &Old<'_>, keyword: &str, new: &Value) -> Result<(), String> {
    if old.values(keyword).any(|it| it == new) {
        return Ok(());
    }
    let was_there = old.values(keyword).next().is_some();
    Err(if was_there { "changed".to_owned() } else { "demanded now".to_owned() })
}

fn bound(old: &Old<'_>, keyword: &str, new: &Value) -> Result<(), String> {
    let (inclusive, exclusive, tight) = match keyword {
        "minimum" | "exclusiveMinimum" => ("minimum", "exclusiveMinimum", Ordering::Greater),
        _ => ("maximum", "exclusiveMaximum", Ordering::Less),
    };
    let is = |it: &Value, equal: bool| {
        let order = it.as_number().zip(new.as_number()).and_then(|(old, new)| order(old, new));
        order == Some(tight) || (equal && order == Some(Ordering::Equal))
    };
    let follows =
        old.values(exclusive).any(|it| is(it, true)) || old.values(inclusive).any(|it| is(it, keyword == inclusive));
    if follows { Ok(()) } else { Err(format!("narrower: now {new}")) }
}

/// Exact, or none.
fn order(left: &Number, right: &Number) -> Option<Ordering> {
    /// Up to here every whole number is a floating-point number.
    const EXACT_MAX: i128 = 1 << 53;
    let whole = |it: &Number| it.as_i64().map(i128::from).or_else(|| it.as_u64().map(i128::from));
    match (whole(left), whole(right)) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        (Some(it), None) | (None, Some(it)) if EXACT_MAX < it.abs() => None,
        _ => left.as_f64()?.partial_cmp(&right.as_f64()?),
    }
}

fn multiple(old: &Old<'_>, new: &Value) -> Result<(), String> {
    let is_multiple = |it: &Value| it.as_u64().zip(new.as_u64()).is_some_and(|(old, new)| new != 0 && old % new == 0);
    let whole = new.as_u64() == Some(1) && old.types() & NUMBER & !INTEGER == 0;
    if whole || old.values("multipleOf").any(|it| it == new || is_multiple(it)) {
        Ok(())
    } else {
        Err(format!("multiples of {new} only"))
    }
}

/// Lengths and numbers of things.
fn count(old: &Old<'_>, keyword: &str, new: &Value) -> Result<(), String> {
    let given = new.as_u64().ok_or("no whole number")?;
    let follows = if keyword.starts_with("min") {
        given == 0 || old.values(keyword).filter_map(Value::as_u64).any(|it| given <= it)
    } else {
        old.values(keyword).filter_map(Value::as_u64).any(|it| it <= given)
    };
    if follows { Ok(()) } else { Err(format!("narrower: now {given}")) }
}

fn required(old: &Old<'_>, new: &Value) -> Result<(), String> {
    let has = |list: &Value, name: &Value| list.as_array().is_some_and(|it| it.contains(name));
    let missing: Vec<&str> = new
        .as_array()
        .ok_or("no list")?
        .iter()
        .filter(|name| !old.values("required").any(|it| has(it, name)))
        .map(|it| it.as_str().unwrap_or_default())
        .collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("demanded now: {}", missing.join(", "))) }
}
