//! Lists of the form `name=value,name=value`, values percent-encoded: headers and resource attributes (OpenTelemetry
//! specification, "Resource SDK" and "OpenTelemetry Protocol Exporter": the format of W3C Baggage without properties).

/// Reads a list; the error is the number of the entry that is none, from 1, without a word of what it says.
pub(super) fn pairs(text: &str) -> Result<Vec<(String, String)>, usize> {
    let entries = text.split(',').enumerate().filter(|(_, entry)| !entry.trim().is_empty());
    entries
        .map(|(at, entry)| {
            let (name, value) = entry.split_once('=').ok_or(at + 1)?;
            let name = decoded(name.trim()).filter(|name| !name.is_empty()).ok_or(at + 1)?;
            Ok((name, decoded(value.trim()).ok_or(at + 1)?))
        })
        .collect()
}

/// Without percent-encoding; `None` when that is broken or no UTF-8.
pub(super) fn decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || bytes.next().and_then(|digit| char::from(digit).to_digit(16));
            let (high, low) = (digit()?, digit()?);
            out.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_percent_decoded_and_may_hold_an_equals_sign() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            pairs(" authorization = Bearer%20a=b , x-team=gpu%2Cfabric,"),
            Ok(vec![pair("authorization", "Bearer a=b"), pair("x-team", "gpu,fabric")])
        );
        assert_eq!(pairs("a="), Ok(vec![pair("a", "")]));
    }

    #[test]
    fn what_is_no_pair_is_named_by_its_place_only() {
        assert_eq!(pairs("a=1,topsecret"), Err(2));
        assert_eq!(pairs("=x"), Err(1));
        assert_eq!(pairs("a=%4"), Err(1));
        assert_eq!(pairs("a=%ff"), Err(1));
    }
}
