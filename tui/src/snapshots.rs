//! Every pane at three sizes and at the smallest one, of a calm node and of one with a fault; the help of every pane.

use std::sync::Arc;

use collector::feed::{Mode, Status};
use collector::inventory::World;
use collector::observation::recording::Header;
use crossterm::event::{Event, KeyCode};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use crate::app::App;
use crate::pane::PaneId;
use crate::sample;
use crate::screen::ScreenOptions;
use crate::theme::ThemeName;

const SIZES: [(u16, u16); 4] = [(60, 16), (80, 24), (120, 40), (200, 60)];

fn screen(feed: collector::feed::Feed, options: ScreenOptions, size: (u16, u16)) -> String {
    let mut app = App::new(feed, options, true);
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    terminal.draw(|frame| app.draw(frame.area(), frame.buffer_mut(), 1)).unwrap();
    terminal.backend().to_string()
}

fn panes(name: &str, world: &Arc<World>) {
    for pane in PaneId::ALL {
        for size in SIZES {
            let feed = sample::feed(world.clone(), Mode::Live);
            let options = ScreenOptions { first: pane, ..ScreenOptions::default() };
            let text = screen(feed, options, size);
            insta::assert_snapshot!(format!("{name}_{}_{}x{}", pane.title(), size.0, size.1), text);
        }
    }
}

/// What is looked at is the pane's title; since when, how sure and what is not seen are words of its own.
#[test]
fn every_pane_says_since_when_how_sure_and_what_is_not_seen_where_the_screen_is_small() {
    const SURE: [&str; 6] = ["counted", "no finding in", "rules look at", "judged", "by posts", "count marks"];
    for world in [sample::healthy(), sample::faulty()] {
        // The last one is of nothing but what is seen and what is not.
        for pane in PaneId::ALL.into_iter().filter(|pane| *pane != PaneId::Own) {
            let options = ScreenOptions { first: pane, ..ScreenOptions::default() };
            let text = screen(sample::feed(world.clone(), Mode::Live), options, (80, 24)).to_lowercase();
            let unseen = text.contains("not seen") || text.contains("not judged");
            assert!(
                text.contains("since 14:13:2") || text.contains("created 14:13:2"),
                "{pane:?}: since when?\n{text}"
            );
            assert!(SURE.iter().any(|sure| text.contains(sure)), "{pane:?}: how sure?\n{text}");
            assert!(unseen, "{pane:?}: what is not seen?\n{text}");
        }
    }
}

#[test]
fn the_help_of_every_pane() {
    for pane in PaneId::ALL {
        let options = ScreenOptions { first: pane, ..ScreenOptions::default() };
        let mut app = App::new(sample::feed(sample::healthy(), Mode::Live), options, true);
        app.take(&Event::Key(KeyCode::Char('?').into()), 1);
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| app.draw(frame.area(), frame.buffer_mut(), 1)).unwrap();
        insta::assert_snapshot!(format!("help_{}_80x24", pane.title()), terminal.backend().to_string());
    }
}

/// What stands on a screen, whatever it looks like.
fn text_of(world: &Arc<World>, pane: PaneId, theme: ThemeName, colour: bool) -> String {
    let options = ScreenOptions { first: pane, theme, ..ScreenOptions::default() };
    let mut app = App::new(sample::feed(world.clone(), Mode::Live), options, colour);
    let mut terminal = Terminal::new(TestBackend::new(120, 40)).unwrap();
    terminal.draw(|frame| app.draw(frame.area(), frame.buffer_mut(), 1)).unwrap();
    terminal.backend().to_string()
}

#[test]
fn no_theme_says_more_or_less_than_another() {
    let world = sample::faulty();
    for pane in PaneId::ALL {
        let plain = text_of(&world, pane, ThemeName::Dark, false);
        for theme in ThemeName::ALL {
            assert_eq!(text_of(&world, pane, theme, true), plain, "{pane:?} {theme:?}");
        }
    }
}

