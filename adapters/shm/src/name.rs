//! Names of buffers, and what the system calls them.
//!
//! Promises upward: a name that passed [`BufferName::new`] fits into a socket's address and into a file's name, and means the
//! same in both.
//! Asks from below: nothing.

use crate::error::ShmError;
use rustix::net::SocketAddrUnix;
use std::path::PathBuf;

/// Bytes of a name at most.
///
/// An abstract address has 107, of which `terrace-shm/4294967295/` takes 23; 80 is the round number below.
pub const NAME_BYTES: usize = 80;

/// What an abstract address begins with, before the user and the name.
pub const SOCKET_PREFIX: &str = "terrace-shm/";
/// What a file's name begins with, before the user and the name.
pub const FILE_PREFIX: &str = "terrace-shm.";
/// Where files lie: a file system in memory that every process sees.
pub const FOLDER: &str = "/dev/shm";

/// A name that follows the rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferName(String);

impl BufferName {
    /// Checks a name.
    pub fn new(name: &str) -> Result<Self, ShmError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let good = (1..=NAME_BYTES).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(allowed);
        match good {
            true => Ok(Self(name.into())),
            false => Err(ShmError::Name { name: name.chars().take(100).collect() }),
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// For errors.
    pub fn text(&self) -> String {
        self.0.clone()
    }

    /// The abstract address `terrace-shm/UID/NAME`.
    pub fn address(&self, uid: u32) -> Result<SocketAddrUnix, ShmError> {
        let bytes = format!("{SOCKET_PREFIX}{uid}/{}", self.0);
        SocketAddrUnix::new_abstract_name(bytes.as_bytes()).map_err(ShmError::system("making a socket's address"))
    }

    /// The path `/dev/shm/terrace-shm.UID.NAME`.
    pub fn path(&self, uid: u32) -> PathBuf {
        PathBuf::from(format!("{FOLDER}/{FILE_PREFIX}{uid}.{}", self.0))
    }

    /// User and name of `UID<separator>NAME`, as addresses and files have them.
    pub fn split(text: &str, separator: char) -> Option<(u32, Self)> {
        let (uid, name) = text.split_once(separator)?;
        Some((uid.parse().ok()?, Self::new(name).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_of_the_largest_user_fits_into_an_address() {
        let name = BufferName::new(&"x".repeat(NAME_BYTES)).unwrap();
        assert!(name.address(u32::MAX).is_ok());
        assert_eq!(BufferName::split(&format!("7/{}", name.as_str()), '/'), Some((7, name)));
    }
}
