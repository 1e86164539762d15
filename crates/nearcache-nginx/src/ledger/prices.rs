//! What a fetch of each URL takes, and so what each answer from the cache was worth.
//!
//! ```text
//!  price of a URL = (n * mean of its own n fetches + k * mean of its group) / (n + k)
//!  k = variance within URLs / variance between the URLs of a group
//! ```
//!
//! That is the empirical Bayes estimate of a mean (Efron and Morris, "Data analysis using Stein's
//! estimator and its generalizations", JASA 1975). Both variances are of logarithms, for a page
//! that takes ten times as long varies ten times as much. The variances of a group with few fetches
//! lean on the whole log's. A group has few URLs that are its exceptions, and these are what counts.
//! So no price is drawn further from a URL's own mean than a part of that mean's standard error
//! ("limited translation", Efron and Morris, JASA 1972). The less a URL is like its group, the
//! smaller that part.
//!
//! [`Saved`] says as variances how certain a sum of prices is. Hits are known. Chance decided which
//! fetches of which URLs were seen. The share of a group's mean is what resampling its URLs gives,
//! in closed form.
//!
//! The same for `report` and `whatif`. Not here: intervals and words, which are Python's.

use std::collections::HashMap;

use crate::base::hashing::ByHash;
use crate::log::record::CacheStatus;
use crate::log::request::Request;
use crate::urls::groups::Group;

/// Beyond so many URLs the half with the fewest hits is summed up by group.
const MOST_URLS: usize = 1 << 18;
/// nginx logs whole milliseconds: 0 is less than one.
const SHORTEST_US: f64 = 500.0;
/// So many degrees of freedom has what is believed before anything is seen: of a group the whole
/// log's variances, and of the log this one (a factor of 1.6 either way).
const BELIEVED: f64 = 5.0;
const USUAL_VARIANCE: f64 = 0.25;
/// Of logarithms; what is larger (a factor of 7 either way) is not believed.
const MOST_VARIANCE: f64 = 4.0;
/// In standard errors of a URL's own mean.
const FURTHEST: f64 = 0.7;
/// From here on, in squared standard deviations, a URL is an exception in its group.
const EXCEPTION: f64 = 4.0;
const FEW: u32 = 5;

/// The fetches of one URL.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fetches {
    pub count: u32,
    sum_us: f64,
    squares: f64,
    logs: f64,
    log_squares: f64,
}

/// Of a URL in a group.
#[derive(Clone, Copy, Debug, Default)]
pub struct Url {
    pub group: u32,
    pub served: u32,
    pub fetches: Fetches,
}

/// What the answers of a group were worth.
#[derive(Clone, Copy, Debug, Default)]
pub struct Saved {
    pub served: u64,
    /// Of them, those of URLs that were fetched fewer than five times.
    pub thin: u64,
    /// Was the group never fetched? Then its mean is that of its location.
    pub is_borrowed: bool,
    /// Of a fetch of any URL of the group.
    pub mean_us: f64,
    pub us: f64,
    /// The same, if the fetches of each URL itself were believed alone.
    pub own_us: f64,
    /// Variance of `us` from fetches of one URL that differ, and the degrees of freedom of it.
    pub within: f64,
    pub within_freedom: f64,
    /// Variance of `us` from URLs of one group that differ.
    pub between: f64,
    pub between_freedom: f64,
}

impl Saved {
    /// What an answer was worth.
    pub fn price_us(&self) -> f64 {
        if self.served == 0 { self.mean_us } else { self.us / self.served as f64 }
    }
}

/// The URLs of a log.
#[derive(Debug, Default)]
pub struct Prices {
    /// Where in `urls` a name is. Sums are in the order of first requests, not of this table:
    /// the same log gives the same digits.
    places: HashMap<u64, u32, ByHash>,
    urls: Vec<(u64, Url)>,
    /// By group: all that the table had no room for, as if it were one URL.
    rest: Vec<Url>,
}

/// How the fetches of one group are spread.
#[derive(Clone, Copy, Debug, Default)]
struct Spread {
    urls: f64,
    count: f64,
    counts_squared: f64,
    sum_us: f64,
    logs: f64,
    log_squares: f64,
    /// Sum over URLs of (sum of logarithms)^2 / fetches.
    by_url: f64,
    /// Of times, not of logarithms.
    residuals: f64,
}

