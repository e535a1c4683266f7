//! Tests of where keys and clicks go and when a frame is drawn.

use super::*;
use crate::sample;
use crate::scenarios::{Play, SECOND};
use crossterm::event::{KeyCode, KeyModifiers};

fn app(mode: Mode) -> (App, Feed) {
    let feed = sample::feed(sample::healthy(), mode);
    (App::new(feed.clone(), ScreenOptions::default(), true), feed)
}

fn press(app: &mut App, code: KeyCode) {
    app.take(&Event::Key(KeyEvent::new(code, KeyModifiers::NONE)), 1);
}

fn draw(app: &mut App) -> Buffer {
    let area = Rect::new(0, 0, 120, 40);
    let mut buf = Buffer::empty(area);
    app.draw(area, &mut buf, 1);
    buf
}

#[test]
fn space_freezes_what_is_shown_live_but_stops_the_producer_in_a_replay() {
    let (mut live, feed) = app(Mode::Live);
    press(&mut live, KeyCode::Char(' '));
    let before = live.shown.generation;
    feed.publish(Arc::new((*live.shown.world).clone()), live.shown.status.clone());
    live.look();
    assert_eq!(live.shown.generation, before);
    assert_eq!(feed.command(), None);
    press(&mut live, KeyCode::Char(' '));
    assert_eq!(live.shown.generation, before + 1);

    let (mut replay, feed) = app(Mode::Replay);
    press(&mut replay, KeyCode::Char(' '));
    assert_eq!(feed.command(), Some(Command::Pause));
    press(&mut replay, KeyCode::Left);
    assert!(matches!(feed.command(), Some(Command::Seek(_))));
}

#[test]
fn a_replay_goes_to_its_end_and_says_how_far_it_is_and_esc_stops_it() {
    let (mut replay, feed) = app(Mode::Replay);
    press(&mut replay, KeyCode::Char('E'));
    assert_eq!(feed.command(), Some(Command::Seek(Nanos::MAX)));
    let status = collector::feed::Status {
        paused: true,
        seeking: Some(Nanos::MAX),
        read_share: Some(0.459),
        ..replay.shown.status.clone()
    };
    feed.publish(replay.shown.world.clone(), status);
    replay.look();
    let text = shown(&mut replay);
    assert!(text.contains("REPLAY to the end 45% (Esc stops)"), "{text}");
    press(&mut replay, KeyCode::Esc);
    assert_eq!(feed.command(), Some(Command::Pause));
}

#[test]
fn the_header_says_whether_it_is_now_and_why_not() {
    let (mut live, feed) = app(Mode::Live);
    assert!(shown(&mut live).contains("LIVE 1 s"));
    press(&mut live, KeyCode::Char(' '));
    let mut world = (*live.shown.world).clone();
    world.now += 13_000_000_000;
    feed.publish(Arc::new(world), live.shown.status.clone());
    live.look();
    assert!(shown(&mut live).contains("PAUSED 00:13 behind (space goes on)"), "{}", shown(&mut live));
    press(&mut live, KeyCode::Char(' '));
    let area = Rect::new(0, 0, 120, 40);
    let mut buf = Buffer::empty(area);
    live.draw(area, &mut buf, live.latest.status.published_at + 12_000_000_000);
    let text: String = buf.content.iter().map(ratatui::buffer::Cell::symbol).collect();
    assert!(text.contains("STALE 00:12: no data since 14:15:33"), "{text}");
}

#[test]
fn nothing_is_drawn_when_nothing_changed() {
    let (mut app, feed) = app(Mode::Live);
    assert!(app.changed(1));
    draw(&mut app);
    app.look();
    assert!(!app.changed(1));
    feed.publish(app.shown.world.clone(), app.shown.status.clone());
    app.look();
    assert!(app.changed(1 + app.shown.status.interval_ns));
}

#[test]
fn what_the_sources_say_of_one_second_is_one_frame_but_a_finding_is_drawn_at_once() {
    let (mut app, feed) = app(Mode::Live);
    let interval = app.shown.status.interval_ns;
    let area = Rect::new(0, 0, 120, 40);
    let mut frames = 0;
    for tenth in 0..30 {
        feed.publish(app.shown.world.clone(), app.shown.status.clone());
        app.look();
        if app.changed(interval + interval / 10 * tenth) {
            app.draw(area, &mut Buffer::empty(area), interval + interval / 10 * tenth);
            frames += 1;
        }
    }
    assert_eq!(frames, 4, "one at the start, and one every nine tenths of an interval");
    feed.publish(sample::faulty(), app.shown.status.clone());
    app.look();
    assert!(app.changed(interval * 4), "no time has passed since the last");
}

