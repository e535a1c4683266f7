//! What is counted of the packets of a port or a QP, and the names it is told by.
//!
//! `data` is every packet but the congestion notification packet (CNP), acknowledgements included, so that
//! `data = ect0 + ect1 + ce + not_ect` in each direction. A run of CE marks is a row of marked data packets of one QP
//! without an unmarked one between them: `rx_ce = rx_ce_runs + rx_ce_after_ce`.

use super::frame::{Ecn, Packet};
use crate::observation::{Pairs, Text};

/// The direction of a packet, as its port sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Way {
    Rx,
    Tx,
}

/// One direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Direction {
    bytes: u64,
    data: u64,
    acks: u64,
    ect0: u64,
    ect1: u64,
    ce: u64,
    not_ect: u64,
    cnp: u64,
    fecn: u64,
    becn: u64,
    dscp: [u64; 64],
    cnp_dscp: [u64; 64],
}

impl Default for Direction {
    fn default() -> Self {
        Self {
            bytes: 0,
            data: 0,
            acks: 0,
            ect0: 0,
            ect1: 0,
            ce: 0,
            not_ect: 0,
            cnp: 0,
            fecn: 0,
            becn: 0,
            dscp: [0; 64],
            cnp_dscp: [0; 64],
        }
    }
}

impl Direction {
    /// Counts one packet.
    pub(super) fn add(&mut self, packet: &Packet) {
        self.bytes += u64::from(packet.ip_bytes);
        self.fecn += u64::from(packet.fecn);
        self.becn += u64::from(packet.becn);
        let dscp = usize::from(packet.dscp & 63);
        if packet.is_cnp() {
            self.cnp += 1;
            self.cnp_dscp[dscp] += 1;
            return;
        }
        self.data += 1;
        self.acks += u64::from(packet.is_ack());
        self.dscp[dscp] += 1;
        match packet.ecn {
            Ecn::NotEct => self.not_ect += 1,
            Ecn::Ect0 => self.ect0 += 1,
            Ecn::Ect1 => self.ect1 += 1,
            Ecn::Ce => self.ce += 1,
        }
    }

    /// Adds what another one counted.
    pub(super) fn merge(&mut self, other: &Self) {
        for (own, more) in [
            (&mut self.bytes, other.bytes),
            (&mut self.data, other.data),
            (&mut self.acks, other.acks),
            (&mut self.ect0, other.ect0),
            (&mut self.ect1, other.ect1),
            (&mut self.ce, other.ce),
            (&mut self.not_ect, other.not_ect),
            (&mut self.cnp, other.cnp),
            (&mut self.fecn, other.fecn),
            (&mut self.becn, other.becn),
        ] {
            *own += more;
        }
        for at in 0..64 {
            self.dscp[at] += other.dscp[at];
            self.cnp_dscp[at] += other.cnp_dscp[at];
        }
    }

    fn tell(&self, way: &str, values: &mut Pairs<'static, u64>) {
        for (name, value) in [
            ("bytes", self.bytes),
            ("data", self.data),
            ("ack", self.acks),
            ("ect0", self.ect0),
            ("ect1", self.ect1),
            ("ce", self.ce),
            ("not_ect", self.not_ect),
            ("cnp", self.cnp),
        ] {
            values.push(format!("{way}_{name}"), value);
        }
        // What hardly ever occurs is told once it has.
        for (name, value) in [("fecn", self.fecn), ("becn", self.becn)] {
            if value > 0 {
                values.push(format!("{way}_{name}"), value);
            }
        }
        for (dscp, n) in self.dscp.iter().enumerate().filter(|(_, n)| **n > 0) {
            values.push(format!("{way}_dscp_{dscp}"), *n);
        }
    }
}

/// Delays of data packets, those that were marked apart from the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Delays {
    ce: Sums,
    plain: Sums,
    min_ns: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Sums {
    sum_ns: u64,
    n: u64,
    /// Entry i counts delays of 2^i up to 2^(i+1) ns, entry 0 also 0, the last one all that are longer.
    log2: [u64; 32],
}

impl Sums {
    fn add(&mut self, delay_ns: u64) {
        self.sum_ns = self.sum_ns.saturating_add(delay_ns);
        self.n += 1;
        let class = usize::try_from(delay_ns.max(1).ilog2()).unwrap_or(usize::MAX);
        self.log2[class.min(31)] += 1;
    }
}

impl Delays {
    /// Takes one delay.
    pub(super) fn add(&mut self, ce: bool, delay_ns: u64) {
        if ce {
            self.ce.add(delay_ns);
        } else {
            self.plain.add(delay_ns);
        }
        self.min_ns = Some(self.min_ns.map_or(delay_ns, |min| min.min(delay_ns)));
    }

    fn tell(&self, values: &mut Pairs<'static, u64>) {
        // Without a measurement nothing is known of delays, which is not the same as none.
        let Some(min_ns) = self.min_ns else { return };
        for (name, value) in [
            ("delay_ce_sum_ns", self.ce.sum_ns),
            ("delay_ce_n", self.ce.n),
            ("delay_plain_sum_ns", self.plain.sum_ns),
            ("delay_plain_n", self.plain.n),
            ("delay_min_ns", min_ns),
        ] {
            values.push(Text::Borrowed(name), value);
        }
    }