/// How the URLs of one group are priced.
#[derive(Clone, Copy, Debug, Default)]
struct Fit {
    mean_us: f64,
    /// `k` above: the group's mean counts like so many fetches.
    weight: f64,
    /// Variances of logarithms.
    within: f64,
    between: f64,
    /// The same, of times in means.
    noise: f64,
    /// And of times as they are, within URLs; little where no URL was fetched twice.
    noise_us: f64,
    spread_between: f64,
    within_freedom: f64,
    between_freedom: f64,
    /// Variance of `mean_us` itself.
    mean_variance: f64,
    is_borrowed: bool,
}

/// What fetches take, by group.
#[derive(Clone, Debug, Default)]
pub struct Fitted {
    groups: Vec<Fit>,
}

impl Fetches {
    pub fn add(&mut self, us: u64) {
        let us = us as f64;
        let log = us.max(SHORTEST_US).ln();
        self.count = self.count.saturating_add(1);
        self.sum_us += us;
        self.squares += us * us;
        self.logs += log;
        self.log_squares += log * log;
    }

    fn merge(&mut self, other: &Fetches) {
        self.count = self.count.saturating_add(other.count);
        self.sum_us += other.sum_us;
        self.squares += other.squares;
        self.logs += other.logs;
        self.log_squares += other.log_squares;
    }

    fn mean_us(&self) -> f64 {
        self.sum_us / f64::from(self.count.max(1))
    }

    /// Sum of squared distances from their mean.
    fn residuals(&self) -> f64 {
        (self.squares - self.sum_us * self.mean_us()).max(0.0)
    }
}

/// Does a line with this status tell what a fetch takes?
pub(crate) fn is_telling(status: CacheStatus) -> bool {
    status.is_fetch() || status == CacheStatus::Unknown
}

impl Prices {
    pub(crate) fn take(&mut self, request: &Request<'_>, group: u32, status: CacheStatus) {
        if status.is_served() {
            let url = self.url(request, group);
            url.served = url.served.saturating_add(1);
        } else if is_telling(status)
            && let Some(us) = request.fetch_us()
        {
            self.url(request, group).fetches.add(us);
        }
    }

    fn url(&mut self, request: &Request<'_>, group: u32) -> &mut Url {
        // A key that several URLs share may be of several groups.
        let name = request.key ^ u64::from(group).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let place = match self.places.get(&name) {
            Some(place) => *place,
            None => {
                if self.urls.len() >= MOST_URLS {
                    self.make_room();
                }
                self.add(name, Url { group, ..Url::default() })
            }
        };
        &mut self.urls[place as usize].1
    }

    fn add(&mut self, name: u64, url: Url) -> u32 {
        let place = self.urls.len() as u32;
        self.urls.push((name, url));
        self.places.insert(name, place);
        place
    }

    fn make_room(&mut self) {
        let mut served: Vec<u32> = self.urls.iter().map(|(_, url)| url.served).collect();
        let middle = served.len() / 2;
        let median = *served.select_nth_unstable(middle).1;
        self.places.clear();
        for (name, url) in std::mem::take(&mut self.urls) {
            if url.served > median {
                self.add(name, url);
            } else {
                self.sum_up(&url);
            }
        }
    }

    fn sum_up(&mut self, url: &Url) {
        let place = url.group as usize;
        if self.rest.len() <= place {
            self.rest.resize(place + 1, Url::default());
        }
        let rest = &mut self.rest[place];
        rest.group = url.group;
        rest.served = rest.served.saturating_add(url.served);
        rest.fetches.merge(&url.fetches);
    }

    /// By group, in the order of the table.
    pub fn saved(&self, groups: &[Group]) -> Vec<Saved> {
        let urls = || self.urls.iter().map(|(_, url)| url);
        let single = || urls().map(|url| (url.group, &url.fetches));
        let rest = || self.rest.iter().map(|url| (url.group, &url.fetches));
        Fitted::new(groups, single, rest).saved(urls().chain(&self.rest))
    }
}

