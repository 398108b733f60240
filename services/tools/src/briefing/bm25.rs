//! BM25: which passages answer a query best (Robertson and Zaragoza, 2009).
//!
//! Small enough to own, and deterministic: equal passages and queries give equal scores on every machine, and ties go to
//! the earlier passage.

use std::collections::BTreeMap;

/// How fast repeated terms stop counting.
const K1: f64 = 1.2;
/// How much long passages are discounted.
const B: f64 = 0.75;

/// Passages, ready to be asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Index {
    /// Term to the passages that hold it and how often.
    postings: BTreeMap<String, Vec<(usize, u32)>>,
    lengths: Vec<usize>,
}

impl Index {
    /// Takes the stems of each passage.
    pub(crate) fn new<P: AsRef<[String]>>(passages: impl IntoIterator<Item = P>) -> Self {
        let mut index = Self::default();
        for (number, passage) in passages.into_iter().enumerate() {
            let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
            for term in passage.as_ref() {
                *counts.entry(term).or_default() += 1;
            }
            index.lengths.push(passage.as_ref().len());
            for (term, count) in counts {
                index.postings.entry(term.to_owned()).or_default().push((number, count));
            }
        }
        index
    }

    /// The score of each passage for a query; terms asked twice count once.
    pub(crate) fn scores(&self, query: &[String]) -> Vec<f64> {
        let mut scores = vec![0.0; self.lengths.len()];
        let passages = self.lengths.len() as f64;
        let mean = self.lengths.iter().sum::<usize>() as f64 / passages.max(1.0);
        let terms: std::collections::BTreeSet<&String> = query.iter().collect();
        for postings in terms.into_iter().filter_map(|term| self.postings.get(term)) {
            let holding = postings.len() as f64;
            let idf = ((passages - holding + 0.5) / (holding + 0.5) + 1.0).ln();
            for &(passage, count) in postings {
                let count = f64::from(count);
                let length = self.lengths[passage] as f64 / mean.max(1.0);
                scores[passage] += idf * count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length));
            }
        }
        scores
    }

    /// The best passages with a score above zero, best first.
    pub(crate) fn best(&self, query: &[String], most: usize) -> Vec<(usize, f64)> {
        let mut ranked: Vec<(usize, f64)> =
            self.scores(query).into_iter().enumerate().filter(|(_, score)| *score > 0.0).collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        ranked.truncate(most);
        ranked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::briefing::prose::stems;

    fn index() -> Index {
        Index::new([
            stems("The kite flies over the harbour"),
            stems("A harbour is a place for ships, and the harbour is old"),
            stems("Nothing to see"),
        ])
    }

    #[test]
    fn the_passage_that_holds_the_rarer_words_comes_first() {
        let best: Vec<usize> =
            index().best(&stems("kite harbour"), 3).into_iter().map(|(passage, _)| passage).collect();
        assert_eq!(best, [0, 1]);
    }

    #[test]
    fn a_query_of_unknown_words_finds_nothing() {
        assert_eq!(index().best(&stems("zeppelin"), 3), []);
        assert_eq!(Index::default().best(&stems("kite"), 3), []);
    }

    #[test]
    fn the_score_is_the_textbook_value() {
        let index = Index::new([vec!["a".to_owned()], vec!["b".to_owned()]]);
        let score = index.scores(&["a".to_owned(), "a".to_owned()])[0];
        assert!((score - 2.0_f64.ln()).abs() < 1e-12, "{score}");
    }
}