#[test]
fn what_comes_each_second_is_drawn_each_second_however_seldom_the_files_are_read() {
    let (mut app, feed) = app(Mode::Live);
    let status = Status { interval_ns: 60 * SECOND, ..app.shown.status.clone() };
    feed.publish(app.shown.world.clone(), status.clone());
    app.look();
    draw(&mut app);
    feed.publish(app.shown.world.clone(), status);
    app.look();
    assert!(!app.changed(1 + SECOND / 2));
    assert!(app.changed(1 + SECOND));
}

#[test]
fn a_finding_in_the_place_of_a_like_one_about_something_else_is_drawn_at_once() {
    let (mut app, feed) = app(Mode::Live);
    let mut world = (*sample::faulty()).clone();
    feed.publish(Arc::new(world.clone()), app.shown.status.clone());
    app.look();
    draw(&mut app);
    Arc::make_mut(&mut world.findings[0]).key = collector::finding::SubjectKey::Node;
    feed.publish(Arc::new(world), app.shown.status.clone());
    app.look();
    assert!(app.changed(1), "no time has passed since the last");
}

#[test]
fn a_world_that_stands_still_becomes_stale_and_the_age_moves_once_a_second() {
    let (mut app, _feed) = app(Mode::Live);
    draw(&mut app);
    let start = app.latest.status.published_at;
    assert!(!app.changed(start + 2_900_000_000));
    assert!(app.changed(start + 4_000_000_000));
    let area = Rect::new(0, 0, 120, 40);
    app.draw(area, &mut Buffer::empty(area), start + 4_000_000_000);
    assert!(!app.changed(start + 4_500_000_000));
    assert!(app.changed(start + 5_000_000_000));
}

#[test]
fn esc_leads_back_the_way_one_came() {
    let (mut app, _feed) = app(Mode::Live);
    draw(&mut app);
    press(&mut app, KeyCode::Enter);
    assert_eq!(app.open, PaneId::Port);
    press(&mut app, KeyCode::Char('3'));
    press(&mut app, KeyCode::Esc);
    assert_eq!(app.open, PaneId::Port);
    press(&mut app, KeyCode::Esc);
    assert_eq!(app.open, PaneId::Overview);
}

#[test]
fn a_pane_of_one_thing_shows_what_was_selected() {
    let mut app = App::new(sample::feed(sample::faulty(), Mode::Live), ScreenOptions::default(), true);
    let text = |buf: Buffer| buf.content.iter().map(ratatui::buffer::Cell::symbol).collect::<String>();
    draw(&mut app);
    press(&mut app, KeyCode::Char('G'));
    press(&mut app, KeyCode::Char('2'));
    assert!(text(draw(&mut app)).contains(" mlx5_1/1 "));
    press(&mut app, KeyCode::Char('3'));
    draw(&mut app);
    press(&mut app, KeyCode::Down);
    press(&mut app, KeyCode::Char('4'));
    // What died stands first.
    assert!(text(draw(&mut app)).contains(" mlx5_4 QP 101 "));
}

#[test]
fn a_click_on_a_tab_opens_it() {
    let (mut app, _feed) = app(Mode::Live);
    draw(&mut app);
    let place = app.tabs.iter().find(|(_, pane)| *pane == PaneId::Own).map(|(place, _)| place.start + 1);
    app.click(place.unwrap(), app.tabs_at);
    assert_eq!(app.open, PaneId::Own);
}

#[test]
fn a_click_on_a_tab_shows_what_was_selected_as_its_key_does() {
    let shown_by = |open: fn(&mut App)| {
        let (mut app, _feed) = app(Mode::Live);
        type_in(&mut app, "3jjj");
        open(&mut app);
        shown(&mut app).lines().nth(2).unwrap().to_owned()
    };
    let clicked = shown_by(|app| {
        let place = app.tabs.iter().find(|(_, pane)| *pane == PaneId::Qp).map(|(place, _)| place.start + 1);
        app.click(place.unwrap(), app.tabs_at);
    });
    assert!(clicked.contains(" QP "), "{clicked}");
    assert_eq!(clicked, shown_by(|app| type_in(app, "4")));
    assert_ne!(clicked, shown_by(|app| type_in(app, "k4")));
}

