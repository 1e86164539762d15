//! `NginxLog`: the log pass of nearcache-nginx for Python. Bytes in, one dict out.
//!
//! The shape of the dict is `NginxResult` in `_core.pyi`. Not here: any figure itself.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nearcache_nginx::{
    ANY_GROUP, ByStatus, CacheValid, Count, Field, Filter, Format, Histogram, KeyParts, KeyText,
    Kind, Lengths, LogPass, Options, PatternError, Reader, Recent, Rules, SPELLING_NAMES,
    STATUS_NAMES, Saved, Subject, Sum, Tally, Top, WHY_NAMES,
};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::interop::python::{NGINX_ERROR, error};

type Dict<'py> = PyResult<Bound<'py, PyDict>>;

/// How many of the heaviest URLs are handed out.
const TOP: usize = 1000;
/// As `NginxResult.says` has them.
const SAID: [(&str, &[Field]); 24] = [
    ("time", &[Field::Msec, Field::TimeLocal, Field::TimeIso8601]),
    ("milliseconds", &[Field::Msec]),
    ("method", &[Field::Method, Field::Request]),
    ("uri", &[Field::Uri, Field::Request]),
    ("host", &[Field::Host]),
    ("scheme", &[Field::Scheme]),
    ("status", &[Field::Status]),
    ("bytes", &[Field::BytesSent]),
    ("request_time", &[Field::RequestTime]),
    ("upstream_time", &[Field::UpstreamTime]),
    ("cache_status", &[Field::CacheStatus]),
    ("upstream_bytes", &[Field::UpstreamBytes]),
    ("key", &[Field::Key]),
    ("cache_control", &[Field::CacheControl]),
    ("accel_expires", &[Field::AccelExpires]),
    ("expires", &[Field::Expires]),
    ("vary", &[Field::Vary]),
    ("set_cookie", &[Field::SetCookie]),
    ("accept_encoding", &[Field::AcceptEncoding]),
    ("content_type", &[Field::ContentType]),
    ("authorization", &[Field::Authorization]),
    ("cookie", &[Field::Cookie]),
    ("upstream_status", &[Field::UpstreamStatus]),
    ("args", &[Field::Args]),
];

#[pyclass(frozen, module = "nearcache._core")]
pub struct NginxLog {
    state: Mutex<State>,
    /// What the caller gave, for the result.
    locations: Vec<(String, String)>,
}

struct State {
    reader: Reader,
    pass: LogPass,
}

#[pymethods]
impl NginxLog {
    #[new]
    #[pyo3(signature = (
        log_format, *, key=None, locations=vec![], groups=vec![], argument=None, path_part=None,
        under="", ttl_s=None, valid_s=None, inactive_s=None, min_uses=1, ignore_headers=vec![],
        max_keys=900_000, max_groups=10_000, utc_offset_s=0, watched=false, key_parts=vec![]
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords")]
    fn new(
        py: Python<'_>,
        log_format: &str,
        key: Option<&str>,
        locations: Vec<(String, String)>,
        groups: Vec<(String, String)>,
        argument: Option<&str>,
        path_part: Option<usize>,
        under: &str,
        ttl_s: Option<f64>,
        valid_s: Option<HashMap<String, f64>>,
        inactive_s: Option<f64>,
        min_uses: u32,
        ignore_headers: Vec<String>,
        max_keys: usize,
        max_groups: usize,
        utc_offset_s: i32,
        watched: bool,
        key_parts: Vec<String>,
    ) -> PyResult<NginxLog> {
        let refused = |message: String| error(py, &NGINX_ERROR, message);
        let lifetimes = valid_s.iter().flat_map(|by_status| by_status.values().copied());
        if lifetimes.chain(ttl_s).chain(inactive_s).any(|seconds| seconds.is_nan() || seconds < 0.0)
        {
            return Err(PyValueError::new_err("a number of seconds is not negative"));
        }
        let format =
            Format::compile(log_format, key).map_err(|error| refused(error.to_string()))?;
        let rules = Rules {
            valid: CacheValid {
                valid_s: valid(ttl_s, valid_s).map_err(refused)?,
                ignored: ignored(&ignore_headers).map_err(refused)?,
            },
            inactive_us: inactive_s.map(|s| (s * 1e6) as i64), // saturates
            min_uses,
        };
        let options = Options {
            locations: kinds(&locations).map_err(|error| refused(error.to_string()))?,
            groups,
            max_groups,
            rules,
            max_keys,
            key_parts: parts_of(&key_parts)?,
            lengths: subject(argument, path_part)?.map(|subject| (subject, under.to_owned())),
            utc_offset_s: i64::from(utc_offset_s),
        };
        let mut pass = LogPass::new(options).map_err(|error| refused(error.to_string()))?;
        pass.recent = watched.then(Recent::default);
        Ok(NginxLog { state: Mutex::new(State { reader: Reader::new(format), pass }), locations })
    }

