//! Where the running kernel keeps the fields the programs read.
//!
//! `ib_*` structures live in the module `ib_core`; out-of-tree stacks ship another `ib_core` than the kernel's own. So
//! the offsets come from the type information (BTF) of the module that is loaded, never from a header or a table.

use std::path::Path;

use btf_rs::{Btf, BtfType, Type};
use collector_ebpf::config::{Config, Field};

use super::reason::Why;

/// Why a field's place is not known.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The kernel has no BTF.
    #[error("the kernel has no type information (/sys/kernel/btf/vmlinux is missing: CONFIG_DEBUG_INFO_BTF)")]
    NoKernelBtf,
    /// The module is not loaded.
    #[error("ib_core is not loaded: there is no RDMA device here")]
    NotLoaded,
    /// The module has no BTF.
    #[error(
        "the loaded ib_core has no type information (/sys/kernel/btf/ib_core is missing), so its structures are unknown"
    )]
    NoModuleBtf,
    /// BTF that cannot be read.
    #[error("{path} cannot be read: {reason}")]
    Unreadable { path: String, reason: String },
    /// A structure or a field is not there.
    #[error("the loaded ib_core has no {0}")]
    NoField(String),
}

impl Error {
    /// The error with what the operator can do about it.
    pub(super) fn why(&self) -> Why {
        let fix = match self {
            Self::NoKernelBtf => Some("boot a kernel built with CONFIG_DEBUG_INFO_BTF"),
            Self::NotLoaded => Some("load the RDMA driver of the adapter, where there is one"),
            Self::NoModuleBtf => {
                Some("use the kernel's own ib_core, or build the driver's with type information (pahole)")
            }
            Self::Unreadable { .. } | Self::NoField(_) => None,
        };
        Why { reason: self.to_string(), fix: fix.map(str::to_owned) }
    }
}

/// The sysfs directories that are asked; tests give others.
pub(super) struct Kernel<'p> {
    /// `/sys/kernel/btf`
    pub(super) btf: &'p Path,
    /// `/sys/module`
    pub(super) modules: &'p Path,
}

/// Fills in the places of the `ib_*` fields.
pub(super) fn fill(kernel: &Kernel<'_>, config: &mut Config) -> Result<(), Error> {
    let base_path = kernel.btf.join("vmlinux");
    if !base_path.exists() {
        return Err(Error::NoKernelBtf);
    }
    let base = Btf::from_file(&base_path).map_err(|error| unreadable(&base_path, &error))?;
    let module_path = kernel.btf.join("ib_core");
    if module_path.exists() {
        let module = Btf::from_split_file(&module_path, &base).map_err(|error| unreadable(&module_path, &error))?;
        return fill_from(&module, config);
    }
    // The kernel's own type information may have these structures without `ib_core` (other drivers know them), which
    // says nothing of the module that is loaded later.
    let module = kernel.modules.join("ib_core");
    if !module.exists() {
        return Err(Error::NotLoaded);
    }
    // A loaded module has a state; one that is built into the kernel has only its parameters.
    if module.join("initstate").exists() {
        return Err(Error::NoModuleBtf);
    }
    fill_from(&base, config)
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::Unreadable { path: path.display().to_string(), reason: error.to_string() }
}

fn fill_from(btf: &Btf, config: &mut Config) -> Result<(), Error> {
    let qp = |field: &str| place(btf, "ib_qp", &[field]);
    let attr = |path: &[&str]| place(btf, "ib_qp_attr", path);
    let event = |field: &str| place(btf, "ib_event", &[field]);
    // Without these no probe has anything to say, so all of them or none.
    let mut found = *config;
    found.qp_qpn = qp("qp_num")?;
    found.qp_device = qp("device")?;
    found.device_name = place(btf, "ib_device", &["name"])?;
    found.attr_state = attr(&["qp_state"])?;
    found.event_device = event("device")?;
    found.event_element = event("element")?;
    found.event_code = event("event")?;
    // Without one of these, only that one is unknown.
    found.qp_port = qp("port").unwrap_or_default();
    found.qp_type = qp("qp_type").unwrap_or_default();
    found.attr_path_mtu = attr(&["path_mtu"]).unwrap_or_default();
    found.attr_dest_qpn = attr(&["dest_qp_num"]).unwrap_or_default();
    found.attr_port = attr(&["port_num"]).unwrap_or_default();
    found.attr_timeout = attr(&["timeout"]).unwrap_or_default();
    found.attr_retry_cnt = attr(&["retry_cnt"]).unwrap_or_default();
    found.attr_rnr_retry = attr(&["rnr_retry"]).unwrap_or_default();
    found.attr_ah_flags = attr(&["ah_attr", "ah_flags"]).unwrap_or_default();
    found.attr_dgid = attr(&["ah_attr", "grh", "dgid"]).unwrap_or_default();
    *config = found;
    Ok(())
}

