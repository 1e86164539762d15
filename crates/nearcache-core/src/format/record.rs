//! One record of the log: a header of four words, the key, the value.
//!
//! ```text
//! w0  checksum high:8 | key_len:16 | tag:8 | spare:5 | pad:3 | words:24
//! w1  hash of the key
//! w2  check:16 | expires_at_ms:48            0 ms = never; the only word that changes
//! w3  checksum low:24 | version:40
//! w4… key bytes, value bytes, pad bytes (zero)
//! ```
//!
//! `words` is the length of the record, header included; `pad` the unused bytes
//! at its end. The checksum is over everything but w2, so a record that was
//! damaged in the file reads as a miss. w2 carries a check of its own because it
//! changes in place.

use xxhash_rust::xxh3::xxh3_64_with_seed;

pub(crate) const HEADER_WORDS: usize = 4;
/// The longest record there can be: 24 bits.
pub(crate) const MAX_WORDS: usize = (1 << 24) - 1;
/// The longest key there can be: 16 bits.
pub(crate) const MAX_KEY_BYTES: usize = (1 << 16) - 1;
const VERSION_BITS: u32 = 40;
const CHECKED_BITS: u32 = 48;

/// Payload: one 64-bit signed integer, little endian. Counters have this tag.
pub const TAG_INT: u8 = 0x01;
/// Payload: ASCII decimal digits of an integer of more than 64 bits.
pub const TAG_DIGITS: u8 = 0x02;

/// The header of a record, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub words: usize,
    pub pad: usize,
    pub tag: u8,
    pub key_len: usize,
    pub hash: u64,
    pub version: u64,
    pub expiry: u64,
    checksum: u32,
}

impl Header {
    /// Decodes four words. Any words decode; see [`Header::plausible`].
    #[inline]
    pub fn decode(words: [u64; HEADER_WORDS]) -> Self {
        let [w0, hash, expiry, w3] = words;
        Self {
            words: (w0 & 0xff_ffff) as usize,
            pad: (w0 >> 24 & 7) as usize,
            tag: (w0 >> 32) as u8,
            key_len: (w0 >> 40 & 0xffff) as usize,
            hash,
            version: w3 & ((1 << VERSION_BITS) - 1),
            expiry,
            checksum: (w0 >> 56 << 24 | w3 >> VERSION_BITS) as u32,
        }
    }

    /// Whether the lengths can be true. Checked before anything is read by them.
    #[inline]
    pub fn plausible(&self, max_words: usize) -> bool {
        self.words <= max_words && self.words * 8 >= HEADER_WORDS * 8 + self.key_len + self.pad
    }

    #[inline]
    pub fn value_len(&self) -> usize {
        self.words * 8 - HEADER_WORDS * 8 - self.key_len - self.pad
    }
}

/// How many words a record with these lengths takes.
pub(crate) fn words_for(key_len: usize, value_len: usize) -> usize {
    HEADER_WORDS + (key_len + value_len).div_ceil(8)
}

/// Builds a record in `into`, whose old contents are dropped, all but its
/// version. Returns the hash of key and value that [`seal`] needs, so that the
/// work that grows with the value is done before the lock is taken.
pub(crate) fn build(
    into: &mut Vec<u64>,
    seed: u64,
    hash: u64,
    key: &[u8],
    tag: u8,
    value: &[u8],
    expires_at_ms: u64,
) -> u64 {
    let words = words_for(key.len(), value.len());
    let pad = words * 8 - HEADER_WORDS * 8 - key.len() - value.len();
    into.clear();
    into.resize(words, 0);
    into[0] = words as u64 | (pad as u64) << 24 | u64::from(tag) << 32 | (key.len() as u64) << 40;
    into[1] = hash;
    into[2] = pack_expiry(expires_at_ms, hash, seed);
    let body = bytes_mut(&mut into[HEADER_WORDS..]);
    body[..key.len()].copy_from_slice(key);
    body[key.len()..key.len() + value.len()].copy_from_slice(value);
    body_hash(into, seed)
}

/// Sets the version, and with it the checksum, of a built record.
pub(crate) fn seal(record: &mut [u64], body_hash: u64, version: u64) {
    record[0] &= (1 << 56) - 1;
    record[3] = version & ((1 << VERSION_BITS) - 1);
    let checksum = u64::from(checksum(record, body_hash));
    record[0] |= checksum >> 24 << 56;
    record[3] |= checksum << VERSION_BITS;
}