#[test]
fn keys_are_letters_while_a_filter_is_typed() {
    let (mut app, _feed) = app(Mode::Live);
    press(&mut app, KeyCode::Char('3'));
    draw(&mut app);
    press(&mut app, KeyCode::Char('/'));
    press(&mut app, KeyCode::Char('q'));
    assert!(!app.leaves());
    app.take(&Event::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), 1);
    assert!(app.leaves());
}

fn shown(app: &mut App) -> String {
    let buf = draw(app);
    let row = |row: &[ratatui::buffer::Cell]| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>() + "\n";
    buf.content.chunks(120).map(row).collect()
}

fn type_in(app: &mut App, keys: &str) {
    for key in keys.chars() {
        press(app, KeyCode::Char(key));
        draw(app);
    }
}

#[test]
fn columns_are_put_away_and_come_back_and_one_of_them_sorts() {
    let (mut app, _feed) = app(Mode::Live);
    type_in(&mut app, "3");
    assert!(shown(&mut app).contains(" TYPE "));
    // The fourth column is the type; s sorts by it.
    type_in(&mut app, "cjjj ");
    press(&mut app, KeyCode::Esc);
    let text = shown(&mut app);
    assert!(!text.contains(" TYPE ") && text.contains(" STATE "), "{text}");
    type_in(&mut app, "cjjjjs");
    press(&mut app, KeyCode::Esc);
    assert!(shown(&mut app).contains("by STATE"), "{}", shown(&mut app));
    type_in(&mut app, "ca");
    press(&mut app, KeyCode::Esc);
    assert!(shown(&mut app).contains(" TYPE "));
}

