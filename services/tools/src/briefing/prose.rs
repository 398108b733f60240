//! Sentences and words of readable text. Rules of thumb for European languages, and honest about it: a cut in the wrong
//! place makes a shorter quote, never a wrong one.

use std::ops::Range;

/// Most sentences that are read from one document.
pub(crate) const SENTENCES_MAX: usize = 2_000;

/// Words before which a full stop ends no sentence.
const ABBREVIATIONS: [&str; 36] = [
    "e.g", "i.e", "etc", "vs", "mr", "mrs", "ms", "dr", "prof", "st", "no", "nos", "v", "approx", "inc", "ltd", "co",
    "corp", "cf", "al", "fig", "sec", "ch", "vol", "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "sept",
    "oct", "nov", "dec",
];

/// The sentences of a text, as ranges without white space at their ends. Code between backticks is never cut.
pub(crate) fn sentences(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut start = 0;
    let mut in_code = false;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if c == '`' {
            in_code = !in_code;
        }
        if in_code || !matches!(c, '.' | '!' | '?' | '…' | '。' | '！' | '？') {
            continue;
        }
        // Closing quotes and brackets, and the other dots of "...", belong to the sentence they end.
        let mut end = at + c.len_utf8();
        while let Some((next, closing)) =
            chars.next_if(|(_, c)| matches!(c, '.' | '!' | '?' | '"' | '”' | '’' | ')' | ']' | '»'))
        {
            end = next + closing.len_utf8();
        }
        let wide = matches!(c, '。' | '！' | '？');
        let rest = &text[end..];
        let begins = rest.trim_start().chars().next();
        let apart = rest.starts_with(char::is_whitespace) || wide;
        let is_end =
            begins.is_none() || apart && begins.is_some_and(|c| !c.is_lowercase()) && !abbreviated(text, at, c);
        if is_end {
            push_trimmed(&mut found, text, start..end);
            start = end;
        }
    }
    push_trimmed(&mut found, text, start..text.len());
    found
}

fn push_trimmed(found: &mut Vec<Range<usize>>, text: &str, range: Range<usize>) {
    let part = &text[range.clone()];
    let start = range.start + (part.len() - part.trim_start().len());
    let end = start + part.trim().len();
    if start < end {
        found.push(start..end);
    }
}

/// Whether the full stop at `at` stands after an abbreviation or an initial.
fn abbreviated(text: &str, at: usize, c: char) -> bool {
    if c != '.' {
        return false;
    }
    let before = &text[..at];
    let word = before.rsplit(|c: char| c.is_whitespace() || matches!(c, '(' | '"' | '“')).next().unwrap_or_default();
    let initial = word.chars().count() == 1 && word.chars().all(char::is_uppercase);
    let listed = word.len() <= 6 && ABBREVIATIONS.contains(&word.to_ascii_lowercase().as_str());
    // "No." is short for number before a digit only, and a lone "no." ends a sentence.
    let number = text[at + 1..].trim_start().starts_with(|c: char| c.is_ascii_digit());
    initial || listed && (number || !matches!(word.to_ascii_lowercase().as_str(), "no" | "co" | "st" | "v" | "etc"))
}

/// A word and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) range: Range<usize>,
    /// Inside backticks.
    pub(crate) is_code: bool,
}

impl Word {
    pub(crate) fn text<'t>(&self, text: &'t str) -> &'t str {
        &text[self.range.clone()]
    }
}

/// The words of a text: runs of letters and digits, with `-`, `_`, `.`, `:`, `,` and `'` only inside them.
pub(crate) fn words(text: &str) -> Vec<Word> {
    let mut found = Vec::new();
    let mut start = None;
    let mut in_code = false;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let joins = matches!(c, '-' | '_' | '.' | ':' | ',' | '\'' | '’')
            && start.is_some()
            && chars.peek().is_some_and(|(_, next)| next.is_alphanumeric() || c == ':' && *next == ':');
        // A comma joins digits only.
        let joins = joins
            && (c != ','
                || text[..at].ends_with(|c: char| c.is_ascii_digit())
                    && text[at + 1..].starts_with(|c: char| c.is_ascii_digit()));
        let joins = joins || c == ':' && text[..at].ends_with(':') && start.is_some();
        if c.is_alphanumeric() || joins {
            start.get_or_insert(at);
            continue;
        }
        if let Some(start) = start.take() {
            found.push(Word { range: start..at, is_code: in_code });
        }
        if c == '`' {
            in_code = !in_code;
        }
    }
    if let Some(start) = start {
        found.push(Word { range: start..text.len(), is_code: in_code });
    }
    found
}

