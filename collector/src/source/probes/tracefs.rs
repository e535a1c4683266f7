//! The layout of the tracepoint `ras:aer_event`, from its `format` file: it has changed between kernels.

use std::fs;
use std::path::Path;

use collector_ebpf::config::{Config, Field};

use super::reason::{RUN_AS_ROOT, Why};

/// Where tracefs may be mounted.
const MOUNTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Why the tracepoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// tracefs is nowhere.
    #[error("tracefs is not mounted (at /sys/kernel/tracing or /sys/kernel/debug/tracing)")]
    NotMounted,
    /// tracefs may not be read.
    #[error("{0} may not be read by this user")]
    Forbidden(String),
    /// No such tracepoint.
    #[error("this kernel has no tracepoint ras:aer_event (CONFIG_PCIEAER and CONFIG_RAS)")]
    NoTracepoint,
    /// A field is missing.
    #[error("the tracepoint ras:aer_event has no field {0}")]
    NoField(&'static str),
}

impl Error {
    /// The error with what the operator can do about it.
    pub(super) fn why(&self) -> Why {
        let fix = match self {
            Self::NotMounted => Some("mount -t tracefs tracefs /sys/kernel/tracing"),
            Self::Forbidden(_) => Some(RUN_AS_ROOT),
            Self::NoTracepoint | Self::NoField(_) => None,
        };
        Why { reason: self.to_string(), fix: fix.map(str::to_owned) }
    }
}

/// Fills in the places of the tracepoint's fields.
pub(super) fn fill(config: &mut Config) -> Result<(), Error> {
    fill_from(&MOUNTS.map(Path::new), config)
}

fn fill_from(mounts: &[&Path], config: &mut Config) -> Result<(), Error> {
    for mount in mounts {
        let events = mount.join("events");
        match fs::metadata(&events) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                return Err(Error::Forbidden(mount.display().to_string()));
            }
            Err(_) => continue,
        }
        let path = events.join("ras/aer_event/format");
        return match fs::read_to_string(&path) {
            Ok(format) => parse(&format, config),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                Err(Error::Forbidden(path.display().to_string()))
            }
            Err(_) => Err(Error::NoTracepoint),
        };
    }
    Err(Error::NotMounted)
}

fn parse(format: &str, config: &mut Config) -> Result<(), Error> {
    let need = |name| field(format, name).ok_or(Error::NoField(name));
    let mut found = *config;
    found.aer_dev_name = need("dev_name")?;
    found.aer_status = need("status")?;
    found.aer_severity = need("severity")?;
    // The header is extra: without its place, reports come without it.
    found.aer_tlp_valid = field(format, "tlp_header_valid").unwrap_or_default();
    found.aer_tlp = field(format, "tlp_header").filter(|field| field.size >= 16).unwrap_or_default();
    *config = found;
    Ok(())
}

/// Lines look like `field:u32 status; offset:12; size:4; signed:0;`, with tabs between the parts.
fn field(format: &str, name: &str) -> Option<Field> {
    format.lines().find_map(|line| {
        let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
        let declared = parts.next()?.rsplit(' ').next()?;
        if declared.split('[').next()? != name {
            return None;
        }
        let number = |part: &str, key| part.strip_prefix(key)?.parse().ok();
        let (mut offset, mut size) = (None, None);
        for part in parts {
            offset = offset.or_else(|| number(part, "offset:"));
            size = size.or_else(|| number(part, "size:"));
        }
        Some(Field { offset: offset?, size: size? })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As kernel 6.1 prints it.
    const FORMAT: &str = "name: aer_event\nID: 1\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \n\
        \tfield:__data_loc char[] dev_name;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:u32 status;\toffset:12;\tsize:4;\tsigned:0;\n\
        \tfield:u8 severity;\toffset:16;\tsize:1;\tsigned:0;\n\
        \tfield:u8 tlp_header_valid;\toffset:17;\tsize:1;\tsigned:0;\n\
        \tfield:u32 tlp_header[4];\toffset:20;\tsize:16;\tsigned:0;\n\
        \nprint fmt: \"%s PCIe Bus Error: severity=%s\"\n";

    #[test]
    fn the_fields_are_where_the_format_says() {
        let mut config = Config::default();
        parse(FORMAT, &mut config).expect("all fields are there");
        assert_eq!(config.aer_dev_name, Field { offset: 8, size: 4 });
        assert_eq!(config.aer_severity, Field { offset: 16, size: 1 });
        assert_eq!(config.aer_tlp, Field { offset: 20, size: 16 });
    }

    #[test]
    fn a_format_without_a_header_still_gives_reports() {
        let format = FORMAT.lines().filter(|line| !line.contains("tlp")).collect::<Vec<_>>().join("\n");
        let mut config = Config::default();
        parse(&format, &mut config).expect("the header is extra");
        assert!(!config.aer_tlp.is_known() && config.aer_status.is_known());
    }

    #[test]
    fn a_format_without_the_status_is_refused() {
        let format = FORMAT.lines().filter(|line| !line.contains("status")).collect::<Vec<_>>().join("\n");
        let mut config = Config::default();
        assert!(matches!(parse(&format, &mut config), Err(Error::NoField("status"))));
        assert_eq!(config, Config::default());
    }

    #[test]
    fn tracefs_that_is_nowhere_is_named() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let error = fill_from(&[dir.path()], &mut Config::default()).expect_err("nothing is mounted there");
        assert!(matches!(error, Error::NotMounted));
    }
}