/// The place of a field, given as the path of member names from a structure.
fn place(btf: &Btf, structure: &str, path: &[&str]) -> Result<Field, Error> {
    let missing = || Error::NoField(format!("{structure}.{}", path.join(".")));
    let types = btf.resolve_types_by_name(structure).map_err(|_| missing())?;
    types
        .into_iter()
        .filter(|ty| matches!(ty, Type::Struct(_)))
        .find_map(|ty| {
            let mut bits = 0;
            let mut ty = ty;
            for name in path {
                let (offset, member) = member(btf, &ty, name)?;
                bits += offset;
                ty = member;
            }
            Some(Field { offset: u16::try_from(bits / 8).ok()?, size: u16::try_from(size(btf, &ty)?).ok()? })
        })
        .filter(|field| field.is_known())
        .ok_or_else(missing)
}

/// A member's offset in bits and its type, without typedefs and qualifiers; looks into anonymous members too.
fn member(btf: &Btf, ty: &Type, name: &str) -> Option<(u32, Type)> {
    let (Type::Struct(structure) | Type::Union(structure)) = ty else { return None };
    for member in &structure.members {
        if member.bitfield_size().is_some_and(|bits| bits != 0) {
            continue;
        }
        let own_name = btf.resolve_name(member).unwrap_or_default();
        let inner = bare(btf, member)?;
        if own_name == name {
            return Some((member.bit_offset(), inner));
        }
        if own_name.is_empty()
            && let Some((offset, found)) = self::member(btf, &inner, name)
        {
            return Some((member.bit_offset() + offset, found));
        }
    }
    None
}

/// The type behind a member or an array, without typedefs and qualifiers.
fn bare(btf: &Btf, of: &dyn BtfType) -> Option<Type> {
    let mut ty = btf.resolve_chained_type(of).ok()?;
    loop {
        ty = match &ty {
            Type::Typedef(inner) => btf.resolve_chained_type(inner).ok()?,
            Type::Volatile(inner) | Type::Const(inner) | Type::Restrict(inner) => {
                btf.resolve_chained_type(inner).ok()?
            }
            Type::TypeTag(inner) => btf.resolve_chained_type(inner).ok()?,
            _ => return Some(ty),
        };
    }
}

fn size(btf: &Btf, ty: &Type) -> Option<usize> {
    match ty {
        Type::Int(int) => Some(int.size()),
        Type::Enum(of) => Some(of.size()),
        Type::Enum64(of) => Some(of.size()),
        Type::Struct(of) | Type::Union(of) => Some(of.size()),
        Type::Ptr(_) => Some(8),
        Type::Array(array) => Some(array.len() * size(btf, &bare(btf, array)?)?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_type_information_says_so() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let kernel = Kernel { btf: dir.path(), modules: dir.path() };
        let error = fill(&kernel, &mut Config::default()).expect_err("there is no BTF");
        assert!(matches!(error, Error::NoKernelBtf), "{error}");
    }

    #[test]
    fn type_information_that_is_none_costs_the_fields_and_says_which_file() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(dir.path().join("vmlinux"), b"not BTF").expect("a file");
        let kernel = Kernel { btf: dir.path(), modules: dir.path() };
        let mut config = Config::default();
        let error = fill(&kernel, &mut config).expect_err("it is no BTF");
        assert!(error.to_string().contains("vmlinux cannot be read"), "{error}");
        assert_eq!(config, Config::default());
    }
}
