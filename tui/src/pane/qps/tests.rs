//! Tests of sorting and filtering.

use super::columns::value;
use super::*;
use crate::filter::Value;
use crate::sample;
use collector::observation::QpState;

fn qpns(world: &World, by: Of, ascending: bool, filter: &str) -> Vec<u32> {
    let filter = Filter::parse(filter, &FIELDS).unwrap();
    rows(world, by, ascending, &filter, usize::MAX).iter().map(|id| world.qps.get(*id).unwrap().qpn).collect()
}

#[test]
fn rows_are_sorted_by_number_and_by_text_both_ways() {
    let world = sample::healthy();
    for by in COLUMNS.map(|(of, _)| of) {
        for ascending in [true, false] {
            let ids = rows(&world, by, ascending, &Filter::default(), usize::MAX);
            assert_eq!(ids.len(), world.qps.len());
            let values: Vec<_> = ids.iter().map(|id| value(&world, world.qps.get(*id).unwrap(), by)).collect();
            let in_order = values.windows(2).all(|pair| match (pair[0], pair[1]) {
                (_, Value::Unknown) => true,
                (Value::Number(a), Value::Number(b)) if ascending => a <= b,
                (Value::Number(a), Value::Number(b)) => a >= b,
                (Value::Text(a), Value::Text(b)) if ascending => a <= b,
                (Value::Text(a), Value::Text(b)) => a >= b,
                _ => false,
            });
            assert!(in_order, "{by:?} {ascending}");
        }
    }
}

#[test]
fn the_first_rows_are_the_same_whether_the_others_are_sorted_or_not() {
    let world = sample::faulty();
    for by in COLUMNS.map(|(of, _)| of) {
        let all = rows(&world, by, false, &Filter::default(), usize::MAX);
        for first in [0, 1, 17, all.len() - 1, all.len()] {
            let some = rows(&world, by, false, &Filter::default(), first);
            assert_eq!(some[..first], all[..first], "{by:?} {first}");
            let (mut some, mut all) = (some, all.clone());
            some.sort_unstable();
            all.sort_unstable();
            assert_eq!(some, all, "none is lost or doubled");
        }
    }
}

#[test]
fn who_goes_to_the_last_row_selects_the_last_one_of_all() {
    let world = sample::faulty();
    let status = collector::feed::Status::new(collector::feed::Mode::Live);
    let theme = crate::theme::Theme::new(crate::theme::ThemeName::Dark, true);
    let coverage = collector::inventory::Coverage::default();
    let scene = Scene { world: &world, status: &status, coverage: &coverage, generation: 1, theme: &theme };
    let mut pane = Qps::default();
    let area = Rect::new(0, 0, 100, 12);
    pane.draw(scene, area, &mut Buffer::empty(area));
    // As if there were more rows than are sorted at first.
    pane.order(&world, 20);
    pane.act(Action::Bottom, scene);
    pane.draw(scene, area, &mut Buffer::empty(area));
    let all = rows(&world, Of::Rate, false, &Filter::default(), usize::MAX);
    assert_eq!((pane.selected, pane.selection.row), (all.last().copied(), all.len() - 1));
}

#[test]
fn the_filter_reaches_every_column() {
    let world = sample::faulty();
    let all = world.qps.len();
    assert!(!qpns(&world, Of::Qpn, true, "state=ERR").is_empty());
    assert!(qpns(&world, Of::Qpn, true, "state=ERR device=mlx5_4").len() < all);
    assert_eq!(qpns(&world, Of::Qpn, true, "qpn=100 device=mlx5_0"), [100]);
    assert_eq!(qpns(&world, Of::Qpn, true, "age>100000").len(), 0);
}

/// Not a test of a fact but a measurement: `cargo test --release -- --ignored --nocapture frame_with`.
#[test]
#[ignore = "tool: prints how long a frame takes; a figure, not a fact"]
fn a_frame_with_all_qps_a_nic_can_have() {
    use collector::feed::{Mode, Status};
    use collector::observation::{Body, Observation, Qp, QpStats};
    let mut engine = collector::engine::Engine::new(
        collector::observation::recording::Header::new(),
        collector::rule::Settings::default(),
    );
    for n in 0..261_632u32 {
        let device = format!("mlx5_{}", n % 8);
        let comm = format!("rank{}", n % 509);
        let seen = Qp {
            device: device.as_str().into(),
            qpn: n,
            port: Some(1),
            pid: Some(n / 511),
            comm: Some(comm.as_str().into()),
            to: Some(QpState::Rts),
            ..Qp::default()
        };
        engine.take(&Observation { t: 1, body: Body::Qp(seen) });
        for t in [1_000_000, 1_001_000_000] {
            let bytes = u64::from(n.wrapping_mul(2_654_435_761)) * t / 1_000_000;
            let body = QpStats { device: device.as_str().into(), qpn: n, posts: t, bytes, ..QpStats::default() };
            engine.take(&Observation { t, body: Body::QpStats(body) });
        }
    }
    let (world, status) = (engine.snapshot(), Status::new(Mode::Live));
    let theme = crate::theme::Theme::new(crate::theme::ThemeName::Dark, true);
    let area = Rect::new(0, 0, 200, 60);
    let mut buf = Buffer::empty(area);
    let mut pane = Qps::default();
    for (what, sort, filter) in
        [("by rate", 7, ""), ("by comm", 6, ""), ("by rate, comm=rank5 pid>100", 7, "comm=rank5 pid>100")]
    {
        (pane.sort, pane.filter_text) = (sort, filter.to_owned());
        pane.filter = Filter::parse(filter, &FIELDS).unwrap();
        for (generation, new) in [(1, "new world"), (2, "new world"), (2, "same world")] {
            let start = std::time::Instant::now();
            pane.draw(
                Scene {
                    world: &world,
                    status: &status,
                    coverage: &collector::inventory::Coverage::default(),
                    generation,
                    theme: &theme,
                },
                area,
                &mut buf,
            );
            println!("{what}, {new}: {:?}", start.elapsed());
        }
        pane.found_for = None;
    }
    let start = std::time::Instant::now();
    let coverage = world.coverage();
    println!("coverage of {} QPs: {:?}", coverage.qps, start.elapsed());
}