impl Fitted {
    /// `single`: URLs each by itself, again for each call; `sums`: of many URLs of a group.
    pub fn new<'a, Single, Sums>(
        groups: &[Group],
        single: impl Fn() -> Single,
        sums: impl Fn() -> Sums,
    ) -> Fitted
    where
        Single: Iterator<Item = (u32, &'a Fetches)>,
        Sums: Iterator<Item = (u32, &'a Fetches)>,
    {
        let mut spreads = vec![Spread::default(); groups.len()];
        single().for_each(|(group, fetches)| spreads[group as usize].add(fetches));
        let mut all = Spread::default();
        spreads.iter().for_each(|spread| all.merge(spread));
        let (within, between) = all_variances(&spreads, &all);
        let fits = spreads.iter().map(|spread| spread.fit(within, between)).collect();
        let mut fitted = Fitted { groups: fits };
        fitted.weigh(|| single().chain(sums()));
        fitted.borrow(groups, || single().chain(sums()));
        fitted
    }

    /// The mean of each group, and its variance.
    fn weigh<'a, Urls: Iterator<Item = (u32, &'a Fetches)>>(&mut self, urls: impl Fn() -> Urls) {
        let mut sums = vec![Weights::default(); self.groups.len()];
        for (group, fetches) in urls().filter(|(_, fetches)| fetches.count > 0) {
            sums[group as usize].add(fetches, self.groups[group as usize].weight);
        }
        for (fit, of) in self.groups.iter_mut().zip(&sums) {
            of.settle(fit);
        }
    }

    /// A group that was never fetched counts with the mean of its location, or else of all.
    fn borrow<'a, Urls>(&mut self, groups: &[Group], urls: impl Fn() -> Urls)
    where
        Urls: Iterator<Item = (u32, &'a Fetches)>,
    {
        let places = groups.iter().map(|group| usize::from(group.location) + 1).max().unwrap_or(0);
        let mut lent = vec![Spread::default(); places + 1];
        for (group, fetches) in urls().filter(|(_, fetches)| fetches.count > 0) {
            lent[usize::from(groups[group as usize].location)].add(fetches);
            lent[places].add(fetches);
        }
        for (fit, group) in self.groups.iter_mut().zip(groups).filter(|(fit, _)| fit.is_borrowed) {
            let own = &lent[usize::from(group.location)];
            let from = if own.count > 0.0 { own } else { &lent[places] };
            fit.mean_us = if from.count > 0.0 { from.sum_us / from.count } else { 0.0 };
            let spread = from.variance().clamp(1.0, MOST_VARIANCE);
            fit.mean_variance = spread.exp_m1() * fit.mean_us * fit.mean_us;
        }
    }

    /// What a fetch of this URL takes, in microseconds; of a group that is not known nothing.
    pub fn price_us(&self, group: u32, fetches: &Fetches) -> f64 {
        self.groups.get(group as usize).map_or(0.0, |fit| fit.price_us(fetches).0)
    }

    fn saved<'a>(&self, urls: impl Iterator<Item = &'a Url>) -> Vec<Saved> {
        let mut sums = vec![Sums::default(); self.groups.len()];
        for url in urls {
            sums[url.group as usize].add(url, &self.groups[url.group as usize]);
        }
        self.groups.iter().zip(sums).map(|(fit, of)| of.settle(fit)).collect()
    }
}

impl Spread {
    fn add(&mut self, fetches: &Fetches) {
        if fetches.count == 0 {
            return;
        }
        let count = f64::from(fetches.count);
        self.urls += 1.0;
        self.count += count;
        self.counts_squared += count * count;
        self.sum_us += fetches.sum_us;
        self.logs += fetches.logs;
        self.log_squares += fetches.log_squares;
        self.by_url += fetches.logs * fetches.logs / count;
        self.residuals += fetches.residuals();
    }

    fn merge(&mut self, other: &Spread) {
        self.urls += other.urls;
        self.count += other.count;
        self.counts_squared += other.counts_squared;
        self.sum_us += other.sum_us;
        self.logs += other.logs;
        self.log_squares += other.log_squares;
        self.by_url += other.by_url;
        self.residuals += other.residuals;
    }

    // One-way analysis of variance with random effects, of logarithms.

    fn within(&self) -> f64 {
        (self.log_squares - self.by_url).max(0.0)
    }

    fn within_freedom(&self) -> f64 {
        self.count - self.urls
    }

    fn between(&self) -> f64 {
        (self.by_url - self.logs * self.logs / self.count.max(1.0)).max(0.0)
    }

    fn between_freedom(&self) -> f64 {
        (self.urls - 1.0).max(0.0)
    }