/// Words that say little about what a text is about.
const STOP: [&str; 118] = [
    "a", "about", "above", "after", "again", "all", "also", "an", "and", "any", "are", "as", "at", "be", "because",
    "been", "before", "being", "below", "between", "both", "but", "by", "can", "could", "did", "do", "does", "down",
    "during", "each", "either", "else", "every", "few", "for", "from", "further", "had", "has", "have", "he", "her",
    "here", "his", "how", "however", "i", "if", "in", "into", "is", "it", "its", "itself", "just", "may", "might",
    "more", "most", "much", "must", "my", "no", "nor", "not", "now", "of", "off", "on", "once", "only", "or", "other",
    "our", "out", "over", "own", "said", "same", "she", "should", "since", "so", "some", "such", "than", "that", "the",
    "their", "them", "then", "there", "these", "they", "this", "those", "through", "to", "too", "under", "until", "up",
    "upon", "very", "was", "we", "were", "what", "when", "where", "which", "while", "who", "will", "with", "would",
    "you",
];

/// Whether a lower-case word says little.
pub(crate) fn is_stop(word: &str) -> bool {
    STOP.binary_search(&word).is_ok()
}

/// A word without its commonest English endings, lower case; different words of one meaning that news uses for the same
/// event share a stem.
pub(crate) fn stem(word: &str) -> String {
    let word = word.to_lowercase();
    let word = word.strip_suffix("'s").or(word.strip_suffix("’s")).unwrap_or(&word);
    let cut = |suffix: &str, least: usize| word.strip_suffix(suffix).filter(|stem| stem.len() >= least);
    let base = cut("ies", 2)
        .map(|stem| format!("{stem}y"))
        .or_else(|| cut("ing", 3).map(str::to_owned))
        .or_else(|| cut("ed", 3).map(str::to_owned))
        .or_else(|| cut("sses", 2).map(|stem| format!("{stem}ss")))
        .or_else(|| word.strip_suffix('s').filter(|stem| stem.len() >= 3 && !stem.ends_with('s')).map(str::to_owned))
        .unwrap_or_else(|| word.to_owned());
    let base = base.strip_suffix('e').filter(|stem| stem.len() >= 3).unwrap_or(&base);
    match base {
        "need" | "minimum" | "least" | "demand" | "msrv" => "requir".to_owned(),
        "ship" | "launch" | "publish" | "publicat" | "publication" | "due" | "debut" | "arriv" | "appear" => {
            "releas".to_owned()
        }
        "begin" | "open" | "kick" => "start".to_owned(),
        "newest" | "current" | "recent" => "latest".to_owned(),
        base => base.to_owned(),
    }
}

/// The stems of the words that say something.
pub(crate) fn stems(text: &str) -> Vec<String> {
    words(text)
        .into_iter()
        .map(|word| word.text(text).to_lowercase())
        .filter(|word| !is_stop(word))
        .map(|word| stem(&word))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str) -> Vec<&str> {
        sentences(text).into_iter().map(|range| &text[range]).collect()
    }

    #[test]
    fn sentences_end_where_a_reader_would_end_them() {
        assert_eq!(
            cut("It was 2.0.1, e.g. a patch. \"Really?\" Yes! See Dr. J. Smith (ed.). `a. B` is code... Done"),
            [
                "It was 2.0.1, e.g. a patch.",
                "\"Really?\"",
                "Yes!",
                "See Dr. J. Smith (ed.).",
                "`a. B` is code...",
                "Done"
            ]
        );
        assert_eq!(cut("Patched in v0.4.16."), ["Patched in v0.4.16."]);
        assert_eq!(cut("一つ。二つ。"), ["一つ。", "二つ。"]);
        assert_eq!(cut("  "), Vec::<&str>::new());
    }

    #[test]
    fn words_keep_paths_versions_and_thousands_whole() {
        let text = "The `a::b_c` crate, 1,240 tests (v2.0.1); state-of-the-art, yes.";
        let words: Vec<&str> = words(text).iter().map(|word| word.text(text)).collect();
        assert_eq!(words, ["The", "a::b_c", "crate", "1,240", "tests", "v2.0.1", "state-of-the-art", "yes"]);
    }

    #[test]
    fn the_list_of_stop_words_is_sorted_so_that_it_can_be_searched() {
        assert!(STOP.is_sorted());
    }

    #[test]
    fn forms_of_one_word_share_a_stem() {
        for (a, b) in [("releases", "released"), ("tests", "test"), ("requires", "needs"), ("ships", "launched")] {
            assert_eq!(stem(a), stem(b), "{a} {b}");
        }
        assert_ne!(stem("tests"), stem("users"));
    }
}