#[test]
fn health_is_told_by_words_not_by_colour_alone() {
    let world = sample::faulty();
    let overview = text_of(&world, PaneId::Overview, ThemeName::Dark, false);
    for (port, words) in [
        ("mlx5_0", &["ACTIVE", "ok"][..]),
        ("mlx5_1", &["ECN premature?"]),
        ("mlx5_3", &["AER storm"]),
        ("mlx5_4", &["DOWN", "down 00:38"]),
    ] {
        let line = overview.lines().find(|line| line.contains(port)).unwrap();
        assert!(words.iter().all(|word| line.contains(word)), "{port}: {line}");
    }
    // Severities are words in every list of findings.
    for pane in [PaneId::Overview, PaneId::Findings] {
        let text = text_of(&world, pane, ThemeName::Dark, false);
        assert!(text.contains("CRIT ") && text.contains("WARN "), "{text}");
    }
}

#[test]
fn a_calm_node_is_calm() {
    panes("calm", &sample::healthy());
}

#[test]
fn a_fault_is_named_where_it_is_looked_for() {
    panes("fault", &sample::faulty());
}

#[test]
fn without_a_port_the_reasons_stand_there_instead_of_a_table() {
    let world = Arc::new(World::new(Header::new()));
    let feed = collector::feed::Feed::new(world.clone(), Status::new(Mode::Live));
    let status = Status {
        banner: Some("no RDMA subsystem: the module ib_core is not loaded".to_owned()),
        ..sample::Node::status(Mode::Live)
    };
    feed.publish(world, status);
    insta::assert_snapshot!("no_port_80x24", screen(feed, ScreenOptions::default(), (80, 24)));
}

#[test]
fn a_port_s_loopback_stands_in_a_line_of_its_own_and_says_when_it_is_old() {
    use collector::observation::{Body, Device, Loopback, Note, Observation, Port};
    let mut engine = collector::engine::Engine::new(Header::new(), collector::rule::Settings::default());
    let mut take = |s: u64, body: Body<'_>| engine.take(&Observation { t: s * 1_000_000_000, body });
    take(1, Body::Device(Device { device: "d".into(), ..Device::default() }));
    take(1, Body::Port(Port { device: "d".into(), port: 1, ..Port::default() }));
    for (s, p50_ns) in [(61, 2000), (62, 1900)] {
        let loopback = Loopback { device: "d".into(), port: 1, p50_ns, p99_ns: 2500, max_ns: 12_300, n: 32 };
        take(s, Body::Loopback(loopback));
    }
    let shown = |world| {
        let options = ScreenOptions { first: PaneId::Port, ..ScreenOptions::default() };
        let text = screen(sample::feed(world, Mode::Live), options, (120, 40));
        text.lines().find(|line| line.contains("loopback")).map(|line| line.trim_matches(['"', ' ']).to_owned())
    };
    let line = "loopback 1.90 µs median, 2.50 µs p99, 12.3 µs max of 32 writes; since +60 s";
    assert_eq!(shown(engine.snapshot()).as_deref(), Some(line));
    let note = Note { source: "test".into(), text: "time goes on".into() };
    engine.take(&Observation { t: 72_000_000_000, body: Body::Note(note) });
    assert_eq!(shown(engine.snapshot()), Some(format!("{line}, the last one 00:10 ago")));
}

