//! Making the socket: its directory, what is there already, its mode and group.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Gid, Mode, chmod, chown, flock};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, listen, socket_with};

use super::SocketOptions;

/// Owner and group may connect (which needs the right to write).
const MODE: u32 = 0o660;
/// The directory made for it: everybody may pass, so that the socket's own mode decides, and only the owner may put
/// something else in its place. Whatever the umask is.
const DIRECTORY_MODE: u32 = 0o755;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 16;
/// Two processes that start at once take turns; longer than this nobody takes.
const TURN: Duration = Duration::from_secs(2);

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Somebody serves it.
    #[error("socket {}: another rdmascope collect is serving it; give this one another --socket, or --socket off", .0.display())]
    Served(PathBuf),
    /// Something else has the name.
    #[error("socket {}: there is something that is no socket", .0.display())]
    NoSocket(PathBuf),
    /// A datagram or packet socket has the name.
    #[error("socket {}: there is a socket of another kind, which is not rdmascope's", .0.display())]
    OtherKind(PathBuf),
    /// It could not be made.
    #[error("cannot make the socket {}: {}", .0.display(), .1)]
    Io(PathBuf, io::Error),
    /// It could not be given to the group.
    #[error("cannot give the socket {} to group {}: {}", .0.display(), .1, .2)]
    Group(PathBuf, u32, io::Error),
    /// There is no such group.
    #[error("there is no group {0:?}")]
    NoGroup(String),
}

/// A socket that is listened at.
pub(super) struct Bound {
    pub(super) listener: UnixListener,
    pub(super) name: Name,
}

/// Where it is found.
#[derive(Clone)]
pub(super) struct Name {
    path: PathBuf,
    /// Device and inode of the path.
    file: (u64, u64),
}

impl Name {
    /// The path leads to it, and not to another's by now.
    fn is_ours(&self) -> bool {
        file_of(&self.path).is_ok_and(|file| file == self.file)
    }

    /// Removes the path.
    pub(super) fn remove(&self) {
        if self.is_ours() {
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Gives it to a group; `None`: to this process's own.
    pub(super) fn give(&self, group: Option<u32>) -> Result<(), SocketError> {
        if !self.is_ours() {
            return Err(SocketError::Io(self.path.clone(), io::ErrorKind::NotFound.into()));
        }
        give(&self.path, group.unwrap_or_else(|| rustix::process::getegid().as_raw()))
    }
}

fn give(path: &Path, group: u32) -> Result<(), SocketError> {
    chown(path, None, Some(Gid::from_raw(group)))
        .map_err(|error| SocketError::Group(path.to_owned(), group, error.into()))
}

fn file_of(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

/// The id of a group, by number or by its name in `/etc/group` (other name services are not asked).
pub fn group_id(name: &str) -> Result<u32, SocketError> {
    if let Ok(id) = name.parse() {
        return Ok(id);
    }
    let groups = fs::read_to_string("/etc/group").unwrap_or_default();
    id_in(&groups, name).ok_or_else(|| SocketError::NoGroup(name.to_owned()))
}

/// Fields of a line: name, password, id, members (`group(5)`).
fn id_in(groups: &str, name: &str) -> Option<u32> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

pub(super) fn bind(options: &SocketOptions) -> Result<Bound, SocketError> {
    let path = &options.path;
    let failed = |error: io::Error| SocketError::Io(path.clone(), error);
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let made = match fs::DirBuilder::new().mode(DIRECTORY_MODE).create(directory) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
        Err(error) => return Err(failed(error)),
    };
    // Between the look at what is there and the binding nobody else who starts may do the same.
    let turn = File::open(directory).map_err(failed)?;
    if made {
        turn.set_permissions(fs::Permissions::from_mode(DIRECTORY_MODE)).map_err(failed)?;
    }
    let deadline = Instant::now() + TURN;
    while flock(&turn, FlockOperation::NonBlockingLockExclusive).is_err() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    clear(path)?;
    let made = || -> rustix::io::Result<_> {
        let socket = stream()?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        // Until it listens nobody gets in, whatever the umask made of its mode.
        chmod(path, Mode::from_raw_mode(MODE))?;
        Ok(socket)
    };
    let socket = made().map_err(|error| failed(error.into()))?;
    let given = options.group.map_or(Ok(()), |group| give(path, group));
    let listening = given.and_then(|()| listen(&socket, BACKLOG).map_err(|error| failed(error.into())));
    let file = listening.and_then(|()| file_of(path).map_err(failed));
    match file {
        Ok(file) => Ok(Bound { listener: UnixListener::from(socket), name: Name { path: path.clone(), file } }),
        Err(error) => {
            let _ = fs::remove_file(path);
            Err(error)
        }
    }
}

fn stream() -> rustix::io::Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

/// Removes a socket nobody listens at.
fn clear(path: &Path) -> Result<(), SocketError> {
    let Ok(metadata) = fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        return Err(SocketError::NoSocket(path.to_owned()));
    }
    let failed = |error: Errno| SocketError::Io(path.to_owned(), error.into());
    let address = SocketAddrUnix::new(path).map_err(failed)?;
    // Without waiting: a server that has been stopped accepts nobody.
    match connect(stream().map_err(failed)?, &address) {
        // connect(2): nobody is listening.
        Err(Errno::CONNREFUSED) => fs::remove_file(path).map_err(|error| SocketError::Io(path.to_owned(), error)),
        // Its server has ended since the look at it.
        Err(Errno::NOENT) => Ok(()),
        // Connected, or it would be once the server accepts.
        Ok(()) | Err(Errno::AGAIN | Errno::INPROGRESS) => Err(SocketError::Served(path.to_owned())),
        Err(Errno::PROTOTYPE) => Err(SocketError::OtherKind(path.to_owned())),
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_by_name_or_number() {
        let groups = "root:x:0:\nrdma:x:107:alice,bob\nbroken\nodd:x:many:\n";
        assert_eq!(id_in(groups, "rdma"), Some(107));
        assert_eq!((id_in(groups, "odd"), id_in(groups, "broken"), id_in(groups, "none")), (None, None, None));
        assert_eq!(group_id("1234").ok(), Some(1234));
    }
}
