//! What an answer means: taken, taken in part, to be sent again, or never (OpenTelemetry Protocol Specification 1.x,
//! "OTLP/gRPC Response" and "OTLP/HTTP Response").

use std::time::{Duration, SystemTime};

use prost::Message;

/// The outcome of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// Taken, but for `rejected` records.
    Taken {
        /// Records that were not.
        rejected: u64,
        /// Why not, in the other end's words; or a warning.
        message: String,
    },
    /// Not now: the same is to be sent again, not before `after`.
    Later {
        /// Why.
        why: String,
        /// What the other end asked for.
        after: Option<Duration>,
        /// It is this signal that is not taken; what is sent to the same place otherwise may be.
        signal_only: bool,
    },
    /// Never: the same must not be sent again.
    Refused {
        /// Why.
        why: String,
    },
}

impl Answer {
    /// The connection or the request failed before there was an answer.
    pub(super) fn failed(why: impl Into<String>) -> Self {
        Self::Later { why: why.into(), after: None, signal_only: false }
    }

    /// There was no answer in time. Whoever takes other signals may have no answer to this one.
    pub(super) fn missing(timeout: Duration) -> Self {
        let why = format!("no answer within {} ms", timeout.as_millis());
        Self::Later { why, after: None, signal_only: true }
    }

    /// An HTTP status other than 2xx.
    pub(super) fn of_http(status: u16, retry_after: Option<&str>, now: SystemTime, why: String) -> Self {
        match status {
            429 | 502 | 503 | 504 => {
                Self::Later { why, after: retry_after.and_then(|text| delay(text, now)), signal_only: true }
            }
            _ => Self::Refused { why },
        }
    }

    /// A gRPC status other than OK, with the details it came with. `here`: nobody answered, the status was made here.
    pub(super) fn of_grpc(code: tonic::Code, details: &[u8], here: bool, why: String) -> Self {
        use tonic::Code;
        let after = retry_delay(details);
        let again = match code {
            Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss => true,
            // Only if the other end says when there will be room again.
            Code::ResourceExhausted => after.is_some(),
            _ => here,
        };
        if again { Self::Later { why, after, signal_only: !here } } else { Self::Refused { why } }
    }
}

/// `Retry-After` (RFC 9110, 10.2.3): seconds, or a date.
fn delay(text: &str, now: SystemTime) -> Option<Duration> {
    if let Ok(seconds) = text.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text.trim()).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

/// `google.rpc.Status`, as far as it is looked at (googleapis, google/rpc/status.proto).
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.RetryInfo` (`google/rpc/error_details.proto`).
#[derive(Clone, Copy, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<Delay>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, Message)]
struct Delay {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// The delay of a `RetryInfo` among a status's details.
fn retry_delay(details: &[u8]) -> Option<Duration> {
    let status = RpcStatus::decode(details).ok()?;
    let info = status.details.iter().find(|any| any.type_url.ends_with("/google.rpc.RetryInfo"))?;
    let delay = RetryInfo::decode(&*info.value).ok()?.retry_delay.unwrap_or_default();
    let (seconds, nanos) = (u64::try_from(delay.seconds).ok()?, u32::try_from(delay.nanos).ok()?);
    Some(Duration::from_secs(seconds).saturating_add(Duration::from_nanos(u64::from(nanos))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    fn again(answer: &Answer) -> bool {
        matches!(answer, Answer::Later { .. })
    }

    fn asks(answer: &Answer) -> Option<Duration> {
        let Answer::Later { after, .. } = answer else { panic!("not to be sent again: {answer:?}") };
        *after
    }

    fn retry_info(seconds: i64, nanos: i32) -> Vec<u8> {
        let info = RetryInfo { retry_delay: Some(Delay { seconds, nanos }) };
        let any = Any { type_url: "type.googleapis.com/google.rpc.RetryInfo".into(), value: info.encode_to_vec() };
        RpcStatus { details: vec![any] }.encode_to_vec()
    }

    #[test]
    fn only_the_four_statuses_of_http_are_sent_again() {
        for status in 300..=599u16 {
            let answer = Answer::of_http(status, None, SystemTime::UNIX_EPOCH, String::new());
            assert_eq!(again(&answer), [429, 502, 503, 504].contains(&status), "{status}");
        }
    }

    #[test]
    fn retry_after_is_read_as_seconds_and_as_a_date() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:07 GMT").expect("a date");
        let after = |text| asks(&Answer::of_http(503, Some(text), now, String::new()));
        assert_eq!(after("120"), Some(Duration::from_secs(120)));
        assert_eq!(after("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(after("Sun, 06 Nov 1994 08:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(after("soon"), None);
    }

    #[test]
    fn grpc_codes_are_sent_again_as_the_specification_lists_them() {
        let yes = [1, 4, 10, 11, 14, 15].map(Code::from_i32);
        for code in (1..=16).map(Code::from_i32) {
            let answer = Answer::of_grpc(code, &[], false, String::new());
            assert_eq!(again(&answer), yes.contains(&code), "{code:?}");
            assert!(again(&Answer::of_grpc(code, &[], true, String::new())) || code == Code::ResourceExhausted);
        }
        let full = Answer::of_grpc(Code::ResourceExhausted, &retry_info(2, 500_000_000), false, String::new());
        assert_eq!(asks(&full), Some(Duration::from_millis(2500)));
        let later = Answer::of_grpc(Code::Unavailable, &retry_info(5, 0), false, String::new());
        assert_eq!(asks(&later), Some(Duration::from_secs(5)));
        let nonsense = Answer::of_grpc(Code::Unavailable, &[0xff; 9], false, String::new());
        assert_eq!(asks(&nonsense), None);
    }
}