    fn tell_classes(&self, values: &mut Pairs<'static, u64>) {
        for (kind, sums) in [("ce", &self.ce), ("plain", &self.plain)] {
            for (class, n) in sums.log2.iter().enumerate().filter(|(_, n)| **n > 0) {
                values.push(format!("delay_{kind}_log2_{class}"), *n);
            }
        }
    }
}

/// What is counted of one port or one QP, since the source started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) rx: Direction,
    pub(super) tx: Direction,
    pub(super) ce_runs: u64,
    pub(super) ce_after_ce: u64,
    pub(super) delays: Delays,
}

impl Tally {
    /// Counts one packet in its direction.
    pub(super) fn add(&mut self, way: Way, packet: &Packet) {
        match way {
            Way::Rx => self.rx.add(packet),
            Way::Tx => self.tx.add(packet),
        }
    }

    /// Everything by its name, for a `counters` observation.
    pub(super) fn values(&self) -> Pairs<'static, u64> {
        let mut values = Pairs::with_capacity(32);
        self.rx.tell("rx", &mut values);
        self.tx.tell("tx", &mut values);
        values.push(Text::Borrowed("rx_ce_runs"), self.ce_runs);
        values.push(Text::Borrowed("rx_ce_after_ce"), self.ce_after_ce);
        for dscp in 0..64 {
            let n = self.rx.cnp_dscp[dscp] + self.tx.cnp_dscp[dscp];
            if n > 0 {
                values.push(format!("cnp_dscp_{dscp}"), n);
            }
        }
        self.delays.tell(&mut values);
        values
    }

    /// The same with the classes of the delays, from which a median can be told: for a port.
    pub(super) fn values_with_classes(&self) -> Pairs<'static, u64> {
        let mut values = self.values();
        self.delays.tell_classes(&mut values);
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::packets::frame::{CNP, parse};
    use crate::source::packets::frames::Frame;

    fn packet(class: u8, opcode: u8) -> Packet {
        parse(&Frame { class, opcode, ..Frame::default() }.bytes()).unwrap()
    }

    #[test]
    fn data_is_the_sum_of_the_four_codepoints_and_a_cnp_is_in_none_of_them() {
        let mut tally = Tally::default();
        for class in [26 << 2, 26 << 2 | 1, 26 << 2 | 2, 26 << 2 | 3, 26 << 2 | 3] {
            tally.add(Way::Rx, &packet(class, 0x0a));
        }
        tally.add(Way::Rx, &packet(26 << 2 | 2, 0x11));
        tally.add(Way::Rx, &packet(48 << 2, CNP));
        let values = tally.values();
        let value = |name: &str| values.get(name).copied();
        assert_eq!(value("rx_data"), Some(6));
        let parts = ["rx_not_ect", "rx_ect1", "rx_ect0", "rx_ce"].map(|name| value(name).unwrap());
        assert_eq!(parts, [1, 1, 2, 2]);
        assert_eq!((value("rx_ack"), value("rx_cnp")), (Some(1), Some(1)));
        assert_eq!((value("rx_dscp_26"), value("rx_dscp_48"), value("cnp_dscp_48")), (Some(6), None, Some(1)));
        assert_eq!((value("tx_data"), value("tx_ce")), (Some(0), Some(0)));
    }

    #[test]
    fn without_a_measurement_there_is_no_delay_rather_than_none() {
        let mut tally = Tally::default();
        assert!(tally.values().get("delay_min_ns").is_none() && tally.values().get("delay_plain_n").is_none());
        tally.delays.add(true, 900);
        tally.delays.add(false, 300);
        tally.delays.add(false, 500);
        let values = tally.values();
        let delays = ["ce_sum_ns", "ce_n", "plain_sum_ns", "plain_n", "min_ns"]
            .map(|name| values.get(&format!("delay_{name}")).copied().unwrap());
        assert_eq!(delays, [900, 1, 800, 2, 300]);
        tally.delays.add(false, 0);
        tally.delays.add(false, u64::MAX);
        let values = tally.values_with_classes();
        let class = |name: &str| values.get(&format!("delay_{name}")).copied();
        assert_eq!(["ce_log2_9", "plain_log2_8", "plain_log2_0", "plain_log2_31"].map(class), [1, 2, 1, 1].map(Some));
        assert_eq!(class("ce_log2_8"), None);
    }

    #[test]
    fn what_was_counted_before_a_qp_was_known_is_added_to_it() {
        let (mut all, mut early, mut late) = (Direction::default(), Direction::default(), Direction::default());
        for (n, class) in [2u8, 3, 26 << 2 | 2].into_iter().enumerate() {
            let packet = packet(class, if n == 0 { 0x81 } else { 0x0a });
            all.add(&packet);
            if n == 0 { early.add(&packet) } else { late.add(&packet) }
        }
        late.merge(&early);
        assert_eq!(late, all);
    }
}
