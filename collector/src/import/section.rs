//! A text is cut into sections: stretches of lines that one format claims. So several outputs pasted into one file are
//! each read by their own reader, and what nobody claims costs nothing.

use serde_json::Value;

use super::{calendar, ethtool, ibqueryerrors, kernel_log, nccl, perfquery, port_series, rdma_line, text};

/// What is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Format {
    /// `ethtool -S`.
    Ethtool,
    /// `rdma statistic`, of ports and of bound QPs, and its modes.
    RdmaStatistic,
    /// `rdma resource show qp`, `… srq`.
    RdmaResource,
    /// `rdma link`, `rdma dev`.
    RdmaLink,
    /// `perfquery`.
    Perfquery,
    /// `ibqueryerrors` and the warnings of its kin.
    Ibqueryerrors,
    /// `dmesg`, `journalctl`, syslog.
    KernelLog,
    /// The log of NCCL, or of what calls verbs like it.
    Nccl,
    /// A table of port states over time.
    PortSeries,
}

impl Format {
    /// Its name in the report.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ethtool => "ethtool -S",
            Self::RdmaStatistic => "rdma statistic",
            Self::RdmaResource => "rdma resource",
            Self::RdmaLink => "rdma link",
            Self::Perfquery => "perfquery",
            Self::Ibqueryerrors => "ibqueryerrors",
            Self::KernelLog => "kernel log",
            Self::Nccl => "NCCL log",
            Self::PortSeries => "port series",
        }
    }

    /// Each line stands for itself: other lines between two of them do not part the section.
    fn line_by_line(self) -> bool {
        matches!(self, Self::KernelLog | Self::Nccl | Self::Ibqueryerrors)
    }

    /// A new first line begins a section of its own.
    fn one_head(self) -> bool {
        matches!(self, Self::Ethtool | Self::PortSeries)
    }
}

/// What a format says of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// It is the format's without a doubt.
    Begins(Format),
    /// It is the format's if the line before is.
    Continues,
    /// It is not.
    No,
}

/// A stretch of one format.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Section<'t> {
    /// Whose it is.
    pub(super) format: Format,
    /// The call whose output it is, where the text shows it.
    pub(super) command: Option<&'t str>,
    /// The date before it, where the text shows one, ns since 1970.
    pub(super) date: Option<i64>,
    /// Its lines.
    pub(super) lines: Vec<&'t str>,
    /// Its JSON value, instead of lines.
    pub(super) json: Option<Value>,
}

/// The sections of a text, and how many lines nobody claimed. `file` is the file's name, which may say what is in it.
pub(super) fn sections<'t>(text: &'t str, file: &str) -> (Vec<Section<'t>>, usize) {
    let mut cutter = Cutter { sections: Vec::new(), open: None, command: None, date: None, unclaimed: 0 };
    let (mut at, mut cut_off) = (0, false);
    while at < text.len() {
        let end = text[at..].find('\n').map_or(text.len(), |n| at + n);
        let line = &text[at..end];
        if line.starts_with(['[', '{'])
            && let Some((value, length)) = json(if cut_off { line } else { &text[at..] }, &mut cut_off)
        {
            cutter.json(value);
            at += length;
            // The rest of the line the value ends in.
            at += text[at..].find('\n').map_or(text.len() - at, |n| n + 1);
            continue;
        }
        cutter.line(line, file);
        at = end + 1;
    }
    (cutter.sections, cutter.unclaimed)
}

struct Cutter<'t> {
    sections: Vec<Section<'t>>,
    /// The section that the next line may continue.
    open: Option<usize>,
    command: Option<&'t str>,
    date: Option<i64>,
    unclaimed: usize,
}

impl<'t> Cutter<'t> {
    fn line(&mut self, line: &'t str, file: &str) {
        if let Some(command) = text::command(line) {
            self.command = Some(command);
            self.open = None;
            return;
        }
        if let Some(date) = calendar::date_line(line) {
            self.date = Some(date);
            self.open = None;
            return;
        }
        let format = self.open.map(|at| self.sections[at].format);
        match claim(line, format, self.command, file) {
            Claim::Begins(format) => {
                let at = self.place(format);
                self.sections[at].lines.push(line);
                self.open = Some(at);
            }
            Claim::Continues if self.open.is_some() => {
                if let Some(at) = self.open {
                    self.sections[at].lines.push(line);
                }
            }
            Claim::Continues | Claim::No => {
                if !line.trim().is_empty() {
                    self.unclaimed += 1;
                    self.open = None;
                }
            }
        }
    }

    /// The section a first line of the format belongs to.
    fn place(&mut self, format: Format) -> usize {
        let open = self.open.filter(|at| self.sections[*at].format == format && !format.one_head());
        let same = || self.sections.iter().rposition(|s| s.format == format && s.json.is_none() && s.date == self.date);
        if let Some(at) = open.or_else(|| format.line_by_line().then(same).flatten()) {
            return at;
        }
        self.push(format, None)
    }

    fn push(&mut self, format: Format, json: Option<Value>) -> usize {
        let (command, date) = (self.command, self.date);
        self.sections.push(Section { format, command, date, lines: Vec::new(), json });
        self.sections.len() - 1
    }

