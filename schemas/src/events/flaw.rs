use std::ops::RangeInclusive;

/// Why a value is none of its event type, though it has the right members and types. Names the member, never its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Flaw {
    /// Nothing in it.
    #[error("{0} is empty")]
    Empty(&'static str),
    /// More characters, or more elements, than the schema allows.
    #[error("{0} is longer than {1}")]
    TooLong(&'static str, usize),
    /// A number beside its range.
    #[error("{0} is out of range")]
    OutOfRange(&'static str),
    /// A text of another form.
    #[error("{0} is not {1}")]
    Malformed(&'static str, &'static str),
    /// A character that PostgreSQL stores in no text.
    #[error("{0} contains U+0000")]
    Nul(&'static str),
}

/// A text of 1 to `characters_max` characters.
pub(super) fn text(member: &'static str, value: &str, characters_max: usize) -> Result<(), Flaw> {
    if value.is_empty() {
        return Err(Flaw::Empty(member));
    }
    // A text never has more characters than bytes, and most are short.
    if characters_max < value.len() && characters_max < value.chars().count() {
        return Err(Flaw::TooLong(member, characters_max));
    }
    if value.contains('\0') { Err(Flaw::Nul(member)) } else { Ok(()) }
}

/// A text that also has a form.
pub(super) fn form(member: &'static str, expected: &'static str, fits: bool) -> Result<(), Flaw> {
    if fits { Ok(()) } else { Err(Flaw::Malformed(member, expected)) }
}

/// A number of a range.
pub(super) fn number(member: &'static str, value: i64, range: RangeInclusive<i64>) -> Result<(), Flaw> {
    if range.contains(&value) { Ok(()) } else { Err(Flaw::OutOfRange(member)) }
}

/// Three capital letters, as ISO 4217 has them.
pub(super) fn currency(member: &'static str, value: &str) -> Result<(), Flaw> {
    let fits = value.len() == 3 && value.bytes().all(|it| it.is_ascii_uppercase());
    form(member, "a currency of three capital letters", fits)
}
