//! The filter language: words and comparisons, all of which must hold.
//!
//! ```text
//! comm=nccl errors>0 state!=RTS mlx5
//! ```
//!
//! `field op value` without spaces, `op` one of `= == != > >= < <=`. `=` on text means "contains", `==` that it is just that
//! (an address however it is written); on a number both mean "equal".
//! A bare word is looked for in every text field. Upper and lower case do not matter. Numbers take `k`, `M`, `G`.
//! A row whose field is unknown fulfils no comparison with it, not even `!=`: unknown is not a value.

use std::net::{IpAddr, Ipv6Addr};

/// What a field of a row is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value<'a> {
    /// Text.
    Text(&'a str),
    /// A number.
    Number(f64),
    /// Not known.
    Unknown,
}

/// A field's name, and whether it is a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field<F> {
    /// The names it goes by, the usual one first.
    pub(crate) names: &'static [&'static str],
    /// It is a number.
    pub(crate) numeric: bool,
    /// Which.
    pub(crate) id: F,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Equal,
    Exactly,
    NotEqual,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
}

/// The operators, the longer ones first.
const OPS: [(&str, Op); 7] = [
    ("==", Op::Exactly),
    ("!=", Op::NotEqual),
    (">=", Op::GreaterEqual),
    ("<=", Op::LessEqual),
    ("=", Op::Equal),
    (">", Op::Greater),
    ("<", Op::Less),
];

#[derive(Debug, Clone, PartialEq)]
enum Term<F> {
    Word(String),
    Text { field: F, not: bool, value: String },
    Exactly { field: F, value: String, address: Option<Ipv6Addr> },
    Number { field: F, op: Op, value: f64 },
}

/// A filter; the empty one lets everything through.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Filter<F> {
    terms: Vec<Term<F>>,
}

impl<F> Default for Filter<F> {
    fn default() -> Self {
        Self { terms: Vec::new() }
    }
}

impl<F: Copy + PartialEq> Filter<F> {
    /// Reads a filter. The error is one line for the person who is typing.
    pub(crate) fn parse(text: &str, fields: &[Field<F>]) -> Result<Self, String> {
        let terms = text.split_whitespace().map(|term| parse_term(term, fields)).collect::<Result<_, _>>()?;
        Ok(Self { terms })
    }

    /// Everything gets through.
    pub(crate) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Looks at rows one after the other. `texts` are the fields a bare word is looked for in.
    pub(crate) fn sieve<'f, 'r>(&'f self, texts: &'f [F]) -> Sieve<'f, 'r, F> {
        Sieve { filter: self, texts, seen: vec![None; self.terms.len() * texts.len().max(1)] }
    }
}

/// A filter at work. Many rows share the very same text (a name that is kept once): what became of it is remembered for
/// the next row.
pub(crate) struct Sieve<'f, 'r, F> {
    filter: &'f Filter<F>,
    texts: &'f [F],
    /// The last text, and whether it contains the word: for each term, and for a bare word for each field.
    seen: Vec<Option<(&'r str, bool)>>,
}

impl<'r, F: Copy + PartialEq> Sieve<'_, 'r, F> {
    /// The row whose fields `value` gives gets through.
    pub(crate) fn passes(&mut self, value: impl Fn(F) -> Value<'r>) -> bool {
        let texts = self.texts;
        let seen = self.seen.chunks_mut(texts.len().max(1));
        self.filter.terms.iter().zip(seen).all(|(term, seen)| match term {
            Term::Word(word) => texts.iter().zip(seen).any(|(field, seen)| match value(*field) {
                Value::Text(text) => again(seen, text, word),
                Value::Number(_) | Value::Unknown => false,
            }),
            Term::Text { field, not, value: wanted } => match (value(*field), seen.first_mut()) {
                (Value::Text(text), Some(seen)) => again(seen, text, wanted) != *not,
                _ => false,
            },
            Term::Exactly { field, value: wanted, address: at } => {
                let same = |text: &str| at.is_some() && address(text) == *at;
                matches!(value(*field), Value::Text(text) if text.eq_ignore_ascii_case(wanted) || same(text))
            }
            Term::Number { field, op, value: wanted } => match value(*field) {
                Value::Number(n) => op.holds(n, *wanted),
                Value::Text(_) | Value::Unknown => false,
            },
        })
    }
}

/// [`contains`], unless this very text was looked at last.
fn again<'r>(seen: &mut Option<(&'r str, bool)>, text: &'r str, word: &str) -> bool {
    match seen {
        Some((last, found)) if std::ptr::eq(*last, text) => *found,
        _ => seen.insert((text, contains(text, word))).1,
    }
}

impl Op {
    fn holds(self, a: f64, b: f64) -> bool {
        match self {
            // Counts up to 2^53 are exact, and nobody types a rate to its last digit.
            Self::Equal | Self::Exactly => (a - b).abs() < f64::EPSILON * a.abs().max(1.0),
            Self::NotEqual => !Self::Equal.holds(a, b),
            Self::Greater => a > b,
            Self::GreaterEqual => a >= b,
            Self::Less => a < b,
            Self::LessEqual => a <= b,
        }
    }
}

