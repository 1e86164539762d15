//! How many different values were there? HyperLogLog with 4,096 registers: 4 KiB, standard
//! error 1.6 %, nearly exact for small numbers.
//!
//! The estimate is Ertl's ("New cardinality estimation algorithms for HyperLogLog sketches",
//! 2017), which needs no tables against bias and no other method for small numbers.

const BITS: u32 = 12;
const REGISTERS: usize = 1 << BITS;
/// Hash bits that are left for the rank.
const RANK_BITS: usize = (u64::BITS - BITS) as usize;

#[derive(Clone, Debug)]
pub struct Distinct {
    registers: Box<[u8]>,
}

impl Default for Distinct {
    fn default() -> Distinct {
        Distinct { registers: vec![0; REGISTERS].into_boxed_slice() }
    }
}

impl Distinct {
    pub fn add(&mut self, hash: u64) {
        let register = &mut self.registers[(hash >> (u64::BITS - BITS)) as usize];
        // The marker bit ends the count where the hash does.
        let rank = ((hash << BITS) | (1 << (BITS - 1))).leading_zeros() as u8 + 1;
        *register = (*register).max(rank);
    }

    pub fn estimate(&self) -> u64 {
        let mut with_rank = [0u32; RANK_BITS + 2];
        self.registers.iter().for_each(|rank| with_rank[usize::from(*rank)] += 1);
        let registers = REGISTERS as f64;
        let mut z = registers * tau(1.0 - f64::from(with_rank[RANK_BITS + 1]) / registers);
        for count in with_rank[1..=RANK_BITS].iter().rev() {
            z = 0.5 * (z + f64::from(*count));
        }
        z += registers * sigma(f64::from(with_rank[0]) / registers);
        (registers * registers / (2.0 * std::f64::consts::LN_2 * z)).round() as u64
    }
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x).powi(2) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xxhash_rust::xxh3::xxh3_64;

    #[test]
    fn estimates_are_near_at_every_size() {
        let mut distinct = Distinct::default();
        assert_eq!(distinct.estimate(), 0);
        let mut added = 0u64;
        for size in [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000] {
            while added < size {
                distinct.add(xxh3_64(&added.to_le_bytes()));
                added += 1;
            }
            let off = distinct.estimate() as f64 / size as f64 - 1.0;
            assert!(off.abs() < 0.05, "{size}: {off}");
        }
    }

    #[test]
    fn repeats_and_extreme_hashes_do_no_harm() {
        let mut distinct = Distinct::default();
        for hash in [0, u64::MAX, 0, u64::MAX] {
            distinct.add(hash);
        }
        assert_eq!(distinct.estimate(), 2);
    }
}
