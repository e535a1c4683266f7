//! Frames for tests: one as the software driver sends it, and a builder.

/// An RDMA WRITE of 1,024 bytes with `--tclass=106` from 10.0.1.1 to 10.0.2.1, as far as it is looked at: Ethernet,
/// IPv4, UDP, BTH, RETH.
#[rustfmt::skip]
pub(super) const TX_OF_RXE: &[u8] = &[
    0x5e, 0x11, 0x22, 0x33, 0x44, 0x55, 0x5e, 0x66, 0x77, 0x88, 0x99, 0xaa, 0x08, 0x00,
    0x45, 0x6a, 0x04, 0x3c, 0x1c, 0x46, 0x40, 0x00, 0x40, 0x11, 0x00, 0x00, 10, 0, 1, 1, 10, 0, 2, 1,
    0xdd, 0x11, 0x12, 0xb7, 0x04, 0x28, 0x00, 0x00,
    0x0a, 0x40, 0xff, 0xff, 0x00, 0x00, 0x00, 0x11, 0x80, 0x00, 0xf1, 0x23,
    0, 0, 0x7f, 0x10, 0, 0, 0, 0, 0, 0, 0x1a, 0x2b, 0, 0, 0x04, 0,
];

/// What a frame is built from.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    pub(super) src: u8,
    pub(super) dst: u8,
    pub(super) v6: bool,
    pub(super) tags: u8,
    /// Words of IPv4 options.
    pub(super) options: u8,
    /// DSCP and ECN.
    pub(super) class: u8,
    pub(super) id: u16,
    pub(super) fragment: u16,
    pub(super) protocol: u8,
    pub(super) port: u16,
    pub(super) opcode: u8,
    pub(super) qpn: u32,
    pub(super) psn: u32,
    pub(super) ack_request: bool,
    pub(super) becn: bool,
    pub(super) after: [u8; 8],
}

impl Default for Frame {
    fn default() -> Self {
        Self {
            src: 1,
            dst: 2,
            v6: false,
            tags: 0,
            options: 0,
            class: 26 << 2 | 2,
            id: 7,
            fragment: 0,
            protocol: 17,
            port: 4791,
            opcode: 0x0a,
            qpn: 0x11,
            psn: 100,
            ack_request: false,
            becn: false,
            after: [0; 8],
        }
    }
}

impl Frame {
    /// The frame: from 10.0.SRC.1 to 10.0.DST.1, or from `fd00::SRC` to `fd00::DST`.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0x5e; 12];
        for _ in 0..self.tags {
            bytes.extend([0x81, 0x00, 0x60, 0x05]);
        }
        let udp_bytes: u16 = 8 + 12 + 8 + 4;
        if self.v6 {
            bytes.extend([0x86, 0xdd, 0x60 | self.class >> 4, self.class << 4, 0, 0]);
            bytes.extend(udp_bytes.to_be_bytes());
            bytes.extend([self.protocol, 64]);
            for last in [self.src, self.dst] {
                bytes.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
            }
        } else {
            bytes.extend([0x08, 0x00, 0x45 + self.options, self.class]);
            bytes.extend((20 + u16::from(self.options) * 4 + udp_bytes).to_be_bytes());
            bytes.extend(self.id.to_be_bytes());
            bytes.extend(self.fragment.to_be_bytes());
            bytes.extend([64, self.protocol, 0, 0, 10, 0, self.src, 1, 10, 0, self.dst, 1]);
            bytes.extend(std::iter::repeat_n(1, usize::from(self.options) * 4));
        }
        bytes.extend(50_000u16.to_be_bytes());
        bytes.extend(self.port.to_be_bytes());
        bytes.extend(udp_bytes.to_be_bytes());
        bytes.extend([0, 0, self.opcode, 0, 0xff, 0xff, u8::from(self.becn) << 6]);
        bytes.extend(&self.qpn.to_be_bytes()[1..]);
        bytes.push(u8::from(self.ack_request) << 7);
        bytes.extend(&self.psn.to_be_bytes()[1..]);
        bytes.extend(self.after);
        bytes.extend([0; 4]);
        bytes
    }
}