/// Whether the checksum of a whole record is right. Leaves the record's
/// checksum bits cleared, which no reader of the key or value sees.
#[inline]
pub(crate) fn verify(record: &mut [u64], header: &Header, seed: u64) -> bool {
    record[0] &= (1 << 56) - 1;
    record[3] &= (1 << VERSION_BITS) - 1;
    checksum(record, body_hash(record, seed)) == header.checksum
}

/// Over w0 and w3 without their checksum bits, w1, key and value; not w2.
#[inline]
fn checksum(record: &[u64], body_hash: u64) -> u32 {
    let head = record[0] ^ record[1].rotate_left(17) ^ record[3].rotate_left(41);
    let mixed = (body_hash ^ head).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 32) as u32
}

#[inline]
fn body_hash(record: &[u64], seed: u64) -> u64 {
    xxh3_64_with_seed(bytes(&record[HEADER_WORDS..]), seed)
}

/// The expiry word: the time and a check of it.
pub(crate) fn pack_expiry(expires_at_ms: u64, hash: u64, seed: u64) -> u64 {
    with_check(expires_at_ms.min((1 << CHECKED_BITS) - 1), hash, seed)
}

/// A number below 2^48 and 16 bits that tell whether it is damaged, or another place's.
pub(crate) fn with_check(number: u64, place: u64, seed: u64) -> u64 {
    number | check_of(number, place, seed) << CHECKED_BITS
}

/// The time in an expiry word, or `None` if it is damaged.
#[inline]
pub(crate) fn unpack_expiry(word: u64, hash: u64, seed: u64) -> Option<u64> {
    checked(word, hash, seed)
}

/// The number that `with_check` was given, or `None` if it is damaged.
#[inline]
pub(crate) fn checked(word: u64, place: u64, seed: u64) -> Option<u64> {
    let number = unchecked(word);
    (check_of(number, place, seed) == word >> CHECKED_BITS).then_some(number)
}

/// The same, damaged or not.
#[inline]
pub(crate) fn unchecked(word: u64) -> u64 {
    word & ((1 << CHECKED_BITS) - 1)
}

#[inline]
fn check_of(number: u64, place: u64, seed: u64) -> u64 {
    (number ^ place ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> CHECKED_BITS
}

/// Whether a time in an expiry word is over. 0 never is.
#[inline]
pub(crate) fn is_over(expires_at_ms: u64, now_ms: u64) -> bool {
    expires_at_ms != 0 && expires_at_ms <= now_ms
}

/// Words of this process's own memory as bytes.
#[inline]
pub(crate) fn bytes(words: &[u64]) -> &[u8] {
    // SAFETY: u64 has no padding, every byte is initialised, u8 needs no alignment.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len() * 8) }
}

fn bytes_mut(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: as in `bytes`; any bytes are valid words, and the borrow is unique.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len() * 8) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u64> {
        let mut record = Vec::new();
        let body = build(&mut record, 7, 42, b"key", 0x80, b"some value", 1234);
        seal(&mut record, body, 99);
        record
    }

    fn decode(record: &[u64]) -> Header {
        Header::decode(record[..HEADER_WORDS].try_into().unwrap())
    }

    #[test]
    fn a_record_reads_back() {
        let mut record = sample();
        let header = decode(&record);
        assert_eq!((header.tag, header.key_len, header.value_len()), (0x80, 3, 10));
        assert_eq!((header.hash, header.version), (42, 99));
        assert_eq!(unpack_expiry(header.expiry, 42, 7), Some(1234));
        assert!(header.plausible(100));
        assert!(verify(&mut record, &header, 7));
        assert_eq!(&bytes(&record[HEADER_WORDS..])[..13], b"keysome value");
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let good = sample();
        for bit in 0..good.len() * 64 {
            let mut record = good.clone();
            record[bit / 64] ^= 1 << (bit % 64);
            let header = decode(&record);
            let noticed = !header.plausible(record.len())
                || unpack_expiry(header.expiry, header.hash, 7).is_none()
                || !verify(&mut record[..header.words.min(good.len())], &header, 7);
            assert!(noticed, "bit {bit}");
        }
    }
}
