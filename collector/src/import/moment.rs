//! When something was: the clocks the files of a bundle use, and how they are laid on one.
//!
//! | a file says | clock |
//! |---|---|
//! | seconds since boot (`dmesg`) | uptime, which is `CLOCK_MONOTONIC` but for the time the machine slept |
//! | a date | wall |
//! | seconds in `TIMES` | relative: the first sample is 0 |
//! | nothing | none; the file's modification time where it has one, else the end |
//!
//! One clock alone is kept as it is (dates from the first one on). Uptime and dates are tied where one line has both; where
//! none has, their ends are laid upon each other, and the header says so. Relative samples begin where the logs end: a
//! bundle is collected after what its logs tell.

use crate::observation::Nanos;

/// A time in one of the clocks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Clock {
    /// Nanoseconds since boot.
    Uptime(Nanos),
    /// Nanoseconds since 1970.
    Wall(i64),
    /// Nanoseconds since the first sample.
    Relative(Nanos),
    /// Not known.
    Unknown,
}

/// A time, and a place among those of the same time: samples whose times nobody wrote down keep their order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Moment {
    /// The time.
    pub(super) clock: Clock,
    /// Nanoseconds added to it.
    pub(super) order: u32,
}

impl Moment {
    /// A moment without others of the same time.
    pub(super) fn at(clock: Clock) -> Self {
        Self { clock, order: 0 }
    }
}

/// How the clocks lie on the recording's.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Layout {
    /// Added to uptime.
    uptime: i64,
    /// Added to dates.
    wall: i64,
    /// Where the relative samples begin, and where what has no time lies.
    end: i64,
    /// A date and its time in the recording; `None` without dates.
    pub(super) anchor: Option<(u64, Nanos)>,
    /// How the clocks were laid upon each other, where there are two.
    pub(super) note: Option<String>,
}

impl Layout {
    /// Lays the clocks of these moments; `tie` is the date of uptime 0, where a line told it.
    pub(super) fn of(moments: &[Moment], tie: Option<i64>) -> Self {
        let signed = |t: Nanos| i64::try_from(t).unwrap_or(i64::MAX);
        let uptimes =
            || moments.iter().filter_map(|m| if let Clock::Uptime(t) = m.clock { Some(signed(t)) } else { None });
        let walls = || moments.iter().filter_map(|m| if let Clock::Wall(t) = m.clock { Some(t) } else { None });
        let (first_wall, last_wall, last_up) = (walls().min(), walls().max(), uptimes().max());
        let mut layout = Self::default();
        if let Some(first_wall) = first_wall {
            layout.wall = match (last_up, tie) {
                (None, None) => first_wall.saturating_neg(),
                (_, Some(tie)) => tie.saturating_neg(),
                (Some(up), None) => {
                    layout.note = Some(
                        "no line ties seconds since boot to the date: the last of both are taken for the same moment"
                            .to_owned(),
                    );
                    up.saturating_sub(last_wall.unwrap_or(first_wall))
                }
            };
            // What is older than the boot (or than a bad clock's) moves all the rest up.
            let before = first_wall.saturating_add(layout.wall).min(0).saturating_neg();
            layout.wall = layout.wall.saturating_add(before);
            layout.uptime = before;
            let anchor = first_wall.saturating_add(layout.wall);
            layout.anchor = u64::try_from(first_wall).ok().zip(u64::try_from(anchor).ok());
        } else if let (Some(tie), Some(up)) = (tie, last_up) {
            layout.anchor = u64::try_from(tie.saturating_add(up)).ok().zip(u64::try_from(up).ok());
        }
        let ends = last_up.map(|t| t.saturating_add(layout.uptime));
        let walls = last_wall.map(|t| t.saturating_add(layout.wall));
        layout.end = ends.max(walls).unwrap_or(0).max(0);
        layout
    }

    /// The time of a moment in the recording.
    pub(super) fn t(&self, moment: Moment) -> Nanos {
        let t = match moment.clock {
            Clock::Uptime(t) => i64::try_from(t).unwrap_or(i64::MAX).saturating_add(self.uptime),
            Clock::Wall(t) => t.saturating_add(self.wall),
            Clock::Relative(t) => i64::try_from(t).unwrap_or(i64::MAX).saturating_add(self.end),
            Clock::Unknown => self.end,
        };
        // No machine has been up for a century; a recording's reader refuses what is beyond.
        u64::try_from(t).unwrap_or(0).saturating_add(u64::from(moment.order)).min(3_100_000_000_000_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    fn layout(clocks: &[Clock], tie: Option<i64>) -> Layout {
        Layout::of(&clocks.iter().map(|clock| Moment::at(*clock)).collect::<Vec<_>>(), tie)
    }

    #[test]
    fn one_clock_is_kept_and_dates_begin_at_zero_with_an_anchor() {
        let up = layout(&[Clock::Uptime(5), Clock::Relative(0)], None);
        assert_eq!((up.t(Moment::at(Clock::Uptime(5))), up.anchor), (5, None));
        let wall = layout(&[Clock::Wall(70 * S), Clock::Wall(90 * S)], None);
        assert_eq!(wall.t(Moment::at(Clock::Wall(90 * S))), 20_000_000_000);
        assert_eq!(wall.anchor, Some((70_000_000_000, 0)));
        assert_eq!(layout(&[Clock::Relative(3)], None).t(Moment { clock: Clock::Relative(3), order: 2 }), 5);
    }

    #[test]
    fn tied_clocks_agree_and_what_was_before_the_boot_moves_the_rest_up() {
        let clocks = [Clock::Uptime(10), Clock::Wall(1_000), Clock::Wall(1_030)];
        let tied = layout(&clocks, Some(1_010));
        assert_eq!(tied.t(Moment::at(Clock::Wall(1_000))), 0);
        assert_eq!(tied.t(Moment::at(Clock::Uptime(10))), 20);
        assert_eq!(tied.t(Moment::at(Clock::Wall(1_020))), 20, "the same moment");
        assert_eq!(tied.note, None);
    }

    #[test]
    fn untied_clocks_end_together_and_samples_follow() {
        let untied = layout(&[Clock::Uptime(500), Clock::Wall(9_000), Clock::Wall(9_100), Clock::Relative(0)], None);
        assert_eq!(untied.t(Moment::at(Clock::Wall(9_100))), 500);
        assert_eq!(untied.t(Moment::at(Clock::Wall(9_000))), 400);
        assert_eq!(untied.t(Moment::at(Clock::Relative(7))), 507);
        assert!(untied.note.is_some());
    }
}
