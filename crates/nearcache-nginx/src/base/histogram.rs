//! A histogram of times: buckets of 1/32 of a power of two, each with its sum.
//!
//! With the sum a bucket knows its mean, so values that are whole milliseconds, as nginx
//! logs them, come out exact while they are small. Only buckets in use take memory.

/// Longer times are counted as this: an hour.
const LONGEST_US: u64 = 3_600_000_000;
const SUB_BITS: u32 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    number: u16,
    pub count: u64,
    pub sum_us: u64,
}

/// Buckets in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    buckets: Vec<Bucket>,
}

impl Histogram {
    pub fn add(&mut self, us: u64) {
        let us = us.min(LONGEST_US);
        self.put(Bucket { number: number_of(us), count: 1, sum_us: us });
    }

    pub fn merge(&mut self, other: &Histogram) {
        other.buckets.iter().for_each(|bucket| self.put(*bucket));
    }

    pub fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    fn put(&mut self, more: Bucket) {
        match self.buckets.binary_search_by_key(&more.number, |bucket| bucket.number) {
            Ok(at) => {
                self.buckets[at].count += more.count;
                self.buckets[at].sum_us += more.sum_us;
            }
            Err(at) => self.buckets.insert(at, more),
        }
    }
}

impl Bucket {
    pub fn mean_us(&self) -> u64 {
        self.sum_us / self.count.max(1)
    }
}

/// Below 32 every value has its own; then 32 a power of two.
fn number_of(us: u64) -> u16 {
    let power = u64::BITS - us.leading_zeros();
    let shift = power.saturating_sub(SUB_BITS + 1);
    ((shift << SUB_BITS) + (us >> shift) as u32) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_ascend_and_are_narrow() {
        let mut last = 0;
        for us in (0..100_000).chain((1..3600).map(|s| s * 1_000_000)) {
            let number = number_of(us);
            assert!(number >= last);
            last = number;
        }
        assert_eq!(number_of(1024), number_of(1055));
        assert_ne!(number_of(1024), number_of(1056));
        assert!(number_of(LONGEST_US) < 1000);
    }

    #[test]
    fn few_values_come_back_exactly() {
        let mut histogram = Histogram::default();
        for us in [200_000, 3_000, 200_000, u64::MAX] {
            histogram.add(us);
        }
        let mut twice = histogram.clone();
        twice.merge(&histogram);
        let pairs = |h: &Histogram| -> Vec<_> {
            h.buckets().iter().map(|b| (b.mean_us(), b.count)).collect()
        };
        assert_eq!(pairs(&histogram), [(3_000, 1), (200_000, 2), (LONGEST_US, 1)]);
        assert_eq!(pairs(&twice), [(3_000, 2), (200_000, 4), (LONGEST_US, 2)]);
    }
}