fn parse_term<F: Copy>(term: &str, fields: &[Field<F>]) -> Result<Term<F>, String> {
    let Some(at) = term.find(['=', '!', '<', '>']) else { return Ok(Term::Word(term.to_ascii_lowercase())) };
    let (name, rest) = term.split_at(at);
    let Some((sign, op)) = OPS.into_iter().find(|(sign, _)| rest.starts_with(sign)) else {
        return Err(format!("`{term}`: after `!` comes `=`"));
    };
    let value = &rest[sign.len()..];
    let Some(field) = fields.iter().find(|field| field.names.iter().any(|n| n.eq_ignore_ascii_case(name))) else {
        let known: Vec<&str> = fields.iter().filter_map(|field| field.names.first().copied()).collect();
        return Err(format!("there is no field `{name}`; there are {}", known.join(", ")));
    };
    if value.is_empty() {
        return Err(format!("`{term}`: a value is missing after `{sign}`"));
    }
    if field.numeric {
        let value = number(value).ok_or_else(|| format!("`{value}` is no number, and {name} is one"))?;
        return Ok(Term::Number { field: field.id, op, value });
    }
    match op {
        Op::Equal | Op::NotEqual => {
            let not = op == Op::NotEqual;
            Ok(Term::Text { field: field.id, not, value: value.to_ascii_lowercase() })
        }
        Op::Exactly => {
            Ok(Term::Exactly { field: field.id, value: value.to_ascii_lowercase(), address: address(value) })
        }
        _ => Err(format!("{name} is text: use `=` or `!=`, not `{sign}`")),
    }
}

/// An address in the form a GID holds it in: an IPv4 address as `::ffff:a.b.c.d`.
fn address(text: &str) -> Option<Ipv6Addr> {
    Some(match text.parse().ok()? {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    })
}

/// `17`, `0x11`, `1.5k`, `2M`, `3G`.
fn number(text: &str) -> Option<f64> {
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok().map(|n| n as f64);
    }
    let (digits, factor) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 1e3),
        (at, 'M') => (&text[..at], 1e6),
        (at, 'G') => (&text[..at], 1e9),
        _ => (text, 1.0),
    };
    digits.parse::<f64>().ok().filter(|n| n.is_finite()).map(|n| n * factor)
}

/// `text` contains `word` (which is in lower case), without regard to ASCII case.
fn contains(text: &str, word: &str) -> bool {
    let (text, word) = (text.as_bytes(), word.as_bytes());
    word.is_empty() || text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: [Field<char>; 4] = [
        Field { names: &["comm"], numeric: false, id: 'c' },
        Field { names: &["state"], numeric: false, id: 's' },
        Field { names: &["errors", "err"], numeric: true, id: 'e' },
        Field { names: &["qpn"], numeric: true, id: 'q' },
    ];

    fn matches(filter: &str) -> bool {
        let filter = Filter::parse(filter, &FIELDS).unwrap();
        filter.sieve(&['c', 's']).passes(|field| match field {
            'c' => Value::Text("python3-NCCL"),
            's' => Value::Text("RTS"),
            'q' => Value::Number(17.0),
            _ => Value::Unknown,
        })
    }

    #[test]
    fn text_contains_and_numbers_compare() {
        for holds in [
            "",
            "comm=nccl",
            "qpn=17",
            "qpn=0x11",
            "qpn>16 qpn<=17",
            "state!=err",
            "nccl rts",
            "STATE=rts",
            "state==rts",
            "qpn==17",
        ] {
            assert!(matches(holds), "{holds}");
        }
        for fails in ["comm=mpi", "qpn!=17", "qpn>1k", "nccl err", "state!=rts", "state==rt", "comm==nccl", "qpn==1"] {
            assert!(!matches(fails), "{fails}");
        }
    }

    #[test]
    fn an_address_is_the_same_however_it_is_written() {
        let passes = |filter: &str, text: &'static str| {
            let filter = Filter::parse(filter, &FIELDS).unwrap();
            filter.sieve(&['c']).passes(|_| Value::Text(text))
        };
        let whole = "0000:0000:0000:0000:0000:ffff:0a64:0320";
        for text in [whole, "::ffff:10.100.3.32", "10.100.3.32"] {
            assert!(passes("comm==10.100.3.32", text) && !passes("comm==10.100.3.3", text), "{text}");
        }
        assert!(passes("comm==fe80::1", "fe80:0000:0000:0000:0000:0000:0000:0001"));
        assert!(!passes("comm==nccl", "mpi"), "what is no address is not the same as another that is none");
    }

    #[test]
    fn rows_that_share_a_text_and_rows_that_do_not_get_through_alike() {
        let [one, other] = ["nccl", "mpirun"];
        for filter in ["comm=nccl", "comm!=nccl", "nccl", "comm=n state=x"] {
            let filter = Filter::parse(filter, &FIELDS).unwrap();
            let mut sieve = filter.sieve(&['c', 's']);
            for (comm, state) in [(one, one), (one, other), (other, one), (other, "x"), (one, "x"), (one, "nccl")] {
                let value = |field| Value::Text(if field == 'c' { comm } else { state });
                let alone = filter.sieve(&['c', 's']).passes(value);
                assert_eq!(sieve.passes(value), alone, "{filter:?} {comm} {state}");
            }
        }
    }

    #[test]
    fn an_unknown_value_fulfils_no_comparison() {
        for filter in ["errors>0", "errors=0", "errors!=0", "err<9"] {
            assert!(!matches(filter), "{filter}");
        }
    }

    #[test]
    fn every_mistake_is_named() {
        let error = |text: &str| Filter::parse(text, &FIELDS).unwrap_err();
        assert_eq!(error("foo=1"), "there is no field `foo`; there are comm, state, errors, qpn");
        assert_eq!(error("errors>"), "`errors>`: a value is missing after `>`");
        assert_eq!(error("qpn=abc"), "`abc` is no number, and qpn is one");
        assert_eq!(error("comm>a"), "comm is text: use `=` or `!=`, not `>`");
        assert_eq!(error("comm!a"), "`comm!a`: after `!` comes `=`");
    }
}
