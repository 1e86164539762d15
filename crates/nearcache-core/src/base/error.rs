//! Why a cache file cannot be opened. Every text says what to do next.

use std::fmt;

/// The file cannot be used. A miss, a full cache or a busy lock is not an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The caller asked for something impossible (a size below the minimum).
    Option(String),
    /// The file or its directory is foreign, damaged or not private.
    Refused(String),
    /// There is no room for the file.
    Full(String),
    /// The operating system said no.
    Io(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option(text) | Self::Refused(text) | Self::Full(text) | Self::Io(text) => {
                f.write_str(text)
            }
        }
    }
}

impl std::error::Error for Error {}
