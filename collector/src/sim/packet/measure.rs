//! The figures of a run.

use super::params::Params;
use super::simulation::{Ecn, Message, Observer, Packet, Simulation, run};
use super::spread::Spread;
use super::truth::{Counts, Truth};
use super::{PS_PER_NS, Picos};

/// How often a run that may be given up is looked at, ps of simulated time.
const SLICE_PS: Picos = 10_000_000;

/// What a run came to, the warm-up left out.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// Share of the time the bottleneck was sending, 0–1.
    pub utilisation: f64,
    /// Packets that arrived.
    pub packets: u64,
    /// Marks / packets that could be marked; `None` if none could.
    pub mark_rate: Option<f64>,
    /// 99th percentile of the queue that packets found, bytes, to 3 %; `None` without a packet.
    pub queue_p99_bytes: Option<u64>,
    /// Share of the time the senders were silent because PFC asked them to, 0–1; `None` without PFC.
    pub pause_share: Option<f64>,
    /// K* in bytes.
    pub k_star_bytes: u64,
    /// Each L with what it makes of the marks.
    pub truth: Vec<(f64, Counts)>,
    /// Median and 99th percentile of the completion time of the senders' messages, ns; `None` without one.
    pub message_ns: Option<(u64, u64)>,
}

impl Figures {
    /// What this L makes of the marks, if it was among those asked for.
    #[must_use]
    pub fn at(&self, l: f64) -> Option<Counts> {
        self.truth.iter().find(|(given, _)| (given - l).abs() < 1e-9).map(|(_, counts)| *counts)
    }
}

/// An observer that measures.
#[derive(Debug)]
pub struct Measure {
    from: Picos,
    until: Picos,
    truth: Truth,
    queue: Spread,
    /// Packets, those of the warm-up included.
    all_packets: u64,
    packets: u64,
    ect: u64,
    marked: u64,
    /// The bottleneck has been busy up to here.
    busy_until: Picos,
    busy: Picos,
    pfc: bool,
    silent_since: Option<Picos>,
    silent: Picos,
    messages_ns: Spread,
}

impl Measure {
    /// For a run with these parameters and these values of L.
    #[must_use]
    pub fn new(params: &Params, l: &[f64]) -> Self {
        Self {
            from: params.warm_up_ns * PS_PER_NS,
            until: params.duration_ns * PS_PER_NS,
            truth: Truth::new(params.rate_gbps, params.rtt_ns, l),
            queue: Spread::new(),
            all_packets: 0,
            packets: 0,
            ect: 0,
            marked: 0,
            busy_until: 0,
            busy: 0,
            pfc: params.pfc.is_some(),
            silent_since: None,
            silent: 0,
            messages_ns: Spread::new(),
        }
    }

    /// Runs the model and measures it.
    #[must_use]
    pub fn of(params: &Params, l: &[f64]) -> Figures {
        let mut measure = Self::new(params, l);
        run(params, &mut measure);
        measure.figures()
    }

    /// The same, given up when there are more than so many packets, the warm-up's included.
    #[must_use]
    pub fn of_at_most(params: &Params, l: &[f64], packets: u64) -> Option<Figures> {
        let mut measure = Self::new(params, l);
        let mut simulation = Simulation::new(params);
        let end = params.duration_ns * PS_PER_NS;
        let mut until = 0;
        while until < end {
            until = end.min(until + SLICE_PS);
            simulation.advance(until, &mut measure);
            if measure.all_packets > packets {
                return None;
            }
        }
        Some(measure.figures())
    }

    /// What it came to.
    #[must_use]
    pub fn figures(mut self) -> Figures {
        self.truth.finish();
        let length = self.until.saturating_sub(self.from).max(1) as f64;
        if let Some(since) = self.silent_since {
            self.silent += self.within(self.until) - self.within(since);
        }
        Figures {
            utilisation: self.busy as f64 / length,
            packets: self.packets,
            mark_rate: (self.ect > 0).then(|| self.marked as f64 / self.ect as f64),
            queue_p99_bytes: self.queue.percentile(0.99),
            pause_share: self.pfc.then(|| self.silent as f64 / length),
            k_star_bytes: self.truth.k_star_bytes(),
            message_ns: self.messages_ns.percentile(0.5).zip(self.messages_ns.percentile(0.99)),
            truth: self.truth.counts().collect(),
        }
    }

    /// A time, moved into what is measured.
    fn within(&self, t: Picos) -> Picos {
        t.clamp(self.from, self.until)
    }
}

impl Observer for Measure {
    fn packet(&mut self, packet: &Packet) {
        if packet.leaves_ps > self.from {
            let begins = self.busy_until.max(packet.t_ps);
            self.busy += self.within(packet.leaves_ps) - self.within(begins);
        }
        self.busy_until = packet.leaves_ps;
        self.all_packets += 1;
        if packet.t_ps < self.from {
            return;
        }
        self.packets += 1;
        self.ect += u64::from(packet.ecn != Ecn::NotEct);
        self.marked += u64::from(packet.ecn == Ecn::Ce);
        self.queue.add(packet.queue_bytes);
        self.truth.packet(packet);
    }

    fn message(&mut self, message: &Message) {
        if message.start_ps >= self.from && !message.probe {
            self.messages_ns.add((message.end_ps - message.start_ps) / PS_PER_NS);
        }
    }

    fn pause(&mut self, t_ps: Picos, silent: bool) {
        if silent {
            self.silent_since = Some(t_ps);
        } else if let Some(since) = self.silent_since.take() {
            self.silent += self.within(t_ps) - self.within(since);
        }
    }
}
