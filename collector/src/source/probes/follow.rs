//! The probes follow what comes and goes while they are attached: loads of the kernel's modules, the builds of a provider
//! that only some processes have, and files that no process maps any more.

use super::Probes;
use super::attach::DESTROY;
use super::discovery::Addresses;
use super::pids::own_pids;
use crate::observation::Nanos;
use crate::source::Emit;

/// Places of what processes use that are attached to in one poll: each takes a system call or two that looks at every process
/// which maps the file, and events are to be read meanwhile.
const MOST_AT_ONCE: usize = 32;

impl Probes {
    /// Modules that were loaded after the start bring what could not be attached before, and those that were unloaded
    /// take with them what was.
    pub(super) fn catch_up(&mut self, now: Nanos, emit: &mut Emit<'_>) {
        let destroy_seen = self.attached.has(DESTROY);
        if self.attached.look_at_modules() {
            // No QP outlives `ib_core`. What was seen of those before it ended is told first.
            if let Some(running) = &mut self.running {
                running.drain(emit);
                running.sweep(now, destroy_seen, emit);
            }
            let mut before = std::mem::replace(self, Self::load(&self.options));
            self.discovery.inherit(&mut before.discovery);
            return self.refresh();
        }
        let new = self.attached.catch_up();
        if let Some(running) = &self.running {
            running.maps.follow(self.attached.follows_qps());
        }
        if new {
            self.refresh();
        }
    }

    /// Finds the builds of providers that processes use and the host does not have, and attaches to some of their places.
    pub(super) fn discover(&mut self) {
        let Some(running) = &mut self.running else { return };
        let users = std::mem::take(&mut running.users);
        if !self.data_path || !own_pids() {
            running.learned = Addresses::default();
            return;
        }
        for tgid in users {
            self.discovery.saw(tgid);
        }
        self.discovery.take();
        running.lost += self.discovery.take_lost();
        for opened in self.discovery.next(MOST_AT_ONCE) {
            self.attached.attach(opened);
        }
        let attached = &self.attached;
        self.discovery.work(&mut running.learned, &|| attached.known());
    }

    /// Lets go of files that no process maps any more, and of those that are not what they were, which are looked at anew.
    pub(super) fn let_go(&mut self) {
        let overwritten = self.attached.detach_overwritten();
        if !overwritten.files.is_empty() {
            if let Some(running) = &mut self.running
                && !overwritten.missed.is_empty()
            {
                running.qps.miss(|pid| self.discovery.may_map(pid, &overwritten.missed));
            }
            if self.discovery.look_anew(&overwritten.files) {
                self.refresh();
            }
        }
        let attached = &self.attached;
        for file in self.discovery.unused(attached.files(), &|file| attached.below(file)) {
            self.attached.detach_file(file);
        }
    }
}