    fn feed(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        // Only `bytes` cannot change under us while others run.
        if let Ok(bytes) = data.cast::<PyBytes>() {
            let bytes = bytes.as_bytes();
            py.detach(|| self.state_detached().feed(bytes));
        } else {
            let copy = PyBuffer::<u8>::get(data)?.to_vec(py)?;
            py.detach(|| self.state_detached().feed(&copy));
        }
        Ok(())
    }

    #[pyo3(signature = (*, since_us=None, until_us=None, host=None, location=None))]
    fn only(
        &self,
        py: Python<'_>,
        since_us: Option<i64>,
        until_us: Option<i64>,
        host: Option<String>,
        location: Option<u16>,
    ) -> PyResult<()> {
        if location.is_some_and(|location| usize::from(location) >= self.locations.len()) {
            return Err(PyValueError::new_err("location: there are not so many locations"));
        }
        let host = host.map(String::into_bytes);
        let filter = Filter { since_us, until_us, host, location };
        py.detach(|| self.state_detached().pass.filter = filter);
        Ok(())
    }

    fn finish(&self, py: Python<'_>) {
        py.detach(|| self.state_detached().end_line());
    }

    fn take_recent<'py>(&self, py: Python<'py>) -> Dict<'py> {
        let mut state = self.state.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        let Some(recent) = &mut state.pass.recent else {
            return Err(PyValueError::new_err("only of NginxLog(..., watched=True)"));
        };
        let recent = std::mem::take(recent);
        recent_news(py, &state, &recent)
    }

    fn result<'py>(&self, py: Python<'py>) -> Dict<'py> {
        let state = self.state.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        let result = PyDict::new(py);
        about_lines(&state, &result)?;
        about_sums(&state.pass, &self.locations, &result)?;
        about_urls(&state.pass, &result)?;
        Ok(result)
    }
}

