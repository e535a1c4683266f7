//! Tests of sorting and filtering.

use super::columns::value;
use super::*;
use crate::filter::Value;
use crate::sample;
use std::sync::Arc;

use collector::observation::QpState;

/// All rows, in order.
fn rows(world: &World, by: Of, ascending: bool, filter: &Filter<Of>) -> Vec<QpRef> {
    let mut rows = Order::default();
    rows.find(world, by, ascending, filter);
    rows.sort(0..rows.len());
    rows.ids().collect()
}

fn qpns(world: &World, by: Of, ascending: bool, filter: &str) -> Vec<u32> {
    let filter = Filter::parse(filter, &FIELDS).unwrap();
    rows(world, by, ascending, &filter).iter().map(|id| world.qps.get(*id).unwrap().qpn).collect()
}

#[test]
fn rows_are_sorted_by_number_and_by_text_both_ways() {
    let world = sample::healthy();
    // States have an order of their own.
    for by in COLUMNS.map(|(of, _)| of).into_iter().filter(|by| *by != Of::State) {
        for ascending in [true, false] {
            let ids = rows(&world, by, ascending, &Filter::default());
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

/// More QPs than are ever put into order at once.
fn many() -> Arc<World> {
    many_with(2_654_435_761)
}

/// The same QPs with other numbers.
fn many_with(factor: u32) -> Arc<World> {
    use collector::observation::{Body, Observation, Qp, QpStats};
    let header = collector::observation::recording::Header::new();
    let mut engine = collector::engine::Engine::new(header, collector::rule::Settings::default());
    for n in 0..9_001u32 {
        let comm = format!("rank{}", n % 509);
        let (comm, pid) = (Some(comm.as_str().into()), Some(70_000 + n % 509));
        let seen = Qp { device: "mlx5_0".into(), qpn: n + 2, comm, pid, ..Qp::default() };
        engine.take(&Observation { t: 1, body: Body::Qp(seen) });
        let bytes = u64::from(n.wrapping_mul(factor) % 5_000);
        let body = QpStats { device: "mlx5_0".into(), qpn: n + 2, posts: 1, bytes, ..QpStats::default() };
        engine.take(&Observation { t: 2, body: Body::QpStats(body) });
    }
    engine.snapshot()
}

#[test]
fn rows_in_sight_are_the_same_whether_the_others_are_sorted_or_not() {
    let world = many();
    for by in [Of::Bytes, Of::Comm, Of::Qpn, Of::Container] {
        let all = rows(&world, by, false, &Filter::default());
        let mut some = Order::default();
        some.find(&world, by, false, &Filter::default());
        for from in [0, 17, 4_000, 8_990, 3, 9_001, 2_990] {
            let wanted = from..(from + 50).min(all.len());
            some.sort(wanted.clone());
            let got: Vec<_> = some.ids().skip(wanted.start).take(wanted.len()).collect();
            assert_eq!(got, all[wanted], "{by:?} {from}");
        }
        let (mut some, mut all) = (some.ids().collect::<Vec<_>>(), all);
        some.sort_unstable();
        all.sort_unstable();
        assert_eq!(some, all, "none is lost or doubled");
    }
}

#[test]
fn the_place_of_a_row_is_known_before_it_is_in_order() {
    let world = many();
    let all = rows(&world, Of::Bytes, true, &Filter::default());
    for (place, id) in all.iter().enumerate().step_by(777) {
        let mut some = Order::default();
        some.find(&world, Of::Bytes, true, &Filter::default());
        assert_eq!(some.place_of(*id), Some(place));
        some.sort(5_000..5_001);
        assert_eq!(some.place_of(*id), Some(place));
    }
}

#[test]
fn who_goes_to_the_last_row_selects_the_last_one_of_all_and_it_stays_selected() {
    let world = many();
    let status = collector::feed::Status::new(collector::feed::Mode::Live);
    let theme = crate::theme::Theme::new(crate::theme::ThemeName::Dark, true);
    let coverage = collector::inventory::Coverage::default();
    let scene = Scene { world: &world, status: &status, coverage: &coverage, generation: 1, theme: &theme };
    let mut pane = Qps::default();
    let area = Rect::new(0, 0, 100, 12);
    pane.draw(scene, area, &mut Buffer::empty(area));
    pane.act(Action::Bottom, scene);
    pane.draw(scene, area, &mut Buffer::empty(area));
    let all = rows(&world, Of::Rate, false, &Filter::default());
    assert_eq!((pane.selected, pane.selection.row), (all.last().copied(), all.len() - 1));
    pane.ascending = true;
    pane.draw(Scene { generation: 2, ..scene }, area, &mut Buffer::empty(area));
    let all = rows(&world, Of::Rate, true, &Filter::default());
    assert_eq!(pane.selected.map(|id| all.iter().position(|row| *row == id)), Some(Some(pane.selection.row)));
}

#[test]
fn a_key_means_the_rows_that_are_on_the_screen_and_not_those_of_a_newer_world() {
    let (old, new) = (many_with(2_654_435_761), many_with(40_503));
    let status = collector::feed::Status::new(collector::feed::Mode::Live);
    let theme = crate::theme::Theme::new(crate::theme::ThemeName::Dark, true);
    let coverage = collector::inventory::Coverage::default();
    let before = Scene { world: &old, status: &status, coverage: &coverage, generation: 1, theme: &theme };
    // Nobody has drawn it yet.
    let after = Scene { world: &new, generation: 2, ..before };
    let area = Rect::new(0, 0, 100, 12);
    let opened = |reaction| match reaction {
        Reaction::Open(Target::Qp(id)) => id,
        _ => panic!("it opens a QP"),
    };
    let qpn_of = |line: &str| line.split_whitespace().find_map(|word| word.parse::<u32>().ok()).expect("a QPN");
    let bytes = COLUMNS.iter().position(|(of, _)| *of == Of::Bytes).unwrap();
    for keys in [&[][..], &[Action::Down, Action::Down], &[Action::Bottom]] {
        let mut pane = Qps { sort: bytes, ..Qps::default() };
        pane.draw(before, area, &mut Buffer::empty(area));
        for key in keys {
            pane.act(*key, before);
        }
        let mut buf = Buffer::empty(area);
        pane.draw(before, area, &mut buf);
        let text: String = buf.content.iter().map(ratatui::buffer::Cell::symbol).collect();
        let marked = qpn_of(text.split('►').nth(1).unwrap());
        let qpn = |id| new.qps.get(id).unwrap().qpn;
        assert_eq!(pane.points_at(PaneId::Qp, after).map(|it| opened(Reaction::Open(it))).map(qpn), Some(marked));
        assert_eq!(qpn(opened(pane.act(Action::Enter, after))), marked, "{keys:?}");
        let Reaction::Copy(copied, _) = pane.act(Action::Copy, after) else { panic!("it is copied") };
        let copied: Vec<u32> = copied.lines().skip(1).map(qpn_of).collect();
        let shown = (2..12).map(|row| (0..100).map(|x| buf[(x, row)].symbol()).collect::<String>());
        let shown: Vec<u32> = shown.map(|row| qpn_of(&row)).collect();
        assert_eq!(copied, shown, "{keys:?}");
        // Of what somebody asks for anew the first row of the newest is meant.
        pane.act(Action::SortReverse, after);
        pane.act(Action::Top, after);
        let first = rows(&new, Of::Bytes, true, &Filter::default())[0];
        assert_eq!(opened(pane.act(Action::Enter, after)), first);
    }
}

#[test]
fn enter_opens_the_group_that_bears_the_mark() {
    let (old, new) = (many_with(2_654_435_761), many_with(40_503));
    let status = collector::feed::Status::new(collector::feed::Mode::Live);
    let theme = crate::theme::Theme::new(crate::theme::ThemeName::Dark, true);
    let coverage = collector::inventory::Coverage::default();
    let before = Scene { world: &old, status: &status, coverage: &coverage, generation: 1, theme: &theme };
    let area = Rect::new(0, 0, 100, 12);
    let mut pane = Qps { by: By::Process, group_sort: 5, ..Qps::default() };
    pane.draw(before, area, &mut Buffer::empty(area));
    let marked = pane.groups[0].name.clone();
    pane.find(Scene { world: &new, generation: 2, ..before });
    pane.group(&new);
    assert_ne!(pane.groups[0].name, marked, "the newer world has another one first");
    let filter = pane.groups.iter().find(|group| group.name == marked).unwrap().filter.clone();
    pane.act(Action::Enter, Scene { world: &new, generation: 2, ..before });
    assert_eq!(pane.filter_text, filter);
    assert!(filter.starts_with("pid="), "{filter}");
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

#[test]
fn what_died_stands_first_among_rates_and_states_and_is_counted() {
    let world = sample::faulty();
    let states = |by| -> Vec<QpState> {
        let mut ids = Order::default();
        ids.find(&world, by, false, &Filter::default());
        ids.sort(0..ids.len());
        assert_eq!(ids.in_error(), (64, 0));
        ids.ids().map(|id| world.qps.get(id).unwrap().state).collect()
    };
    for by in [Of::Rate, Of::State] {
        let states = states(by);
        assert!(states[..64].iter().all(|state| *state == QpState::Err), "{by:?}: {:?}", &states[..64]);
        assert_eq!(states[64], QpState::Rts, "{by:?}");
    }
    let living = Filter::parse("state=RTS", &FIELDS).unwrap();
    let mut ids = Order::default();
    ids.find(&world, Of::Rate, false, &living);
    assert_eq!(ids.in_error(), (0, 0));
}

#[test]
fn a_peer_and_a_port_are_found_by_what_is_shown() {
    let with = columns::as_in_table;
    assert_eq!(with("comm=nccl peer=10.100.3.32"), "comm=nccl peer=:ffff:0a64:0320");
    assert_eq!(with("10.100.3.32 GID!=10.0.0.1"), ":ffff:0a64:0320 GID!=:ffff:0a00:0001");
    assert_eq!(with("port=mlx5_0/1 state=ERR"), "device==mlx5_0 port=1 state=ERR");
    // The whole of it, and what is the name of something else.
    for typed in ["qpn=17 errors>0 mlx5", "peer==10.100.3.32", "comm=10.100.3.32 container!=10.0.0.1"] {
        assert_eq!(with(typed), typed);
    }
    let world = crate::scenarios::Play::new("healthy").feed(10 * crate::scenarios::SECOND).latest().world.clone();
    let raw = world.qps.iter().find_map(|qp| qp.remote_gid.clone()).unwrap();
    let shown = number::gid(&raw).into_owned();
    assert_ne!(shown, *raw, "it is shown as an IPv4 address");
    let found = |filter: String| {
        let filter = Filter::parse(&with(&filter), &FIELDS).unwrap();
        rows(&world, Of::Qpn, true, &filter)
    };
    let all = rows(&world, Of::Qpn, true, &Filter::default());
    for filter in [format!("peer=={shown}"), format!("peer={shown}"), shown.clone(), format!("peer=={raw}")] {
        let ids = found(filter.clone());
        assert!(!ids.is_empty() && ids.len() < all.len(), "{filter}");
        assert!(ids.iter().all(|id| world.qps.get(*id).unwrap().remote_gid.as_deref() == Some(&*raw)), "{filter}");
    }
}

#[test]
fn the_filter_that_is_named_finds_as_many_as_it_says() {
    use collector::observation::{Body, Observation, Qp};
    let header = collector::observation::recording::Header::new();
    let mut engine = collector::engine::Engine::new(header, collector::rule::Settings::default());
    let states = [QpState::Err, QpState::Sqe, QpState::Err, QpState::Rts, QpState::Sqe, QpState::Sqe, QpState::Err];
    let mut found = |states: &[QpState]| {
        for (qpn, state) in (2..).zip(states) {
            let seen = Qp { device: "d".into(), qpn, to: Some(*state), ..Qp::default() };
            engine.take(&Observation { t: 1, body: Body::Qp(seen) });
        }
        let world = engine.snapshot();
        let mut all = Order::default();
        all.find(&world, Of::Rate, false, &Filter::default());
        let told = in_error(all.in_error());
        let filter = told.split("[/ ").nth(1).and_then(|filter| filter.split(']').next()).unwrap_or("state=none");
        (qpns(&world, Of::Qpn, true, filter).len(), told)
    };
    assert_eq!(found(&states[3..4]), (0, String::new()));
    assert_eq!(found(&states[1..2]), (1, "1 in SQE [/ state=SQE]".to_owned()));
    assert_eq!(found(&states[..1]), (1, "1 in ERR [/ state=ERR]".to_owned()));
    assert_eq!(found(&states), (3, "3 in ERR [/ state=ERR], 3 in SQE".to_owned()));
}