#[test]
fn counters_that_say_something_stand_first_and_a_filter_leaves_those_asked_for() {
    let mut app = App::new(sample::feed(sample::faulty(), Mode::Live), ScreenOptions::default(), true);
    type_in(&mut app, "2");
    let first = |app: &mut App| {
        let text = shown(app);
        let title = text.lines().position(|line| line.starts_with(" COUNTER")).unwrap();
        text.lines().nth(title + 1).unwrap().split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!(first(&mut app), "link_downed");
    type_in(&mut app, "s");
    assert_ne!(first(&mut app), "link_downed");
    type_in(&mut app, "/retries");
    press(&mut app, KeyCode::Enter);
    assert_eq!(first(&mut app), "req_transport_retries_exceeded");
    assert!(shown(&mut app).contains("1 of 18 counters"));
    press(&mut app, KeyCode::Esc);
    assert_ne!(first(&mut app), "req_transport_retries_exceeded");
}

#[test]
fn a_group_opens_into_its_qps_and_esc_leads_out() {
    let mut app = App::new(sample::feed(sample::faulty(), Mode::Live), ScreenOptions::default(), true);
    type_in(&mut app, "3bbb");
    let text = shown(&mut app);
    assert!(text.contains("by port") && text.contains(" mlx5_4/1 "), "{text}");
    type_in(&mut app, "ss");
    press(&mut app, KeyCode::End);
    draw(&mut app);
    press(&mut app, KeyCode::Enter);
    let text = shown(&mut app);
    assert!(text.contains("64 of 320 QPs") && text.contains("/ device==mlx5_"), "{text}");
    press(&mut app, KeyCode::Esc);
    assert!(shown(&mut app).contains(" 320 QPs "));
}

#[test]
fn a_click_on_a_title_sorts_by_it_and_once_more_the_other_way_round() {
    let (mut app, _feed) = app(Mode::Live);
    type_in(&mut app, "3");
    let text = shown(&mut app);
    let titles = text.lines().nth(3).unwrap();
    let x = u16::try_from(titles.find("POSTS").unwrap()).unwrap();
    app.click(x, 3);
    assert!(shown(&mut app).contains("by POSTS ▼"));
    app.click(x, 3);
    assert!(shown(&mut app).contains("by POSTS ▲"));
}

#[test]
fn every_pane_can_be_copied_as_text() {
    for pane in PaneId::ALL {
        let mut app = App::new(sample::feed(sample::faulty(), Mode::Live), ScreenOptions::default(), true);
        app.open = pane;
        draw(&mut app);
        press(&mut app, KeyCode::Char('y'));
        let text = app.copied().unwrap_or_default();
        assert!(text.lines().count() > 2 && text.lines().all(|line| line == line.trim_end()), "{pane:?}: {text}");
    }
}

#[test]
fn panes_keep_their_state_while_others_are_open() {
    let (mut app, _feed) = app(Mode::Live);
    type_in(&mut app, "3/comm=nccl");
    press(&mut app, KeyCode::Enter);
    let before = shown(&mut app);
    assert!(before.contains("40 of 320 QPs"), "{before}");
    type_in(&mut app, "71853");
    assert_eq!(shown(&mut app), before);
}

#[test]
fn recording_asks_for_a_file_named_after_the_time_and_then_for_its_end() {
    let (mut app, feed) = app(Mode::Live);
    press(&mut app, KeyCode::Char('r'));
    let Some(Command::Record(path)) = feed.command() else { panic!("no recording asked for") };
    let name = path.to_string_lossy().into_owned();
    assert!(name.starts_with("rdmascope-2") && name.ends_with("Z.jsonl.zst"), "{name}");
}

#[test]
fn below_the_smallest_size_there_is_one_line_that_says_so() {
    let (mut app, _feed) = app(Mode::Live);
    let area = Rect::new(0, 0, 59, 16);
    let mut buf = Buffer::empty(area);
    app.draw(area, &mut buf, 1);
    let text: String = buf.content.iter().map(ratatui::buffer::Cell::symbol).collect();
    assert_eq!(text.trim(), "rdmascope needs 60×16, this is 59×16");
}

#[test]
fn every_pane_can_be_drawn_at_every_size() {
    let mut app = App::new(sample::feed(sample::faulty(), Mode::Live), ScreenOptions::default(), true);
    let sizes =
        [0, 1, 60, 61, 79, 100, 119, 500].into_iter().flat_map(|w| [0, 1, 16, 17, 18, 20, 23, 90].map(|h| (w, h)));
    for (width, height) in sizes {
        let area = Rect::new(0, 0, width, height);
        for pane in PaneId::ALL {
            app.open = pane;
            app.help = (height == 17).then(Help::default);
            app.draw(area, &mut Buffer::empty(area), 1);
        }
    }
}

#[test]
fn steps_of_a_replay_add_up_while_it_is_on_its_way() {
    let (mut replay, feed) = app(Mode::Replay);
    let now = replay.shown.world.now;
    let window = replay.shown.world.window_ns;
    let status = collector::feed::Status { paused: true, seeking: Some(now - window), ..replay.shown.status.clone() };
    feed.publish(replay.shown.world.clone(), status);
    replay.look();
    press(&mut replay, KeyCode::Left);
    assert_eq!(feed.command(), Some(Command::Seek(now - 2 * window)));
    press(&mut replay, KeyCode::Right);
    assert_eq!(feed.command(), Some(Command::Seek(now)));
}

#[test]
fn a_banner_is_told_to_its_end_on_the_smallest_screen() {
    let feed = sample::feed(sample::healthy(), Mode::Demo);
    let banner = "no RDMA subsystem (class/infiniband missing) — this is the demo aer-then-down, not this node";
    let status = collector::feed::Status { banner: Some(banner.to_owned()), ..feed.latest().status.clone() };
    feed.publish(sample::healthy(), status);
    let mut app = App::new(feed, ScreenOptions::default(), true);
    let area = Rect::new(0, 0, 60, 16);
    let mut buf = Buffer::empty(area);
    app.draw(area, &mut buf, 1);
    let text: String = buf.content.iter().map(ratatui::buffer::Cell::symbol).collect();
    assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains(banner), "{text}");
}

