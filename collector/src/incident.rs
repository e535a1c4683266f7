//! Findings in the order in which somebody reads them: every cause once, with what follows from it below.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::finding::Finding;

/// A finding that stands for itself among others, and what follows from it.
#[derive(Debug, Clone)]
pub struct Incident<'f> {
    /// The root.
    pub root: &'f Arc<Finding>,
    /// Its consequences, those of consequences included, in the order they were in.
    pub parts: Vec<&'f Arc<Finding>>,
}

/// For each finding, the place of its root: its own where it stands for itself.
fn roots(findings: &[Arc<Finding>]) -> Vec<usize> {
    if findings.iter().all(|finding| finding.part_of.is_none()) {
        return (0..findings.len()).collect();
    }
    let by_id: BTreeMap<String, usize> = findings.iter().enumerate().map(|(at, finding)| (finding.id(), at)).collect();
    let root_of = |at: usize| {
        let mut root = at;
        // Findings that name each other in a circle are no chain: each stands for itself.
        for _ in 0..findings.len() {
            match findings[root].part_of.as_ref().and_then(|id| by_id.get(id)) {
                Some(next) if *next != at => root = *next,
                Some(_) => return at,
                None => break,
            }
        }
        root
    };
    (0..findings.len()).map(root_of).collect()
}

/// Puts findings together by their roots. Roots and the parts of each keep their order. A finding whose root is not among
/// them (any more) stands for itself.
#[must_use]
pub fn incidents(findings: &[Arc<Finding>]) -> Vec<Incident<'_>> {
    let mut parts: BTreeMap<usize, Vec<&Arc<Finding>>> = BTreeMap::new();
    let mut own = Vec::new();
    for (at, root) in roots(findings).into_iter().enumerate() {
        if at == root {
            own.push(root);
        } else {
            parts.entry(root).or_default().push(&findings[at]);
        }
    }
    let mut incident = |root: usize| Incident { root: &findings[root], parts: parts.remove(&root).unwrap_or_default() };
    own.into_iter().map(&mut incident).collect()
}

/// The same list with every root followed by its parts.
#[must_use]
pub fn arranged(findings: &[Arc<Finding>]) -> Vec<Arc<Finding>> {
    let all = incidents(findings);
    all.into_iter().flat_map(|incident| std::iter::once(incident.root).chain(incident.parts)).cloned().collect()
}

/// Where a finding of an arranged list stands: `Part` under the root before it, or a root with so many parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// It stands for itself; so many follow from it.
    Root(usize),
    /// It follows from the root above it.
    Part,
}

/// The places of the findings of a list.
#[must_use]
pub fn places(findings: &[Arc<Finding>]) -> Vec<Place> {
    let roots = roots(findings);
    let mut parts: BTreeMap<usize, usize> = BTreeMap::new();
    for (_, root) in roots.iter().enumerate().filter(|(at, root)| at != *root) {
        *parts.entry(*root).or_default() += 1;
    }
    let place = |(at, root): (usize, usize)| {
        if at == root { Place::Root(parts.get(&at).copied().unwrap_or(0)) } else { Place::Part }
    };
    roots.iter().copied().enumerate().map(place).collect()
}

/// Findings that stand for themselves.
#[must_use]
pub fn count(findings: &[Arc<Finding>]) -> usize {
    roots(findings).into_iter().enumerate().filter(|(at, root)| at == root).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{Book, Conclusion, Grade, Severity, Subject, SubjectKey, Verdict};
    use crate::inventory::DeviceId;

    fn key(port: u32) -> SubjectKey {
        SubjectKey::Port(DeviceId(0), port)
    }

    fn book() -> Book {
        let mut book = Book::default();
        let mut enter = |rule: &'static str, port: u32, part_of: Option<(&'static str, u32)>| {
            let conclusion = Conclusion {
                key: key(port),
                subject: Subject { device: Some("d".into()), port: Some(port), ..Subject::default() },
                severity: Severity::Warning,
                grade: Grade::Confirmed,
                summary: String::new(),
                evidence: Vec::new(),
                advice: String::new(),
                would_raise: String::new(),
                part_of: part_of.map(|(rule, port)| (rule, key(port))),
                since: 1,
                revision: 0,
            };
            book.enter(rule, 1, vec![Verdict::Holds(Box::new(conclusion))], &mut Vec::new());
        };
        enter("link.down", 1, None);
        enter("qp.retry_exceeded", 1, Some(("link.down", 1)));
        enter("qp.error_state", 1, Some(("qp.retry_exceeded", 1)));
        enter("pcie.downgrade", 2, None);
        book
    }

    #[test]
    fn every_root_is_followed_by_what_follows_from_it_also_over_a_middle_one() {
        let mut findings: Vec<Arc<Finding>> = book().all_raised().cloned().collect();
        findings.reverse();
        let ids: Vec<String> = arranged(&findings).iter().map(|finding| finding.id()).collect();
        assert_eq!(ids, ["pcie.downgrade:d/2", "link.down:d/1", "qp.retry_exceeded:d/1", "qp.error_state:d/1"]);
        assert_eq!(places(&arranged(&findings)), [Place::Root(0), Place::Root(2), Place::Part, Place::Part]);
        assert_eq!(count(&findings), 2);
    }

    #[test]
    fn a_consequence_whose_root_is_over_stands_for_itself_and_a_circle_ends() {
        let mut findings: Vec<Arc<Finding>> =
            book().all_raised().filter(|finding| finding.rule != "link.down").cloned().collect();
        assert_eq!(incidents(&findings).len(), 2);
        for finding in &mut findings {
            Arc::make_mut(finding).part_of = Some("qp.error_state:d/1".to_owned());
        }
        let first = findings.iter_mut().find(|finding| finding.rule == "qp.error_state").unwrap();
        Arc::make_mut(first).part_of = Some("qp.retry_exceeded:d/1".to_owned());
        assert_eq!(arranged(&findings).len(), findings.len());
    }
}