    /// How often the variance between URLs is in `between()`.
    fn between_times(&self) -> f64 {
        (self.count - self.counts_squared / self.count.max(1.0)).max(0.0)
    }

    /// Of all fetches, whatever their URL.
    fn variance(&self) -> f64 {
        let mean = self.logs / self.count.max(1.0);
        ((self.log_squares - self.logs * mean) / (self.count - 1.0).max(1.0)).max(0.0)
    }

    fn fit(&self, usual_within: f64, usual_between: f64) -> Fit {
        let freedom = self.within_freedom();
        let within = (self.within() + BELIEVED * usual_within) / (freedom + BELIEVED);
        let excess = (self.between() - self.between_freedom() * within).max(0.0);
        let between = (excess + BELIEVED * usual_between) / (self.between_times() + BELIEVED);
        Fit {
            weight: within / between.max(1e-9),
            within,
            between,
            noise: within.min(MOST_VARIANCE).exp_m1(),
            noise_us: self.residuals / (freedom + BELIEVED),
            spread_between: between.min(MOST_VARIANCE).exp_m1(),
            within_freedom: freedom + BELIEVED,
            between_freedom: self.between_freedom() + BELIEVED,
            is_borrowed: self.count == 0.0,
            ..Fit::default()
        }
    }
}

/// Within URLs and between those of a group, of the whole log.
fn all_variances(spreads: &[Spread], all: &Spread) -> (f64, f64) {
    let believed = BELIEVED * USUAL_VARIANCE;
    let within = (all.within() + believed) / (all.within_freedom() + BELIEVED);
    let sum = |of: fn(&Spread) -> f64| spreads.iter().map(of).sum::<f64>();
    let excess = sum(Spread::between) - sum(Spread::between_freedom) * within;
    (within, (excess.max(0.0) + believed) / (sum(Spread::between_times) + BELIEVED))
}

/// Sums over the URLs of a group, each weighted by how much its own fetches count.
#[derive(Clone, Copy, Debug, Default)]
struct Weights {
    urls: f64,
    sum: f64,
    us: f64,
    squares: f64,
    squares_by_count: f64,
    squares_us: f64,
    squares_us_squared: f64,
}

impl Weights {
    fn add(&mut self, fetches: &Fetches, group_weight: f64) {
        let count = f64::from(fetches.count);
        let weight = count / (count + group_weight);
        let (squared, mean) = (weight * weight, fetches.mean_us());
        self.urls += 1.0;
        self.sum += weight;
        self.us += weight * mean;
        self.squares += squared;
        self.squares_by_count += squared / count;
        self.squares_us += squared * mean;
        self.squares_us_squared += squared * mean * mean;
    }

    fn settle(&self, fit: &mut Fit) {
        fit.is_borrowed = self.urls == 0.0;
        if fit.is_borrowed {
            return;
        }
        let mean = self.us / self.sum;
        // What resampling the URLs gives, and what the variances say of so few.
        let distances =
            self.squares_us_squared - 2.0 * mean * self.squares_us + mean * mean * self.squares;
        let resampled = distances.max(0.0) * self.urls / (self.urls - 1.0).max(1.0);
        let modelled =
            mean * mean * (fit.spread_between * self.squares + fit.noise * self.squares_by_count);
        fit.mean_us = mean;
        fit.mean_variance = resampled.max(modelled) / (self.sum * self.sum);
    }
}

impl Fit {
    /// The price, and which share of it is the URL's own.
    fn price_us(&self, fetches: &Fetches) -> (f64, f64) {
        if fetches.count == 0 {
            return (self.mean_us, 0.0);
        }
        let (count, own) = (f64::from(fetches.count), fetches.mean_us());
        let share = count / (count + self.weight);
        let shrunk = share * own + (1.0 - share) * self.mean_us;
        let apart = (own.max(SHORTEST_US) / self.mean_us.max(SHORTEST_US)).ln();
        let apart = apart * apart / (self.within / count + self.between).max(1e-9);
        let error = ((own * own * self.noise).max(self.noise_us) / count).sqrt();
        let furthest = FURTHEST * error * (EXCEPTION / apart.max(EXCEPTION));
        let price = shrunk.clamp(own - furthest, own + furthest);
        (price, if price == shrunk { share } else { 1.0 })
    }
}