#[test]
fn a_frozen_screen_is_led_back_through_whole_moments_and_forth_again_to_where_it_was_frozen() {
    let mut play = Play::new("aer-then-down");
    let feed = play.feed(30 * SECOND);
    let mut app = App::new(feed.clone(), ScreenOptions::default(), true);
    let mut pass = |app: &mut App, seconds: std::ops::RangeInclusive<u64>| {
        for second in seconds {
            let next = play.feed(second * SECOND).latest();
            feed.publish(next.world.clone(), next.status.clone());
            app.look();
        }
    };
    pass(&mut app, 31..=44);
    assert!(shown(&mut app).contains(" DOWN "), "{}", shown(&mut app));
    press(&mut app, KeyCode::Char(' '));
    pass(&mut app, 45..=46);
    let frozen = shown(&mut app);
    assert!(frozen.contains("14:02:53   DEMO PAUSED 00:02 behind (space goes on)"), "{frozen}");
    assert!(frozen.contains("Left back  Right on"), "{frozen}");
    for _ in 0..5 {
        press(&mut app, KeyCode::Left);
    }
    let before = shown(&mut app);
    assert!(before.contains("14:02:48   DEMO PAUSED 00:07 behind"), "{before}");
    // The port was up, nothing had failed, and no finding said so.
    assert!(!before.contains(" DOWN ") && !before.contains("link.down"), "{before}");
    for pane in PaneId::ALL {
        press(&mut app, KeyCode::Char(char::from_digit(pane.number().into(), 10).unwrap()));
        assert!(shown(&mut app).contains("14:02:48   DEMO PAUSED"), "{pane:?}");
    }
    press(&mut app, KeyCode::Char('1'));
    for _ in 0..5 {
        press(&mut app, KeyCode::Right);
    }
    assert_eq!(shown(&mut app), frozen);
    press(&mut app, KeyCode::Right);
    assert!(shown(&mut app).contains("here the screen was frozen"), "{}", shown(&mut app));
    press(&mut app, KeyCode::Char('{'));
    assert!(shown(&mut app).contains("14:02:40   DEMO PAUSED"), "as far as they reach: {}", shown(&mut app));
    press(&mut app, KeyCode::Char('}'));
    assert!(shown(&mut app).contains("14:02:53   DEMO PAUSED"), "{}", shown(&mut app));
    for _ in 0..100 {
        press(&mut app, KeyCode::Left);
    }
    let oldest = shown(&mut app);
    assert!(oldest.contains("no older moment is kept whole") && oldest.contains("14:02:40"), "{oldest}");
    press(&mut app, KeyCode::Char(' '));
    assert!(shown(&mut app).contains("14:02:55   DEMO"), "{}", shown(&mut app));
    assert_eq!(feed.command(), None, "the producer knows nothing of it");
}

#[test]
fn a_cursor_reads_the_charts_of_a_finding_at_its_time() {
    let mut app = App::new(Play::new("aer-then-down").feed(44 * SECOND), ScreenOptions::default(), true);
    press(&mut app, KeyCode::Char('5'));
    press(&mut app, KeyCode::Enter);
    let text = shown(&mut app);
    let errors = |text: &str, line: usize| {
        let at = text.lines().position(|line| line.starts_with(" QPs in error after the port")).unwrap();
        text.lines().nth(at + line).unwrap().split("  ").next().unwrap().trim().to_owned()
    };
    assert!(text.contains(" until 14:02:53 ") && !text.contains('◆'), "{text}");
    assert_eq!(errors(&text, 1), "0");
    // The QPs failed four seconds before, in a window of a second: it is three cells wide or less.
    let mut read = Vec::new();
    for _ in 0..12 {
        press(&mut app, KeyCode::Char('h'));
        read.push(errors(&shown(&mut app), 1));
    }
    assert!(read.contains(&"64".to_owned()), "{read:?}\n{}", shown(&mut app));
    let text = shown(&mut app);
    assert!(text.contains(" at    14:02:") && text.contains('◆') && !text.contains(" until 14:02"), "{text}");
    press(&mut app, KeyCode::Esc);
    assert!(shown(&mut app).contains(" until 14:02:53 "), "Esc puts it back before it leads out");
}

#[test]
fn esc_on_the_overview_stays_there_and_from_anywhere_leads_to_it() {
    let (mut app, _feed) = app(Mode::Live);
    draw(&mut app);
    type_in(&mut app, "98");
    type_in(&mut app, "1");
    press(&mut app, KeyCode::Esc);
    assert_eq!(app.open, PaneId::Overview);
    type_in(&mut app, "3798");
    for _ in 0..9 {
        press(&mut app, KeyCode::Esc);
    }
    assert_eq!(app.open, PaneId::Overview);
}

#[test]
fn a_pane_s_number_opens_it_from_the_help_too() {
    let (mut app, _feed) = app(Mode::Live);
    draw(&mut app);
    type_in(&mut app, "?9");
    assert!(app.help.is_none());
    assert_eq!(app.open, PaneId::Own);
    // A key that scrolls does not close it, any other does and does nothing else.
    type_in(&mut app, "?");
    press(&mut app, KeyCode::Down);
    assert!(app.help.is_some());
    type_in(&mut app, "r");
    assert!(app.help.is_none() && app.message.is_none());
}

