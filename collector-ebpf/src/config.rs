//! What user space tells the programs when it loads them: how large the maps are, and where the running kernel keeps the
//! fields the programs read.

/// Where a kernel structure keeps a field. Unknown fields are never read.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Field {
    /// Bytes from the start of the structure the program holds a pointer to.
    pub offset: u16,
    /// Size of the field in bytes; a field without a size is not known on this kernel.
    pub size: u16,
}

impl Field {
    /// The field is known on this kernel.
    #[must_use]
    pub const fn is_known(self) -> bool {
        self.size != 0
    }

    /// Keeps the low `size` bytes of a little-endian word read at the field's address: the width of some fields
    /// differs between kernels (`ib_qp.port` was `u8` before 5.13 and is `u32` since).
    #[must_use]
    pub const fn narrow(self, word: u32) -> u32 {
        match self.size {
            1 => word & 0xff,
            2 => word & 0xffff,
            _ => word,
        }
    }
}

/// The programs' read-only global.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Config {
    /// Entries of the slot array.
    pub slots: u32,
    /// Entries of the array of histograms: slots with an index from here on have none.
    pub wide_slots: u32,
    /// `ib_qp.qp_num`.
    pub qp_qpn: Field,
    /// `ib_qp.device`.
    pub qp_device: Field,
    /// `ib_qp.port`: set when the QP has been bound to a port (`IB_QP_PORT`).
    pub qp_port: Field,
    /// `ib_qp.qp_type`.
    pub qp_type: Field,
    /// `ib_device.name`, a character array.
    pub device_name: Field,
    /// `ib_qp_attr.qp_state`.
    pub attr_state: Field,
    /// `ib_qp_attr.path_mtu`, an `enum ib_mtu`.
    pub attr_path_mtu: Field,
    /// `ib_qp_attr.dest_qp_num`.
    pub attr_dest_qpn: Field,
    /// `ib_qp_attr.port_num`.
    pub attr_port: Field,
    /// `ib_qp_attr.timeout`.
    pub attr_timeout: Field,
    /// `ib_qp_attr.retry_cnt`.
    pub attr_retry_cnt: Field,
    /// `ib_qp_attr.rnr_retry`.
    pub attr_rnr_retry: Field,
    /// `ib_qp_attr.ah_attr.ah_flags`.
    pub attr_ah_flags: Field,
    /// `ib_qp_attr.ah_attr.grh.dgid`.
    pub attr_dgid: Field,
    /// `ib_event.device`.
    pub event_device: Field,
    /// `ib_event.element`.
    pub event_element: Field,
    /// `ib_event.event`.
    pub event_code: Field,
    /// Tracepoint `ras:aer_event`, `__data_loc char[] dev_name`.
    pub aer_dev_name: Field,
    /// `ras:aer_event`, `status`.
    pub aer_status: Field,
    /// `ras:aer_event`, `severity`.
    pub aer_severity: Field,
    /// `ras:aer_event`, `tlp_header_valid`.
    pub aer_tlp_valid: Field,
    /// `ras:aer_event`, `tlp_header`.
    pub aer_tlp: Field,
}

const _: () = assert!(size_of::<Config>() == 2 * 4 + 22 * 4, "the configuration has padding");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_one_byte_field_ignores_its_neighbours() {
        assert_eq!(Field { offset: 3, size: 1 }.narrow(0xaabb_cc01), 1);
        assert_eq!(Field { offset: 3, size: 2 }.narrow(0xaabb_cc01), 0xcc01);
        assert_eq!(Field { offset: 3, size: 4 }.narrow(0xaabb_cc01), 0xaabb_cc01);
    }

    #[test]
    fn a_field_is_unknown_until_it_has_a_size() {
        assert!(!Field::default().is_known());
        assert!(Field { offset: 0, size: 4 }.is_known());
    }
}
