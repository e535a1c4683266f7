//! The loop: packets, CNPs and pauses in the order of their times.

use std::collections::VecDeque;

use super::bottleneck::Bottleneck;
use super::dcqcn::{Control, Rate};
use super::params::{Faults, Params, Red};
use super::pfc::Pause;
use super::schedule::Schedule;
use super::traffic::Supply;
use super::{PS_PER_NS, Picos, serialization_ps};
use crate::sim::random::Random;

/// A packet's ECN field behind the bottleneck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ecn {
    /// Sent without: no switch may mark it.
    NotEct,
    /// Could have been marked.
    Ect,
    /// Marked.
    Ce,
}

/// A packet at the tail of the bottleneck's queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Packet {
    /// When it arrived, ps since the start.
    pub t_ps: Picos,
    /// When its last bit will have left the queue, ps since the start.
    pub leaves_ps: Picos,
    /// Its flow: a sender's number, or the number of senders for the probe.
    pub flow: u32,
    /// Its size on the wire.
    pub bytes: u32,
    /// Bytes in front of it.
    pub queue_bytes: u64,
    /// What the switch decided.
    pub ecn: Ecn,
}

/// A congestion notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cnp {
    /// When, ps since the start.
    pub t_ps: Picos,
    /// The flow that is told.
    pub flow: u32,
}

/// A message that was sent and answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Its flow: a sender's number, or the number of senders for the probe.
    pub flow: u32,
    /// Its size on the wire.
    pub bytes: u64,
    /// The application handed it over, ps since the start.
    pub start_ps: Picos,
    /// The sender knows that it arrived, ps since the start. Told when its last packet is queued, which is before.
    pub end_ps: Picos,
    /// It is the probe's.
    pub probe: bool,
}

/// Sees what happens, in the order of its times. Everything has a body that does nothing.
pub trait Observer {
    /// A packet arrived at the bottleneck.
    fn packet(&mut self, packet: &Packet) {
        let _ = packet;
    }
    /// The receiver sent a CNP. Told when the packet that caused it is queued; its time is when that packet has left.
    fn cnp_sent(&mut self, cnp: &Cnp) {
        let _ = cnp;
    }
    /// A CNP arrived at the sender, which obeyed or ignored it.
    fn cnp_arrived(&mut self, cnp: &Cnp, handled: bool) {
        let _ = (cnp, handled);
    }
    /// A message is complete.
    fn message(&mut self, message: &Message) {
        let _ = message;
    }
    /// The senders begin or end a silence that PFC asked for.
    fn pause(&mut self, t_ps: Picos, silent: bool) {
        let _ = (t_ps, silent);
    }
}

/// An observer that looks away.
impl Observer for () {}

/// A sender: what it has to send, and how fast it may.
#[derive(Debug)]
struct Sender {
    supply: Supply,
    rate: Rate,
    /// Time between two packets at the current rate.
    gap_ps: Picos,
    /// When the last packet was sent; `None` before the first.
    last: Option<Picos>,
    /// When the next packet may be sent.
    next: Picos,
    /// When the receiver last sent a CNP for this flow.
    last_cnp: Option<Picos>,
}

/// The probe's stream.
#[derive(Debug)]
struct ProbeStream {
    bytes: u32,
    service_ps: Picos,
    gap_ps: Picos,
}

/// A run that can be stopped, changed and continued.
#[derive(Debug)]
pub struct Simulation {
    line_gbps: f64,
    packet_bytes: u32,
    packet_ps: Picos,
    rtt_ps: Picos,
    red: Red,
    control: Control,
    faults: Faults,
    bottleneck: Bottleneck,
    pause: Pause,
    senders: Vec<Sender>,
    probe: Option<ProbeStream>,
    schedule: Schedule,
    /// CNPs on their way: the queue is a FIFO and all paths are equally long, so they arrive in the order they left.
    cnps: VecDeque<Cnp>,
    random: Random,
    now: Picos,
}

/// Runs to the end, however long that takes: [`Params::check`] first.
pub fn run(params: &Params, observer: &mut impl Observer) {
    Simulation::new(params).advance(params.duration_ns * PS_PER_NS, observer);
}