#[test]
fn a_process_that_may_post_unseen_is_named_on_the_self_pane_and_at_its_qps() {
    use collector::observation::{Body, Device, Observation, Port, Probes, Process, Qp, QpState, Unseen, Way};
    let mut engine = collector::engine::Engine::new(Header::new(), collector::rule::Settings::default());
    let mut take = |s: u64, body: Body<'_>| engine.take(&Observation { t: s * 1_000_000_000, body });
    take(1, Body::Device(Device { device: "d".into(), ..Device::default() }));
    take(1, Body::Port(Port { device: "d".into(), port: 1, ..Port::default() }));
    let (comm, library) = (Some("python3".into()), Some("libuct_ib_mlx5.so.0".into()));
    let qp = Qp { qpn: 17, to: Some(QpState::Rts), pid: Some(4242), comm: comm.clone(), ..Qp::default() };
    take(1, Body::Qp(Qp { device: "d".into(), ..qp }));
    let unseen = vec![Unseen { way: Way::UcxMlx5, file: library, reason: None }];
    take(2, Body::Process(Process { pid: 4242, comm, unseen }));
    take(20, Body::Probes(Probes { wanted: 9, attached: 9, ..Probes::default() }));
    let shown = |world, first, size| {
        let text = screen(sample::feed(world, Mode::Live), ScreenOptions { first, ..ScreenOptions::default() }, size);
        let words = text.lines().map(|line| line.trim_matches(['"', ' '])).collect::<Vec<_>>().join(" ");
        words.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let way = "UCX's accelerated transports (libuct_ib_mlx5.so.0)";
    let own = shown(engine.snapshot(), PaneId::Own, (120, 60));
    let text = format!("– python3 (4242) may post through {way}; no post of its QP in RTS is seen");
    assert!(own.contains(&text), "{own}");
    // A column of its own only on wide screens; there it goes on in the next line, beside the other column.
    let qp = shown(engine.snapshot(), PaneId::Qp, (80, 40));
    assert!(qp.contains(&format!("its process may post through {way}")), "{qp}");
    let mut take = |s: u64, body: Body<'_>| engine.take(&Observation { t: s * 1_000_000_000, body });
    take(21, Body::Process(Process { pid: 4242, comm: None, unseen: Vec::new() }));
    assert!(!shown(engine.snapshot(), PaneId::Own, (120, 60)).contains("unseen"), "it is gone");
}

#[test]
fn with_ascii_nothing_else_is_on_the_screen() {
    for pane in PaneId::ALL {
        let options = ScreenOptions { first: pane, ascii: true, ..ScreenOptions::default() };
        let text = screen(sample::feed(sample::faulty(), Mode::Live), options, (120, 40));
        assert!(text.is_ascii(), "{pane:?}: {text}");
    }
}

#[test]
fn control_characters_of_a_process_name_never_reach_the_terminal() {
    use collector::observation::{Body, Observation, Qp};
    let mut engine = collector::engine::Engine::new(Header::new(), collector::rule::Settings::default());
    let seen = Qp { device: "d".into(), qpn: 7, comm: Some("a\x1b]0;b\x07\r\nc".into()), ..Qp::default() };
    engine.take(&Observation { t: 1, body: Body::Qp(seen) });
    let feed = sample::feed(engine.snapshot(), Mode::Live);
    let options = ScreenOptions { first: PaneId::Qps, ..ScreenOptions::default() };
    let text = screen(feed, options, (120, 40));
    assert!(text.contains("a]0;bc"), "{text}");
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text}");
}

#[test]
fn a_source_of_a_collector_that_is_behind_is_as_old_as_it_is() {
    let world = sample::healthy();
    let shown = |mode, behind: u64| {
        let feed = sample::feed(world.clone(), mode);
        let published_at = world.now + behind * 1_000_000_000;
        feed.publish(world.clone(), Status { published_at, ..sample::Node::status(mode) });
        screen(feed, ScreenOptions { first: PaneId::Own, ..ScreenOptions::default() }, (120, 40))
    };
    assert!(shown(Mode::Live, 0).contains("last data 00:00 ago"));
    assert!(shown(Mode::Live, 40).contains("last data 00:40 ago"), "{}", shown(Mode::Live, 40));
    // A recording is read at its own pace.
    assert!(shown(Mode::Replay, 40).contains("last data 00:00 ago"));
}
