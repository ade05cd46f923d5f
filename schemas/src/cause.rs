//! What failures have in common: their text without what varies from one message to the next.

/// Longest cause, in bytes.
pub const CAUSE_BYTES_MAX: usize = 300;

/// What stands for a number, an id, a date or an address.
const VARYING: char = '#';

/// The text without numbers, ids and quoted parts: a word with a digit becomes `#`, several in a row with nothing but
/// punctuation between them become one, and what stands in quotes becomes `?`.
pub fn normalise(message: &str) -> String {
    let mut normal = String::with_capacity(message.len().min(CAUSE_BYTES_MAX));
    // Punctuation and space since the last mark: it goes when another mark follows.
    let mut between: Option<String> = None;
    let mut rest = message;
    while let Some(first) = rest.chars().next() {
        let part;
        (part, rest) = rest.split_at(part_len(rest, first));
        let is_word = is_word(first);
        if is_word && part.contains(|it: char| it.is_ascii_digit()) {
            if between.take().is_none() {
                normal.push(VARYING);
            }
            between = Some(String::new());
            continue;
        }
        match &mut between {
            Some(gap) if !is_word && !is_quote(first) => gap.push_str(part),
            _ => {
                normal.push_str(&between.take().unwrap_or_default());
                normal.push_str(if is_quote(first) && 1 < part.len() { "?" } else { part });
            }
        }
    }
    normal.push_str(&between.unwrap_or_default());
    crate::control::clean(normal.trim(), CAUSE_BYTES_MAX)
}

/// Number under which failures of one cause are counted, within a consumer: of class, code and [`normalise`]d text.
pub fn group(class: &str, code: &str, cause: &str) -> i64 {
    crate::fingerprint(Some([class, code, cause].join("\u{1f}").as_bytes()))
}

/// Length of the word, the quoted part or the single character at the beginning.
fn part_len(text: &str, first: char) -> usize {
    if is_word(first) {
        // An apostrophe or a hyphen inside a word belongs to it.
        let mut end = 0;
        let mut letters = text.char_indices().peekable();
        while let Some((at, it)) = letters.next() {
            let joins = matches!(it, '-' | '\'') && letters.peek().is_some_and(|it| is_word(it.1));
            if !is_word(it) && !joins {
                break;
            }
            end = at + it.len_utf8();
        }
        return end;
    }
    let quoted = is_quote(first).then(|| text[1..].find(first).map(|it| it + 2)).flatten();
    quoted.unwrap_or(first.len_utf8())
}

fn is_word(it: char) -> bool {
    it.is_alphanumeric() || it == '_'
}

fn is_quote(it: char) -> bool {
    matches!(it, '"' | '\'' | '`')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_varies_does_not_split_groups() {
        for (message, expected) in [
            ("order 17 of \"jane\" not found", "order # of ? not found"),
            ("order 0189-ab of 'joe' not found", "order # of ? not found"),
            ("timeout after 30s", "timeout after #"),
            ("connect to 10.0.0.1:5432 failed", "connect to # failed"),
            ("refused [1, 2, 3], again", "refused [#], again"),
            ("refused [1], again", "refused [#], again"),
            ("can't read it's `name`", "can't read it's ?"),
            ("an open ' quote", "an open ' quote"),
            ("payload at /lines/0/sku", "payload at /lines/#/sku"),
            ("2024-05-06T07:08:09Z: late", "#: late"),
            ("größe 12 € zu groß", "größe # € zu groß"),
            ("", ""),
        ] {
            assert_eq!(normalise(message), expected, "{message}");
        }
    }

    #[test]
    fn another_class_or_code_is_another_group() {
        let groups = [group("a", "b", "c"), group("a", "", "c"), group("b", "b", "c"), group("a", "b", "d")];
        for (at, it) in groups.iter().enumerate() {
            assert!(!groups[..at].contains(it));
        }
    }

    proptest! {
        #[test]
        fn any_text_has_a_bounded_cause_without_digits(message in ".{0,400}") {
            let cause = normalise(&message);
            prop_assert!(cause.len() <= CAUSE_BYTES_MAX);
            prop_assert!(!cause.contains(|it: char| it.is_ascii_digit()), "{cause}");
            prop_assert!(!cause.contains(|it: char| it.is_control()), "{cause}");
        }
    }
}
