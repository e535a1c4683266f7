//! Where the program's outputs say what became of them, for whoever exports it.

use std::sync::{Arc, Mutex, PoisonError};

use super::SelfReport;

type Part = Box<dyn Fn(&mut SelfReport) + Send>;

/// What the outputs report. Each adds its part when it starts; an exporter asks for all of them.
#[derive(Clone, Default)]
pub struct Reports(Arc<Mutex<Vec<Part>>>);

impl Reports {
    /// Adds a part; it is called for each report, from the thread that makes it, and must not wait.
    pub fn add(&self, part: impl Fn(&mut SelfReport) + Send + 'static) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(part));
    }

    /// All parts as they are now.
    #[must_use]
    pub fn report(&self) -> SelfReport {
        let mut report = SelfReport::default();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|part| part(&mut report));
        report
    }
}