#[test]
fn control_z_asks_for_the_shell_whatever_is_typed() {
    let (mut app, _feed) = app(Mode::Live);
    type_in(&mut app, "3/");
    app.take(&Event::Key(KeyEvent::new(KeyCode::Char('z'), KeyModifiers::CONTROL)), 1);
    assert!(app.leaves() && app.suspends() && !app.suspends() && !app.leaves());
    draw(&mut app);
    assert!(!app.changed(1));
    app.redraw();
    assert!(app.changed(1), "what the shell left on the terminal is not what was drawn");
}

#[test]
fn the_cost_in_the_header_has_the_probes_in_it_and_stays_when_it_is_above_what_they_may() {
    let (mut app, feed) = app(Mode::Live);
    let header = |app: &mut App, width: u16| {
        let area = Rect::new(0, 0, width, 24);
        let mut buf = Buffer::empty(area);
        app.draw(area, &mut buf, 1);
        buf.content[..usize::from(width)].iter().map(ratatui::buffer::Cell::symbol).collect::<String>()
    };
    assert!(!header(&mut app, 80).contains("cost"));
    let mut world = (*app.shown.world).clone();
    let probes = world.probes.as_mut().unwrap();
    let probes = Arc::make_mut(probes);
    (probes.cost_share, probes.budget_share) = (Some(2.65), Some(0.01));
    feed.publish(Arc::new(world), app.shown.status.clone());
    app.look();
    for width in [80, 140] {
        assert!(header(&mut app, width).contains("cost 265% cpu"), "{}", header(&mut app, width));
    }
}

#[test]
fn a_collector_that_does_not_keep_up_is_called_behind() {
    for (mode, word) in [(Mode::Live, "LIVE"), (Mode::Demo, "DEMO")] {
        let (mut app, feed) = app(mode);
        assert!(!shown(&mut app).contains("BEHIND"));
        let published_at = app.shown.world.now + 40_000_000_000;
        let status = Status { published_at, ..app.shown.status.clone() };
        feed.publish(app.shown.world.clone(), status);
        app.look();
        assert!(shown(&mut app).contains(&format!("{word} 00:40 BEHIND")), "{}", shown(&mut app));
    }
}

#[test]
fn the_end_of_a_recording_says_where_it_is_and_what_is_in_it() {
    let (mut app, feed) = app(Mode::Live);
    let recording = collector::feed::RecordingStatus {
        path: PathBuf::from("/var/tmp/r.jsonl.zst"),
        bytes: 1_856_000,
        observations: 12_345,
        stopped: None,
    };
    let status = |recording| Status { recording, ..app.shown.status.clone() };
    let (runs, none) = (status(Some(recording)), status(None));
    for status in [runs, none] {
        feed.publish(app.shown.world.clone(), status);
        app.look();
    }
    assert!(shown(&mut app).contains("recorded to /var/tmp/r.jsonl.zst: 12,345 observations"), "{}", shown(&mut app));
}

#[test]
fn enter_is_not_offered_where_it_opens_nothing() {
    let (mut app, _feed) = app(Mode::Live);
    for (pane, offered) in [("8", false), ("5", false), ("7", true)] {
        type_in(&mut app, pane);
        let text = shown(&mut app);
        assert_eq!(text.lines().last().unwrap().contains("Enter open"), offered, "{pane}: {text}");
    }
}

#[test]
fn the_qp_that_died_last_takes_the_place_of_one_that_nobody_chose() {
    let (mut app, feed) = app(Mode::Live);
    type_in(&mut app, "4");
    assert!(shown(&mut app).contains(" RTS "));
    feed.publish(sample::faulty(), app.shown.status.clone());
    app.look();
    let text = shown(&mut app);
    assert!(text.contains(" mlx5_4 QP ") && text.contains(" ERR "), "{text}");
    // Of a port or a finding that is selected it is that port's.
    let mut app = App::new(sample::feed(sample::faulty(), Mode::Live), ScreenOptions::default(), true);
    draw(&mut app);
    type_in(&mut app, "G4");
    assert!(shown(&mut app).contains(" mlx5_1 QP "), "{}", shown(&mut app));
}

#[test]
fn what_went_wrong_is_said_as_it_is_noticed() {
    let (mut app, feed) = app(Mode::Replay);
    let mut status = app.shown.status.clone();
    status.notices.push("the recording ends in the middle of line 7".to_owned());
    feed.publish(app.shown.world.clone(), status);
    app.look();
    let text = shown(&mut app);
    assert!(text.contains("the recording ends in the middle of line 7") && text.contains("1 notice [9]"), "{text}");
}