impl NginxLog {
    /// Only to be called without the GIL: who holds the state may be waiting for it.
    fn state_detached(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn feed(&mut self, bytes: &[u8]) {
        self.reader.feed(bytes, &mut self.pass);
    }

    fn end_line(&mut self) {
        self.reader.finish(&mut self.pass);
    }
}

pub(crate) fn kinds(locations: &[(String, String)]) -> Result<Vec<(Kind, String)>, PatternError> {
    locations.iter().map(|(kind, pattern)| Ok((Kind::parse(kind)?, pattern.clone()))).collect()
}

/// As [`nearcache_nginx::KeyParts`] has them.
pub(crate) fn parts_of(words: &[String]) -> PyResult<Vec<KeyParts>> {
    let parts = words.iter().map(|text| KeyParts::parse(text));
    parts
        .collect::<Option<_>>()
        .ok_or_else(|| PyValueError::new_err("key_parts: words of scheme, host, method and args"))
}

/// `ttl_s` is for what `*_cache_valid 1h` alone means; the statuses named beside it come first.
fn valid(
    ttl_s: Option<f64>,
    by_status: Option<HashMap<String, f64>>,
) -> Result<Option<ByStatus>, String> {
    if ttl_s.is_none() && by_status.is_none() {
        return Ok(None);
    }
    let mut valid = ByStatus::new();
    for (status, seconds) in by_status.unwrap_or_default() {
        let number = match status.as_str() {
            "any" => None,
            _ => Some(status.parse().map_err(|_| format!("{status:?} is no status of HTTP"))?),
        };
        valid.push((number, seconds as u32));
    }
    valid.extend([200, 301, 302].iter().filter_map(|n| Some((Some(*n), ttl_s? as u32))));
    // "any" is for what is not named.
    valid.sort_by_key(|(status, _)| status.is_none());
    Ok(Some(valid))
}

pub(crate) fn ignored(headers: &[String]) -> Result<u32, String> {
    headers.iter().try_fold(0, |bits, name| {
        let field = match name.to_ascii_lowercase().as_str() {
            "set-cookie" => Field::SetCookie,
            "cache-control" => Field::CacheControl,
            "expires" => Field::Expires,
            "x-accel-expires" => Field::AccelExpires,
            "vary" => Field::Vary,
            // Those that have nothing to do with storing.
            other if other.starts_with("x-accel-") => return Ok(bits),
            _ => return Err(format!("{name:?} is no header that nginx can ignore")),
        };
        Ok(bits | field.bit())
    })
}

pub(crate) fn subject(
    argument: Option<&str>,
    path_part: Option<usize>,
) -> PyResult<Option<Subject>> {
    match (argument, path_part) {
        (Some(_), Some(_)) => Err(PyValueError::new_err("argument or path_part, not both")),
        (_, Some(0)) => Err(PyValueError::new_err("parts of the path count from 1")),
        (Some(name), None) => Ok(Some(Subject::Argument(name.as_bytes().to_vec()))),
        (None, part) => Ok(part.map(Subject::PathPart)),
    }
}

fn about_lines(state: &State, result: &Bound<'_, PyDict>) -> PyResult<()> {
    let State { reader, pass } = state;
    let examples: Vec<_> =
        reader.bad_examples.iter().map(|bad| (bad.number, lossy(&bad.text))).collect();
    result.set_item("lines", reader.lines)?;
    result.set_item("bytes_read", reader.bytes)?;
    result.set_item("bad", reader.bad)?;
    result.set_item("bad_examples", examples)?;
    result.set_item("first_us", pass.first_us)?;
    result.set_item("last_us", pass.last_us)?;
    result.set_item("backwards", pass.backwards)?;
    result.set_item("left_out", pass.left_out)?;
    result.set_item("gave_up", pass.gave_up())?;
    result.set_item("says", said(result.py(), pass.said)?)?;
    result.set_item("fetch_from", fetch_from(pass))?;
    Ok(())
}

/// Of the bits of all fields that were there.
pub(crate) fn said<'py>(py: Python<'py>, bits: u32) -> Dict<'py> {
    let says = PyDict::new(py);
    for (name, fields) in SAID {
        says.set_item(name, fields.iter().any(|field| bits & field.bit() != 0))?;
    }
    Ok(says)
}

fn fetch_from(pass: &LogPass) -> Option<&'static str> {
    let said = |field: Field| pass.said & field.bit() != 0;
    if said(Field::UpstreamTime) {
        return Some("upstream_time");
    }
    said(Field::RequestTime).then_some("request_time")
}

fn about_sums(
    pass: &LogPass,
    given: &[(String, String)],
    result: &Bound<'_, PyDict>,
) -> PyResult<()> {
    let py = result.py();
    let by_location = pass.by_location();
    let mut total = Tally::default();
    by_location.iter().for_each(|of_location| total.merge(of_location));
    result.set_item("total", tally(py, &total)?)?;

    let locations = PyList::empty(py);
    for (number, of_location) in by_location.iter().enumerate() {
        let dict = tally(py, of_location)?;
        dict.set_item("kind", given.get(number).map(|(kind, _)| kind))?;
        dict.set_item("pattern", given.get(number).map(|(_, pattern)| pattern))?;
        locations.append(dict)?;
    }
    result.set_item("locations", locations)?;

    let groups = PyList::empty(py);
    let worth = pass.saved();
    let tallies = pass.ledger().by_group().iter().zip(&worth);
    for (group, (of_group, worth)) in pass.groups().table().iter().zip(tallies) {
        let dict = tally(py, of_group)?;
        dict.set_item("saved", saved(py, worth)?)?;
        dict.set_item("name", lossy(&group.name))?;
        dict.set_item("location", group.location)?;
        groups.append(dict)?;
    }
    result.set_item("groups", groups)?;

    let hours = PyList::empty(py);
    for (hour, served) in pass.ledger().by_hour() {
        let dict = tally(py, &hour.tally)?;
        let served: Vec<(i64, u64)> =
            served.into_iter().map(|(group, requests)| (group_number(group), requests)).collect();
        dict.set_item("start_s", hour.start_s)?;
        dict.set_item("served", served)?;
        hours.append(dict)?;
    }
    result.set_item("hours", hours)
}

