//! Which QP of a device talks to which QP elsewhere, for a source that sees packets: a packet names the QP it goes to,
//! not the one it comes from.

use std::path::Path;

use super::conversation::Conversation;
use super::reply::{self, DeviceInfo};
use super::uapi::{attr, command};
use super::{Link, availability};

/// A QP and the number of its peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Connected {
    pub(crate) qpn: u32,
    pub(crate) remote_qpn: u32,
}

/// A way to the kernel's list of QPs.
pub(crate) struct Peers(Option<Conversation>);

impl Peers {
    /// Opens the way, where there is one.
    pub(crate) fn open() -> Self {
        match availability::open(Path::new("/proc")) {
            Link::Open { questions, .. } => Self(Some(questions)),
            Link::Closed { .. } => Self(None),
        }
    }

    /// The connected QPs of a device. Costs one query of the driver a QP. `None` when they cannot be listed; a list that
    /// is not whole is better than none.
    pub(crate) fn of(&mut self, device: &str) -> Option<Vec<Connected>> {
        let conversation = self.0.as_mut()?;
        let mut index = None;
        let listed = conversation.dump(command::GET, &[], |message| {
            index = index.or(DeviceInfo::read(message).filter(|known| known.name == device).map(|known| known.index));
        });
        listed.ok()?;
        let mut connected = Vec::new();
        let answer = conversation.dump(command::RES_QP_GET, &[(attr::DEV_INDEX, index?)], |message| {
            reply::qps(message, |qp| {
                connected.extend(qp.remote_qpn.map(|remote_qpn| Connected { qpn: qp.qpn, remote_qpn }));
            });
        });
        answer.ok().map(|_| connected)
    }
}

#[cfg(test)]
mod tests {
    use super::super::conversation::Conversation;
    use super::super::scene::{devices, done, qp_list, qp_part};
    use super::super::stored::Stored;
    use super::*;

    #[test]
    fn the_connected_qps_of_the_named_device_are_told_with_their_peers() {
        let list = vec![qp_part(0, &[(17, 3, 40), (18, 3, 41)]), done(0)];
        let stored = Stored::new(vec![devices(&[(3, "rxea"), (4, "rxeb")]), qp_list(4, list)]);
        let mut peers = Peers(Some(Conversation::new(Box::new(stored))));
        let told: Option<Vec<_>> = peers.of("rxeb").map(|qps| qps.iter().map(|qp| (qp.qpn, qp.remote_qpn)).collect());
        assert_eq!(told, Some(vec![(17, 1017), (18, 1018)]));
        assert_eq!(peers.of("mlx5_0"), None);
        assert_eq!(Peers(None).of("rxeb"), None);
    }
}