impl Simulation {
    /// A run at its start. Nothing has been sent yet.
    #[must_use]
    pub fn new(params: &Params) -> Self {
        let rate_bps = params.rate_gbps * 1e9;
        let mut random = Random::new(params.seed);
        let packet_ps = serialization_ps(u64::from(params.packet_bytes), rate_bps);
        let senders: Vec<Sender> = (0..params.senders)
            .map(|_| {
                let supply = Supply::new(params, &mut random);
                let next = supply.ready();
                let rate = Rate::new(&params.control, params.rate_gbps);
                Sender { supply, rate, gap_ps: packet_ps, last: None, next, last_cnp: None }
            })
            .collect();
        let probe = params.probe.map(|probe| ProbeStream {
            bytes: probe.bytes,
            service_ps: serialization_ps(u64::from(probe.bytes), rate_bps),
            gap_ps: probe.gap_ns * PS_PER_NS,
        });
        let mut due: Vec<Picos> = senders.iter().map(|sender| sender.next).collect();
        due.extend(probe.as_ref().map(|probe| probe.gap_ps));
        Self {
            line_gbps: params.rate_gbps,
            packet_bytes: params.packet_bytes,
            packet_ps,
            rtt_ps: params.rtt_ns * PS_PER_NS,
            red: params.red,
            control: params.control,
            faults: params.faults,
            bottleneck: Bottleneck::new(rate_bps, &params.red, &params.faults),
            pause: Pause::new(params.pfc, rate_bps),
            senders,
            probe,
            schedule: Schedule::new(&due),
            cnps: VecDeque::new(),
            random,
            now: 0,
        }
    }

    /// Time of the last event, ps since the start.
    #[must_use]
    pub fn now(&self) -> Picos {
        self.now
    }

    /// The rate a flow may send with now, Gb/s; `None` if there is no such flow.
    #[must_use]
    pub fn rate_gbps(&self, flow: u32) -> Option<f64> {
        self.senders.get(flow as usize).map(|sender| sender.rate.gbps())
    }

    /// Changes the switch's marking from now on.
    pub fn set_red(&mut self, red: Red) {
        self.red = red;
        self.bottleneck.set_marking(&self.red, &self.faults);
    }