/// Over the URLs of a group.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    saved: Saved,
    /// Squared distances of fetches from the mean of their URL, in squared prices.
    residuals: f64,
    freedom: f64,
    own: f64,
    unfetched: f64,
    on_group: f64,
}

impl Sums {
    fn add(&mut self, url: &Url, fit: &Fit) {
        let (price_us, own_share) = fit.price_us(&url.fetches);
        let (served, count) = (f64::from(url.served), f64::from(url.fetches.count));
        let saved = &mut self.saved;
        saved.served += u64::from(url.served);
        saved.us += served * price_us;
        saved.thin += if url.fetches.count < FEW { u64::from(url.served) } else { 0 };
        self.on_group += served * (1.0 - own_share);
        if url.fetches.count == 0 {
            saved.own_us += served * price_us;
            self.unfetched += served * served;
            return;
        }
        let mean_us = url.fetches.mean_us();
        saved.own_us += served * mean_us;
        self.own += served * served * mean_us.max(price_us) * price_us / count * own_share;
        if url.fetches.count > 1 && price_us > 0.0 {
            self.residuals += url.fetches.residuals() / (price_us * price_us);
            self.freedom += count - 1.0;
        }
    }

    fn settle(self, fit: &Fit) -> Saved {
        let noise = fit.noise.max(self.residuals / self.freedom.max(1.0));
        let of_url = fit.spread_between * self.unfetched * fit.mean_us * fit.mean_us;
        Saved {
            within: noise * self.own,
            within_freedom: fit.within_freedom,
            between: of_url + self.on_group * self.on_group * fit.mean_variance,
            between_freedom: fit.between_freedom,
            is_borrowed: fit.is_borrowed,
            mean_us: fit.mean_us,
            ..self.saved
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group() -> Group {
        Group { name: (*b"/x").into(), location: 0 }
    }

    fn url(served: u32, times_ms: &[u64]) -> Url {
        let mut url = Url { served, ..Url::default() };
        times_ms.iter().for_each(|ms| url.fetches.add(ms * 1000));
        url
    }

    fn saved(urls: &[Url]) -> Saved {
        let none = || std::iter::empty();
        let single = || urls.iter().map(|url| (url.group, &url.fetches));
        Fitted::new(&[group()], single, none).saved(urls.iter())[0]
    }

    #[test]
    fn a_slow_url_among_fast_ones_has_its_own_price() {
        let mut urls = vec![url(10_000, &[1000, 1010, 990])];
        urls.extend((0..2000).map(|_| url(0, &[5])));
        let found = saved(&urls);
        assert!((9.5e9..=1.05e10).contains(&found.us), "{found:?}");
    }

    #[test]
    fn fetches_that_differ_by_chance_alone_are_drawn_together() {
        let times = [20, 400, 35, 90, 700, 15, 60, 250];
        let mut urls: Vec<Url> = (0..8)
            .map(|first| {
                let turned: Vec<u64> = (0..8).map(|each| times[(first + each) % 8]).collect();
                url(0, &turned)
            })
            .collect();
        urls.push(url(100, &[15]));
        let price_ms = saved(&urls).us / 100.0 / 1000.0;
        assert!((60.0..200.0).contains(&price_ms), "{price_ms}: of 15 and 196");
    }

    #[test]
    fn what_was_never_fetched_has_the_mean_of_its_group_or_of_what_there_is() {
        let urls = [url(0, &[100]), url(0, &[300]), url(10, &[])];
        assert!((saved(&urls).us - 2e6).abs() < 1.0);
        let other = Url { group: 1, ..url(10, &[]) };
        let both = [url(0, &[100]), other];
        let single = || both.iter().map(|url| (url.group, &url.fetches));
        let fitted = Fitted::new(&[group(), group()], single, std::iter::empty);
        let found = fitted.saved(both.iter())[1];
        assert!((found.us - 1e6).abs() < 1.0 && found.is_borrowed && found.between > 0.0);
    }

    #[test]
    fn without_any_fetch_nothing_is_certain_and_nothing_breaks() {
        let found = saved(&[url(7, &[])]);
        assert_eq!((found.us, found.served), (0.0, 7));
        assert!(Fitted::default().price_us(3, &Fetches::default()) == 0.0);
        assert!(saved(&[url(7, &[0, 0])]).us == 0.0);
    }
}