/// As `NginxRecent` has it.
fn recent_news<'py>(py: Python<'py>, state: &State, recent: &Recent) -> Dict<'py> {
    let State { reader, pass } = state;
    let news = PyDict::new(py);
    news.set_item("lines", reader.lines)?;
    news.set_item("bad", reader.bad)?;
    news.set_item("says", said(py, pass.said)?)?;
    news.set_item("fetch_from", fetch_from(pass))?;
    news.set_item("key_rate", 1.0 / pass.misses().keys.weight() as f64)?;
    news.set_item("first_us", recent.first_us)?;
    news.set_item("last_us", recent.last_us)?;
    let mut total = Tally::default();
    let groups = PyList::empty(py);
    for (number, tally) in recent.by_group() {
        total.merge(tally);
        groups.append(recent_group(py, pass, number, tally)?)?;
    }
    news.set_item("total", tally(py, &total)?)?;
    news.set_item("groups", groups)?;
    let prices: Vec<_> = pass.saved().iter().map(|of| (of.price_us(), of.is_borrowed)).collect();
    news.set_item("prices_us", prices)?;
    news.set_item("served_took_us", fetches(&recent.served))?;
    news.set_item("missed_took_us", fetches(&recent.missed))?;
    news.set_item("ranked_by", pass.ranked_by.map_or("requests", |by| by.name()))?;
    news.set_item("top", top(py, &recent.top)?)?;
    Ok(news)
}

type Times = Vec<(u64, u64)>;

fn recent_group<'py>(py: Python<'py>, pass: &LogPass, number: usize, recent: &Tally) -> Dict<'py> {
    let group = &pass.groups().table()[number];
    let dict = tally(py, recent)?;
    dict.set_item("number", number)?;
    dict.set_item("name", lossy(&group.name))?;
    dict.set_item("location", group.location)?;
    Ok(dict)
}

fn group_number(group: u32) -> i64 {
    if group == ANY_GROUP { -1 } else { i64::from(group) }
}

fn tally<'py>(py: Python<'py>, tally: &Tally) -> Dict<'py> {
    let dict = count(py, &tally.count())?;
    let statuses = PyDict::new(py);
    for (name, of_status) in STATUS_NAMES.iter().zip(&tally.statuses) {
        if of_status.requests > 0 {
            statuses.set_item(name, count(py, of_status)?)?;
        }
    }
    dict.set_item("statuses", statuses)?;
    dict.set_item("cacheable", tally.cacheable)?;
    dict.set_item("fetch_us", fetches(&tally.fetches))?;
    dict.set_item("why", sums(py, &WHY_NAMES, &tally.why)?)?;
    dict.set_item("lock_waits", sum(py, &tally.lock_waits, "waited_us")?)?;
    Ok(dict)
}

fn saved<'py>(py: Python<'py>, of: &Saved) -> Dict<'py> {
    let dict = PyDict::new(py);
    dict.set_item("served", of.served)?;
    dict.set_item("thin", of.thin)?;
    dict.set_item("is_borrowed", of.is_borrowed)?;
    dict.set_item("us", of.us)?;
    dict.set_item("own_us", of.own_us)?;
    dict.set_item("within", of.within)?;
    dict.set_item("within_freedom", of.within_freedom)?;
    dict.set_item("between", of.between)?;
    dict.set_item("between_freedom", of.between_freedom)?;
    Ok(dict)
}

