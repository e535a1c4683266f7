//! What each sender has to send, and when: the application's side of a flow.

use super::params::{Params, Workload};
use super::{Picos, serialization_ps, whole};
use crate::sim::random::Random;

/// One sender's supply of packets.
#[derive(Debug, Clone)]
pub(super) struct Supply {
    kind: Kind,
    /// Packets left of the current message.
    left: u64,
    /// The application handed the current message over at this time.
    started: Picos,
    /// The next packet exists from here on.
    ready: Picos,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// A packet each period.
    Paced { period_ps: Picos, message: u64 },
    /// A burst, then silence of this mean.
    Bursts { packets: u64, mean_silence_ps: f64 },
    /// Always something.
    Incast { message: u64 },
}

impl Supply {
    /// The supply of one of `params.senders` senders, with its own phase.
    pub(super) fn new(params: &Params, random: &mut Random) -> Self {
        let packet = u64::from(params.packet_bytes);
        let packet_ps = serialization_ps(packet, params.rate_gbps * 1e9);
        let senders = f64::from(params.senders);
        let packets = |bytes: u64| bytes.div_ceil(packet).max(1);
        let (kind, ready) = match params.workload {
            Workload::Paced { load, message_bytes } => {
                let period = packet_ps as f64 * senders / load;
                let kind = Kind::Paced { period_ps: whole(period), message: packets(message_bytes) };
                (kind, whole(period * random.unit()))
            }
            Workload::Bursts { bytes, load } => {
                let packets = packets(bytes);
                let burst_ps = (packets * packet_ps) as f64;
                let mean_silence_ps = burst_ps * (senders / load - 1.0).max(0.0);
                let kind = Kind::Bursts { packets, mean_silence_ps };
                (kind, silence(mean_silence_ps, random))
            }
            // Together, but not in one order: what an incast is.
            Workload::Incast { message_bytes } => {
                (Kind::Incast { message: packets(message_bytes) }, random.below(packet_ps.max(1)))
            }
        };
        Self { kind, left: 0, started: 0, ready }
    }

    /// The next packet exists from here on.
    pub(super) fn ready(&self) -> Picos {
        self.ready
    }

    /// The same supply, beginning at `t`.
    pub(super) fn starting_at(mut self, t: Picos) -> Self {
        self.ready += t;
        self
    }

    /// A packet is sent at `t`, which takes `packet_ps` on the sender's link. The start of the message it completes, and
    /// the message's packets, if it completes one.
    pub(super) fn send(&mut self, t: Picos, packet_ps: Picos, random: &mut Random) -> Option<(Picos, u64)> {
        let message = match self.kind {
            Kind::Paced { message, .. } | Kind::Incast { message } => message,
            Kind::Bursts { packets, .. } => packets,
        };
        if self.left == 0 {
            self.left = message;
            self.started = self.ready.min(t);
        }
        self.left -= 1;
        match self.kind {
            Kind::Paced { period_ps, .. } => self.ready += period_ps,
            Kind::Bursts { mean_silence_ps, .. } if self.left == 0 => {
                self.ready = t + packet_ps + silence(mean_silence_ps, random);
            }
            Kind::Bursts { .. } => {}
            Kind::Incast { .. } => self.ready = t,
        }
        (self.left == 0).then_some((self.started, message))
    }
}

/// An exponentially distributed time.
fn silence(mean_ps: f64, random: &mut Random) -> Picos {
    whole(-mean_ps * (1.0 - random.unit()).ln())
}
