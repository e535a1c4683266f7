//! The probes as lines of text: each for itself, or those in one file together.
//!
//! A provider has some thirty functions, and a node may have several builds of it. What somebody wants to know of a file is
//! that it is attached to and whether cheaply, so functions with the same reason are named together.

use crate::source::ProbeReport;

/// Functions with the same reason that are named; the rest are counted.
const NAMED: usize = 2;

/// Each probe in a line.
pub(super) fn each(probes: &[ProbeReport]) -> Vec<String> {
    probes.iter().map(one).collect()
}

/// The probes, those in one file in one line.
pub(super) fn folded(probes: &[ProbeReport]) -> Vec<String> {
    let mut files: Vec<InFile<'_>> = Vec::new();
    let mut lines: Vec<Line<'_>> = Vec::new();
    for probe in probes {
        let Some((path, offset)) = place(probe) else {
            lines.push(Line::Alone(probe));
            continue;
        };
        // Containers may have other files by the same name: what comes twice belongs to another one.
        let at = files.iter().position(|file| file.is_of(path, probe)).unwrap_or_else(|| {
            lines.push(Line::File(files.len()));
            files.push(InFile { path, word: word(probe), functions: Vec::new() });
            files.len() - 1
        });
        files[at].functions.push((probe, offset));
    }
    lines
        .into_iter()
        .map(|line| match line {
            Line::Alone(probe) => one(probe),
            Line::File(at) => match &files[at].functions[..] {
                [(probe, _)] => one(probe),
                _ => files[at].text(),
            },
        })
        .collect()
}

enum Line<'r> {
    Alone(&'r ProbeReport),
    /// Place in the list of files.
    File(usize),
}

/// Functions of one file that fare alike.
struct InFile<'r> {
    path: &'r str,
    word: &'static str,
    /// With their offsets, as text.
    functions: Vec<(&'r ProbeReport, &'r str)>,
}

impl InFile<'_> {
    fn is_of(&self, path: &str, probe: &ProbeReport) -> bool {
        self.path == path
            && self.word == word(probe)
            && self.functions.iter().all(|(other, _)| other.name != probe.name)
    }

    fn text(&self) -> String {
        let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
        for (probe, offset) in &self.functions {
            let reason = probe.reason.as_deref().unwrap_or_default();
            // Where one function lies tells the build.
            let name = if probe.name == "post_send" { format!("{} +{offset}", probe.name) } else { probe.name.clone() };
            match reasons.iter_mut().find(|(other, _)| *other == reason) {
                Some((_, names)) => names.push(name),
                None => reasons.push((reason, vec![name])),
            }
        }
        let parts: Vec<String> = reasons
            .iter()
            .map(|(reason, names)| {
                let shown = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
                let more = names.len().saturating_sub(NAMED);
                let more = if more == 0 { String::new() } else { format!(", {more} more") };
                if reason.is_empty() { format!("{shown}{more}") } else { format!("{shown}{more} ({reason})") }
            })
            .collect();
        format!("{} {}: {}", self.word, self.path, parts.join("; "))
    }
}

fn one(probe: &ProbeReport) -> String {
    let at = probe.at.as_deref().map(|at| format!(" at {at}")).unwrap_or_default();
    let reason = probe.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{} {}{at}{reason}", word(probe), probe.name)
}

const fn word(probe: &ProbeReport) -> &'static str {
    match (probe.wanted, probe.attached) {
        (_, true) => "attached",
        (true, false) => "MISSING ",
        (false, false) => "not used",
    }
}

/// File and offset of a probe on a library's function; functions of the kernel and tracepoints have none.
fn place(probe: &ProbeReport) -> Option<(&str, &str)> {
    let (path, offset) = probe.at.as_deref()?.rsplit_once('+')?;
    (path.starts_with('/') && offset.starts_with("0x")).then_some((path, offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(name: &str, at: &str, reason: &str, attached: bool) -> ProbeReport {
        ProbeReport {
            name: name.to_owned(),
            wanted: true,
            attached,
            at: Some(at.to_owned()),
            reason: (!reason.is_empty()).then(|| reason.to_owned()),
            fix: None,
        }
    }

    fn probes() -> Vec<ProbeReport> {
        let rxe = |name: &str, offset: u32, reason: &str| {
            probe(name, &format!("/usr/lib/libibverbs/librxe-rdmav34.so+{offset:#x}"), reason, true)
        };
        let (push, none) = ("+4: push, emulated", "entry: no emulated instruction while arguments are live");
        let mut all = vec![
            probe("ib_create_qp_user", "ib_core:ib_create_qp_user", "", true),
            rxe("poll_cq", 0x3a00, "entry: push, emulated, shared with the probe of the return"),
            rxe("post_send", 0x3cc4, push),
            rxe("post_recv", 0x3d00, push),
        ];
        all.extend((0u32..9).map(|n| rxe(&format!("wr_{n}"), 0x4000 + n * 16, none)));
        all.push(probe("learn", "/usr/lib/libibverbs.so.1+0x100", "+3: push, emulated", true));
        all.push(probe("wr_start", "/usr/lib/libibverbs/librxe-rdmav34.so+0x5000", "permission denied", false));
        all
    }

    #[test]
    fn what_lies_in_one_file_is_one_line_and_what_is_missing_is_not_hidden_in_it() {
        insta::assert_snapshot!(folded(&probes()).join("\n"), @r"
        attached ib_create_qp_user at ib_core:ib_create_qp_user
        attached /usr/lib/libibverbs/librxe-rdmav34.so: poll_cq (entry: push, emulated, shared with the probe of the return); post_send +0x3cc4, post_recv (+4: push, emulated); wr_0, wr_1, 7 more (entry: no emulated instruction while arguments are live)
        attached learn at /usr/lib/libibverbs.so.1+0x100: +3: push, emulated
        MISSING  wr_start at /usr/lib/libibverbs/librxe-rdmav34.so+0x5000: permission denied
        ");
    }

    #[test]
    fn each_probe_has_its_line_where_all_are_asked_for() {
        let lines = each(&probes());
        assert_eq!(lines.len(), probes().len());
        assert_eq!(lines[2], "attached post_send at /usr/lib/libibverbs/librxe-rdmav34.so+0x3cc4: +4: push, emulated");
    }

    #[test]
    fn two_files_of_one_name_are_two_lines() {
        let lines = folded(&[
            probe("post_send", "/lib/librxe.so+0x10", "a", true),
            probe("post_recv", "/lib/librxe.so+0x20", "a", true),
            probe("post_send", "/lib/librxe.so+0x30", "a", true),
        ]);
        assert_eq!(
            lines,
            ["attached /lib/librxe.so: post_send +0x10, post_recv (a)", "attached post_send at /lib/librxe.so+0x30: a"]
        );
    }
}