fn fetches(histogram: &Histogram) -> Times {
    histogram.buckets().iter().map(|bucket| (bucket.mean_us(), bucket.count)).collect()
}

fn count<'py>(py: Python<'py>, count: &Count) -> Dict<'py> {
    let dict = PyDict::new(py);
    dict.set_item("requests", count.requests)?;
    dict.set_item("bytes", count.bytes)?;
    dict.set_item("upstream_us", count.upstream_us)?;
    dict.set_item("request_us", count.request_us)?;
    Ok(dict)
}

/// Those that occur.
fn sums<'py>(py: Python<'py>, names: &[&str], sums: &[Sum]) -> Dict<'py> {
    let dict = PyDict::new(py);
    for (name, of_name) in names.iter().zip(sums).filter(|(_, of_name)| of_name.requests > 0) {
        dict.set_item(name, sum(py, of_name, "upstream_us")?)?;
    }
    Ok(dict)
}

fn sum<'py>(py: Python<'py>, sum: &Sum, unit: &str) -> Dict<'py> {
    let dict = PyDict::new(py);
    dict.set_item("requests", sum.requests)?;
    dict.set_item(unit, sum.us)?;
    Ok(dict)
}

fn about_urls(pass: &LogPass, result: &Bound<'_, PyDict>) -> PyResult<()> {
    let py = result.py();
    result.set_item("ranked_by", pass.ranked_by.map_or("requests", |by| by.name()))?;
    result.set_item("top", top(py, pass.top())?)?;
    result.set_item("spellings", sums(py, &SPELLING_NAMES, &pass.spellings)?)?;
    result.set_item("lengths", pass.lengths().map(|found| lengths(py, found)).transpose()?)?;
    result.set_item("keys", keys(py, pass)?)
}

fn top<'py>(py: Python<'py>, top: &Top) -> PyResult<Bound<'py, PyList>> {
    let (entries, error) = top.heaviest(TOP);
    let list = PyList::empty(py);
    for entry in entries {
        let why = PyDict::new(py);
        for (name, requests) in
            WHY_NAMES.iter().zip(entry.why).filter(|(_, requests)| *requests > 0)
        {
            why.set_item(name, requests)?;
        }
        let dict = PyDict::new(py);
        dict.set_item("url", lossy(&entry.url))?;
        dict.set_item("host", entry.host.as_deref().map(lossy))?;
        dict.set_item("group", entry.group)?;
        dict.set_item("weight", entry.weight)?;
        dict.set_item("error", error)?;
        dict.set_item("requests", entry.requests)?;
        dict.set_item("upstream_us", entry.upstream_us)?;
        dict.set_item("why", why)?;
        list.append(dict)?;
    }
    Ok(list)
}

fn lengths<'py>(py: Python<'py>, found: &Lengths) -> Dict<'py> {
    let by_length: Vec<(usize, u64, u64, u64, u64)> = found
        .by_length
        .iter()
        .enumerate()
        .filter_map(|(length, of_length)| {
            let of = of_length.as_ref()?;
            Some((length, of.requests, of.served, of.upstream_us, of.distinct.estimate()))
        })
        .collect();
    let dict = PyDict::new(py);
    dict.set_item("requests", found.requests())?;
    dict.set_item("absent", found.absent)?;
    dict.set_item("distinct", found.distinct.estimate())?;
    dict.set_item("by_length", by_length)?;
    Ok(dict)
}

fn keys<'py>(py: Python<'py>, pass: &LogPass) -> Dict<'py> {
    let keys = &pass.misses().keys;
    let dict = PyDict::new(py);
    dict.set_item("kept", keys.len())?;
    dict.set_item("distinct", (keys.len() as u64).saturating_mul(keys.weight()))?;
    dict.set_item("rate", 1.0 / keys.weight() as f64)?;
    dict.set_item("text", pass.key_text.unwrap_or(KeyText::Uri).name())?;
    Ok(dict)
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}
