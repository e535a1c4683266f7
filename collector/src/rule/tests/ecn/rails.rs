//! `ecn.rail_asymmetry`, `ecn.inversion`: a port beside the others, and beside itself.

use super::*;

/// Four rails at a like load; the last is marked `ce` times a second, the others 400 times.
fn rails(names: &[&str], load: f64, ce: u64) -> Vec<String> {
    let mut node = Node::new(names);
    for (i, name) in names.iter().enumerate() {
        let last = i + 1 == names.len();
        let second = if last {
            Second { u: load, ce, cnp: [ce / 20, ce / 20, 0], ..CALM }
        } else {
            Second { u: 0.6, ce: 400, cnp: [20, 20, 0], ..CALM }
        };
        node.seconds(1, 12, name, second);
    }
    told(&node.run())
}

#[test]
fn a_rail_marked_more_than_five_times_as_often_at_a_like_load_stands_out() {
    assert_eq!(rails(&["a", "b", "c", "d"], 0.62, 60_000), ["ecn.rail_asymmetry suspected"]);
    assert_eq!(rails(&["a", "b", "c", "d"], 0.62, 1_500), NONE);
    assert_eq!(rails(&["a", "b", "c", "d"], 0.9, 60_000), NONE, "its load is another");
    assert_eq!(rails(&["a", "d"], 0.62, 60_000), NONE, "two rails are no comparison");
}

#[test]
fn marks_that_fall_while_the_load_rises_are_an_inversion_after_sixty_windows() {
    let falling = |to: u32, sign: f64| {
        let mut node = Node::new(&["a"]);
        for s in 1..=to {
            let wave = f64::from(s % 7) / 7.0;
            let marks = 30_000.0 + sign * 20_000.0 * wave;
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive")]
            let ce = marks as u64;
            node.second(
                f64::from(s) - 0.5,
                "a",
                Second { u: 0.55 + 0.3 * wave, ce, cnp: [ce / 20, ce / 20, 0], ..CALM },
            );
        }
        told(&node.run())
    };
    assert_eq!(falling(80, -1.0), ["ecn.inversion suspected"]);
    assert_eq!(falling(80, 3.0), NONE);
    assert_eq!(falling(50, -1.0), NONE);
}
