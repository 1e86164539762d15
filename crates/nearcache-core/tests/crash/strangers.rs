//! Files that are not what they should be: refused with one clear error, before
//! anything in them is believed.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nearcache_core::{Config, Error, LAYOUT_VERSION, Store};

use crate::support::{End, NOW, WAIT, data_file, in_child, put_file, scratch};

const SIZE: usize = 1 << 20;

fn config() -> Config {
    Config::of_size(SIZE as u64)
}

/// Makes a stranger where the data file should be; it is handed a good file.
type Stranger = (&'static str, fn(&Path, Vec<u8>));

fn with_word(mut file: Vec<u8>, word: usize, value: u64) -> Vec<u8> {
    file[word * 8..][..8].copy_from_slice(&value.to_le_bytes());
    file
}

const STRANGERS: &[Stranger] = &[
    ("an empty file", |base, _| put_file(base, b"")),
    ("zeros", |base, _| put_file(base, &[0; SIZE])),
    ("text", |base, _| put_file(base, &b"# settings\n".repeat(100_000))),
    ("another layout", |base, file| {
        put_file(base, &with_word(file, 1, LAYOUT_VERSION + 1));
    }),
    ("another machine", |base, file| put_file(base, &with_word(file, 3, 4))),
    ("another user's", |base, file| put_file(base, &with_word(file, 7, 1 << 40))),
    ("one that was never finished", |base, file| {
        put_file(base, &with_word(file, 13, 0));
    }),
    ("one page more than it says", |base, file| {
        put_file(base, &[file, vec![0; 4096]].concat());
    }),
    ("a lock of another kind", |base, file| {
        put_file(base, &with_word(file, 41 * 512 + 2, 0x20));
    }),
    ("a directory", |base, _| std::fs::create_dir(data_file(base)).unwrap()),
    ("a symbolic link", |base, file| {
        let target = base.with_extension("target");
        std::fs::write(&target, file).unwrap();
        symlink(target, data_file(base)).unwrap();
    }),
    ("one with two names", |base, file| {
        put_file(base, &file);
        std::fs::hard_link(data_file(base), base.with_extension("other")).unwrap();
    }),
    ("one that others may write", |base, file| {
        put_file(base, &file);
        let mode = std::fs::Permissions::from_mode(0o666);
        std::fs::set_permissions(data_file(base), mode).unwrap();
    }),
    ("a pipe", |base, _| {
        let path = std::ffi::CString::new(data_file(base).to_str().unwrap()).unwrap();
        // SAFETY: a valid string.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    }),
];

pub fn are_refused() -> usize {
    let directory = scratch();
    let good = good_file(&directory.path().join("good"));
    for (number, (name, make)) in STRANGERS.iter().enumerate() {
        let base: PathBuf = directory.path().join(number.to_string());
        make(&base, good.clone());
        let end = in_child(|| {
            let error = Store::open(&base, &config()).err();
            let text = error.as_ref().map(Error::to_string).unwrap_or_default();
            assert!(matches!(error, Some(Error::Refused(_) | Error::Io(_))), "{name}: {error:?}");
            let path = base.to_str().unwrap();
            assert!(text.contains(path) && text.lines().count() == 1, "{name}: {text}");
        });
        assert_eq!(end, End::Finished, "{name}");
    }
    STRANGERS.len()
}

fn good_file(base: &Path) -> Vec<u8> {
    let store = Store::open(base, &config()).unwrap();
    let cache = store.cache(NOW).unwrap();
    for n in 0..500_u32 {
        let key = n.to_le_bytes();
        cache.set(cache.key(&key), 0x80, &key, 0, NOW, WAIT).unwrap();
    }
    std::fs::read(data_file(base)).unwrap()
}

pub fn truncated_files() -> usize {
    let directory = scratch();
    let base = directory.path().join("case");
    let good = good_file(&directory.path().join("good"));
    let lengths: Vec<usize> = (0..SIZE).step_by(4096).chain((1..SIZE).step_by(50_021)).collect();
    for length in &lengths {
        put_file(&base, &good[..*length]);
        let end = in_child(|| {
            let error = Store::open(&base, &config()).err().expect("refused");
            assert!(error.to_string().contains("truncated"), "{error}");
        });
        assert_eq!(end, End::Finished, "{length} bytes");
    }
    lengths.len()
}