    fn json(&mut self, value: Value) {
        self.open = None;
        let Some(format) = json_format(&value) else {
            self.unclaimed += 1;
            return;
        };
        // The journal writes an object a line: they are one log.
        if format == Format::KernelLog
            && let Some(section) = self.sections.iter_mut().find(|s| s.format == format && s.json.is_some())
            && let Some(Value::Array(all)) = &mut section.json
        {
            all.push(value);
            return;
        }
        let list = if value.is_array() { value } else { Value::Array(vec![value]) };
        self.push(format, Some(list));
    }
}

/// The JSON value a text begins with, and its length in bytes; `None` when it begins with none.
///
/// Sets `cut_off` when the value does not end: then no further one is looked for beyond the end of its line, for each
/// would be read to the end of the text in vain.
fn json(text: &str, cut_off: &mut bool) -> Option<(Value, usize)> {
    // `[  448.45] …` and `[me@node ~]$` are lines of text.
    let second = text[1..].trim_start().chars().next()?;
    if !matches!(second, '{' | '"' | ']' | '}') {
        return None;
    }
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let value = stream.next()?.inspect_err(|error| *cut_off |= error.is_eof()).ok()?;
    Some((value, stream.byte_offset()))
}

fn json_format(value: &Value) -> Option<Format> {
    let first = if let Value::Array(list) = value { list.first()? } else { value };
    let object = first.as_object()?;
    let has = |key: &str| object.contains_key(key);
    if has("__REALTIME_TIMESTAMP") && has("MESSAGE") {
        return Some(Format::KernelLog);
    }
    if !has("ifname") {
        return None;
    }
    if has("cntn") || has("qp-type") || has("optional-counters") || has("supported optional-counters") {
        return Some(Format::RdmaStatistic);
    }
    if has("lqpn") {
        return Some(Format::RdmaResource);
    }
    if has("state") || has("node_guid") || has("node_type") {
        return Some(Format::RdmaLink);
    }
    has("port").then_some(Format::RdmaStatistic)
}

/// Whose line it is. The order matters where one line could be of two: an NCCL line may stand in a log with dates.
fn claim(line: &str, open: Option<Format>, command: Option<&str>, file: &str) -> Claim {
    let first = [nccl::claim(line), kernel_log::claim(line), rdma_line::claim(line), perfquery::claim(line)]
        .into_iter()
        .chain([ibqueryerrors::claim(line), port_series::claim(line), ethtool::claim(line, open, command, file)])
        .find(|claim| matches!(claim, Claim::Begins(_)));
    if let Some(begins) = first {
        return begins;
    }
    let continues = match open {
        Some(Format::Ethtool) => ethtool::continues(line),
        Some(Format::RdmaStatistic | Format::RdmaResource | Format::RdmaLink) => rdma_line::continues(line),
        Some(Format::Perfquery) => perfquery::continues(line),
        Some(Format::Ibqueryerrors) => ibqueryerrors::continues(line),
        Some(Format::PortSeries) => port_series::continues(line),
        Some(Format::KernelLog | Format::Nccl) | None => false,
    };
    if continues { Claim::Continues } else { Claim::No }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formats(text: &str) -> Vec<(Format, usize)> {
        sections(text, "paste.txt").0.iter().map(|s| (s.format, s.lines.len())).collect()
    }

    #[test]
    fn several_outputs_in_one_file_are_parted_by_their_heads() {
        let text = "$ ethtool -S eth0\nNIC statistics:\n     a: 1\n     b: 2\n\
                    $ rdma statistic show\nlink mlx5_0/1 out_of_buffer 0\nout_of_sequence 3\n\
                    # Port extended counters: Lid 5 port 1 (CapMask: 0x5300)\nPortXmitData:....7\n\
                    some prose\n[   10.1] mlx5_core 0000:01:00.0: x\nmore prose\n[   11.1] y\n\
                    NIC statistics:\n     a: 3\n";
        assert_eq!(
            formats(text),
            [
                (Format::Ethtool, 3),
                (Format::RdmaStatistic, 2),
                (Format::Perfquery, 2),
                (Format::KernelLog, 2),
                (Format::Ethtool, 2)
            ]
        );
        let (cut, unclaimed) = sections(text, "x");
        assert_eq!((cut[0].command, unclaimed), (Some("ethtool -S eth0"), 2));
    }

    #[test]
    fn json_between_lines_is_a_section_of_its_kind() {
        let text = "$ rdma -j resource show qp\n[{\"ifname\":\"a\",\"lqpn\":1,\"state\":\"RTS\"}]\n[    1.0] x\n\
                    [ {\"ifname\":\"a\",\"port\":1,\"out_of_buffer\":0} ]\n{\"what\":1}\n";
        let (cut, unclaimed) = sections(text, "x");
        let found: Vec<_> = cut.iter().map(|s| (s.format, s.json.is_some())).collect();
        let expected = [(Format::RdmaResource, true), (Format::KernelLog, false), (Format::RdmaStatistic, true)];
        assert_eq!((&found[..], unclaimed), (&expected[..], 1));
    }

    #[test]
    fn a_date_before_an_output_is_its_time() {
        let text =
            "Thu Jan  1 00:00:01 UTC 1970\nNIC statistics:\n  a: 1\n1970-01-01T00:00:03Z\nNIC statistics:\n  a: 5\n";
        let dates: Vec<_> = sections(text, "x").0.iter().map(|s| s.date).collect();
        assert_eq!(dates, [Some(1_000_000_000), Some(3_000_000_000)]);
    }
}