    /// Changes what is broken from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
        self.bottleneck.set_marking(&self.red, &self.faults);
    }

    /// Changes what the senders send from now on: the workload of `params`, whose link and number of senders must be the
    /// same. A message that has begun is dropped.
    pub fn set_workload(&mut self, params: &Params) {
        for flow in 0..self.senders.len() {
            let supply = Supply::new(params, &mut self.random).starting_at(self.now);
            self.senders[flow].supply = supply;
            self.reschedule(flow, self.now);
        }
    }

    /// Everything up to `until`, ps since the start (excluded).
    pub fn advance(&mut self, until: Picos, observer: &mut impl Observer) {
        loop {
            let (flow, due) = self.schedule.first();
            let due = if self.pause.silent() { Picos::MAX } else { due.max(self.pause.floor()) };
            let pause = self.pause.due(self.bottleneck.empty_at());
            let cnp = self.cnps.front().map_or(Picos::MAX, |cnp| cnp.t_ps);
            let t = due.min(pause).min(cnp);
            if t >= until {
                return;
            }
            self.now = t;
            if t == cnp {
                self.cnp(observer);
            } else if t == pause {
                if let Some(silent) = self.pause.happen(t) {
                    observer.pause(t, silent);
                }
            } else if flow < self.senders.len() {
                self.turn(flow, t, observer);
            } else {
                self.probe(t, observer);
            }
        }
    }

    /// A sender's turn: its rate rises, or it sends.
    fn turn(&mut self, flow: usize, t: Picos, observer: &mut impl Observer) {
        let sender = &mut self.senders[flow];
        if sender.rate.advance(t, &self.control, self.line_gbps) {
            self.repace(flow);
        }
        let sender = &mut self.senders[flow];
        if sender.next > t {
            self.reschedule(flow, t);
            return;
        }
        let bytes = self.packet_bytes;
        let (leaves, ecn) = enqueue(&mut self.bottleneck, &mut self.random, t, self.packet_ps, flow, bytes, observer);
        self.pause.grown(t, leaves);
        sender.last = Some(t);
        let done = sender.supply.send(t, self.packet_ps, &mut self.random);
        let faster = sender.rate.sent(u64::from(bytes), &self.control, self.line_gbps);
        if let Some((start_ps, packets)) = done {
            let bytes = packets * u64::from(bytes);
            let end_ps = leaves + self.rtt_ps;
            observer.message(&Message { flow: number(flow), bytes, start_ps, end_ps, probe: false });
        }
        if ecn == Ecn::Ce && !self.faults.np_off {
            self.notify(flow, leaves, observer);
        }
        if faster {
            self.repace(flow);
        }
        self.reschedule(flow, t);
    }

    /// The receiver sees a mark.
    fn notify(&mut self, flow: usize, t: Picos, observer: &mut impl Observer) {
        let sender = &mut self.senders[flow];
        let interval = self.control.cnp_interval_ns * PS_PER_NS;
        if sender.last_cnp.is_some_and(|last| t - last < interval) {
            return;
        }
        sender.last_cnp = Some(t);
        observer.cnp_sent(&Cnp { t_ps: t, flow: number(flow) });
        if self.faults.cnp_loss > 0.0 && self.random.unit() < self.faults.cnp_loss {
            return;
        }
        self.cnps.push_back(Cnp { t_ps: t + self.rtt_ps, flow: number(flow) });
    }

    /// The oldest CNP arrives.
    fn cnp(&mut self, observer: &mut impl Observer) {
        let Some(cnp) = self.cnps.pop_front() else { return };
        observer.cnp_arrived(&cnp, !self.faults.rp_off);
        if self.faults.rp_off {
            return;
        }
        let flow = cnp.flow as usize;
        let sender = &mut self.senders[flow];
        let mut changed = sender.rate.advance(cnp.t_ps, &self.control, self.line_gbps);
        changed |= sender.rate.cnp(cnp.t_ps, &self.control);
        if changed {
            self.repace(flow);
            self.reschedule(flow, cnp.t_ps);
        }
    }

    /// The probe sends a message and waits for its answer.
    fn probe(&mut self, t: Picos, observer: &mut impl Observer) {
        let Some(probe) = &self.probe else { return };
        let flow = self.senders.len();
        let (bottleneck, random) = (&mut self.bottleneck, &mut self.random);
        let (leaves, _) = enqueue(bottleneck, random, t, probe.service_ps, flow, probe.bytes, observer);
        self.pause.grown(t, leaves);
        let end_ps = leaves + self.rtt_ps;
        let bytes = u64::from(probe.bytes);
        observer.message(&Message { flow: number(flow), bytes, start_ps: t, end_ps, probe: true });
        self.schedule.set(flow, end_ps + probe.gap_ps);
    }

    /// The flow's rate has changed.
    fn repace(&mut self, flow: usize) {
        let sender = &mut self.senders[flow];
        let rate_bps = sender.rate.gbps() * 1e9;
        sender.gap_ps = serialization_ps(u64::from(self.packet_bytes), rate_bps).max(self.packet_ps);
    }

    /// Works out when the flow sends next and puts it into the schedule.
    fn reschedule(&mut self, flow: usize, t: Picos) {
        let sender = &mut self.senders[flow];
        let allowed = sender.last.map_or(0, |last| last + sender.gap_ps);
        sender.next = sender.supply.ready().max(allowed).max(t);
        // A flow that waits for its rate must notice that the rate rises; one that has nothing to send need not.
        let due = if allowed > sender.supply.ready() { sender.next.min(sender.rate.step_at()) } else { sender.next };
        self.schedule.set(flow, due.max(t));
    }
}

/// Puts a packet into the queue: when it will have left, and how it is marked.
#[inline]
fn enqueue(
    bottleneck: &mut Bottleneck,
    random: &mut Random,
    t_ps: Picos,
    service_ps: Picos,
    flow: usize,
    bytes: u32,
    observer: &mut impl Observer,
) -> (Picos, Ecn) {
    let wait = bottleneck.wait(t_ps);
    let ecn = bottleneck.mark(wait, random);
    let queue_bytes = bottleneck.bytes(wait);
    let leaves_ps = bottleneck.enqueue(t_ps, service_ps);
    observer.packet(&Packet { t_ps, leaves_ps, flow: number(flow), bytes, queue_bytes, ecn });
    (leaves_ps, ecn)
}

fn number(flow: usize) -> u32 {
    #[allow(clippy::cast_possible_truncation, reason = "flows are counted with u32")]
    let number = flow as u32;
    number
}
