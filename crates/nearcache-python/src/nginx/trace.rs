//! `NginxTrace`: a log kept for replays, and nginx's cache as a model. Bytes in, dicts out.
//!
//! The shapes of the dicts are `NginxTraceFacts`, `NginxWhatIf` and `NginxOutcome` in
//! `_core.pyi`. Not here: any figure itself.

use std::sync::{Mutex, MutexGuard, PoisonError};

use nearcache_nginx::whatif::{
    Answered, KeyRules, Lifetime, Outcome, PlaceRules, Rekeyed, Rules, Trace, TraceOptions,
    ZoneRules, replay,
};
use nearcache_nginx::{CacheValid, Filter, Format, Locations, Reader, STATUS_NAMES, Subject};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBytes, PyDict};

use crate::interop::python::{NGINX_ERROR, error};
use crate::nginx::log::{ignored, kinds, parts_of, said, subject};

type Dict<'py> = PyResult<Bound<'py, PyDict>>;
/// (status, or None for "any"; seconds)
type Valid = Vec<(Option<u16>, u32)>;

#[pyclass(frozen, module = "nearcache._core")]
pub struct NginxTrace {
    state: Mutex<State>,
}

struct State {
    reader: Reader,
    trace: Trace,
    /// Of the rules that were replayed last: a row of forecasts often has the same.
    rekeyed: Option<(KeyRules, Option<Subject>, Rekeyed)>,
}

#[pymethods]
impl NginxTrace {
    #[new]
    #[pyo3(signature = (
        log_format, *, key=None, locations=vec![], valid=vec![], sample_by="",
        max_keys=1_000_000, max_requests=8_000_000, key_parts=vec![]
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords")]
    fn new(
        py: Python<'_>,
        log_format: &str,
        key: Option<&str>,
        locations: Vec<(String, String)>,
        valid: Vec<(Option<Valid>, Vec<String>)>,
        sample_by: &str,
        max_keys: usize,
        max_requests: usize,
        key_parts: Vec<String>,
    ) -> PyResult<NginxTrace> {
        let refused = |message: String| error(py, &NGINX_ERROR, message);
        let format =
            Format::compile(log_format, key).map_err(|error| refused(error.to_string()))?;
        if valid.len() != locations.len() + 1 {
            return Err(PyValueError::new_err("valid: one for each location, and one more"));
        }
        let mut of_places = Vec::new();
        for (valid_s, headers) in valid {
            of_places.push(CacheValid { valid_s, ignored: ignored(&headers).map_err(refused)? });
        }
        let mut together = KeyRules::default();
        for rules in sample_by.split(';') {
            together.and(&KeyRules::parse(rules).map_err(|error| refused(error.to_string()))?);
        }
        let places = kinds(&locations)
            .and_then(|kinds| Locations::new(&kinds))
            .map_err(|error| refused(error.to_string()))?;
        let trace = Trace::new(TraceOptions {
            places,
            valid: of_places,
            sample_by: together,
            max_keys,
            max_requests,
            key_parts: parts_of(&key_parts)?,
        });
        let reader = Reader::new(format);
        Ok(NginxTrace { state: Mutex::new(State { reader, trace, rekeyed: None }) })
    }

    #[pyo3(signature = (*, since_us=None, until_us=None, host=None, location=None))]
    fn only(
        &self,
        py: Python<'_>,
        since_us: Option<i64>,
        until_us: Option<i64>,
        host: Option<String>,
        location: Option<u16>,
    ) {
        let host = host.map(|host| host.to_ascii_lowercase().into_bytes());
        let filter = Filter { since_us, until_us, host, location };
        py.detach(|| self.state_detached().trace.filter = filter);
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

    fn finish(&self, py: Python<'_>) {
        py.detach(|| {
            let state = &mut *self.state_detached();
            state.reader.finish(&mut state.trace);
            state.trace.finish();
            state.rekeyed = None;
        });
    }

    fn facts<'py>(&self, py: Python<'py>) -> Dict<'py> {
        let state = self.state.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        facts(py, &state)
    }

    fn replay<'py>(&self, py: Python<'py>, rules: &Bound<'py, PyDict>) -> Dict<'py> {
        let rules = rules_of(rules)?;
        let outcome = py.detach(|| self.state_detached().replay(&rules));
        outcome_dict(py, &outcome)
    }
}

impl NginxTrace {
    /// Only to be called without the GIL: who holds the state may be waiting for it.
    fn state_detached(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn feed(&mut self, bytes: &[u8]) {
        self.reader.feed(bytes, &mut self.trace);
    }

    fn replay(&mut self, rules: &Rules) -> Outcome {
        let subject = rules.max_length.as_ref().map(|(subject, _)| subject.clone());
        let (key, of, rekeyed) = match self.rekeyed.take() {
            Some(kept) if kept.0 == rules.key && kept.1 == subject => kept,
            _ => {
                let rekeyed = Rekeyed::new(&self.trace, &rules.key, subject.as_ref());
                (rules.key.clone(), subject, rekeyed)
            }
        };
        let outcome = replay(&self.trace, rules, &rekeyed);
        self.rekeyed = Some((key, of, rekeyed));
        outcome
    }
}

// -- rules, out of a dict that `nearcache.nginx.whatif.rules` makes

fn rules_of(dict: &Bound<'_, PyDict>) -> PyResult<Rules> {
    let py = dict.py();
    let zones: Vec<Bound<'_, PyDict>> = get(dict, "zones")?;
    let places: Vec<Bound<'_, PyDict>> = get(dict, "places")?;
    let zones: Vec<_> = zones.iter().map(zone).collect::<PyResult<_>>()?;
    let places: Vec<_> = places.iter().map(place).collect::<PyResult<_>>()?;
    if places.is_empty() {
        return Err(PyValueError::new_err("places: there must be one"));
    }
    if places.iter().any(|place| place.zone.is_some_and(|zone| usize::from(zone) >= zones.len())) {
        return Err(PyValueError::new_err("zone: there are not so many"));
    }
    let key: String = get(dict, "key")?;
    let argument: Option<String> = get(dict, "argument")?;
    let part: Option<usize> = get(dict, "path_part")?;
    let most: Option<usize> = get(dict, "max_length")?;
    Ok(Rules {
        zones,
        places,
        ttl_s: get(dict, "ttl_s")?,
        key: KeyRules::parse(&key).map_err(|bad| error(py, &NGINX_ERROR, bad.to_string()))?,
        max_length: subject(argument.as_deref(), part)?.zip(most),
        assume_stored: get(dict, "assume_stored")?,
        unsaid_s: get(dict, "unsaid_ttl_s")?,
        trust_evidence: get(dict, "trust_evidence")?,
        settled_us: get(dict, "settled_us")?,
        later_us: get(dict, "later_us")?,
    })
}

fn zone(dict: &Bound<'_, PyDict>) -> PyResult<ZoneRules> {
    Ok(ZoneRules {
        inactive_s: get(dict, "inactive_s")?,
        max_blocks: get(dict, "max_blocks")?,
        max_nodes: get(dict, "max_nodes")?,
        block_bytes: get(dict, "block_bytes")?,
    })
}

fn place(dict: &Bound<'_, PyDict>) -> PyResult<PlaceRules> {
    Ok(PlaceRules {
        zone: get(dict, "zone")?,
        min_uses: get(dict, "min_uses")?,
        lock: get(dict, "lock")?,
        lock_timeout_us: get(dict, "lock_timeout_us")?,
        lock_age_us: get(dict, "lock_age_us")?,
        stale_updating: get(dict, "stale_updating")?,
        background: get(dict, "background")?,
        bypass_stores: get(dict, "bypass_stores")?,
    })
}

fn get<'py, Value: FromPyObjectOwned<'py>>(
    dict: &Bound<'py, PyDict>,
    name: &str,
) -> PyResult<Value> {
    let value = dict.get_item(name)?.ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
    value.extract().map_err(Into::into)
}

// -- what was found

fn facts<'py>(py: Python<'py>, state: &State) -> Dict<'py> {
    let State { reader, trace, .. } = state;
    let dict = PyDict::new(py);
    let examples: Vec<_> = reader
        .bad_examples
        .iter()
        .map(|bad| (bad.number, String::from_utf8_lossy(&bad.text).into_owned()))
        .collect();
    dict.set_item("lines", reader.lines)?;
    dict.set_item("bad", reader.bad)?;
    dict.set_item("bad_examples", examples)?;
    dict.set_item("says", said(py, trace.said)?)?;
    dict.set_item("requests", trace.seen)?;
    dict.set_item("logged", named(py, &trace.seen_by)?)?;
    dict.set_item("uncached", trace.uncached)?;
    dict.set_item("unusable", trace.unusable)?;
    dict.set_item("left_out", trace.left_out)?;
    dict.set_item("kept_requests", trace.requests.len())?;
    dict.set_item("kept_keys", trace.keys.len())?;
    dict.set_item("rate", trace.rate())?;
    dict.set_item("first_us", trace.requests.first().map(|asked| asked.start_us))?;
    dict.set_item("last_us", trace.requests.last().map(|asked| asked.start_us))?;
    dict.set_item("usual_ttl_s", trace.usual_life)?;
    dict.set_item("learned_ttl", trace.lifetime.map(|found| lifetime(py, found)).transpose()?)?;
    let never = trace.keys.facts.iter().filter(|fact| fact.is_never_stored()).count();
    dict.set_item("never_stored_keys", never)?;
    let refetches: Vec<_> = trace
        .refetches
        .iter()
        .filter(|of| of.count > 0)
        .map(|of| (of.sum_us as f64 / of.count as f64 / 1e6, of.count, of.changed))
        .collect();
    dict.set_item("refetches", refetches)?;
    let parts = trace.hosts.parts.iter();
    let hosts: Vec<_> = parts
        .map(|(part, of)| (String::from_utf8_lossy(part).into_owned(), of.shared, of.apart))
        .collect();
    dict.set_item("hosts", hosts)?;
    Ok(dict)
}

fn lifetime(py: Python<'_>, found: Lifetime) -> Dict<'_> {
    let dict = PyDict::new(py);
    dict.set_item("ttl_s", found.seconds)?;
    dict.set_item("least_s", found.least_s)?;
    dict.set_item("most_s", found.most_s)?;
    dict.set_item("fresh", found.fresh)?;
    dict.set_item("expired", found.expired)?;
    dict.set_item("contradicting", found.contradicting)?;
    Ok(dict)
}

fn outcome_dict<'py>(py: Python<'py>, outcome: &Outcome) -> Dict<'py> {
    let dict = PyDict::new(py);
    dict.set_item("all", answered(py, &outcome.all)?)?;
    dict.set_item("settled", answered(py, &outcome.settled)?)?;
    dict.set_item("uncached", outcome.uncached)?;
    dict.set_item("fetches", outcome.fetches)?;
    dict.set_item("upstream_us", outcome.upstream_us)?;
    dict.set_item("saved_us", outcome.saved_us)?;
    dict.set_item("lock_waits", outcome.lock_waits)?;
    dict.set_item("lock_wait_us", outcome.lock_wait_us)?;
    dict.set_item("oldest_us", outcome.oldest_us)?;
    dict.set_item("outdated", outcome.outdated)?;
    dict.set_item("peak_bytes", outcome.peak_bytes)?;
    dict.set_item("end_bytes", outcome.end_bytes)?;
    dict.set_item("peak_nodes", outcome.peak_nodes)?;
    dict.set_item("removed_inactive", outcome.inactive)?;
    dict.set_item("removed_for_room", outcome.evicted)?;
    dict.set_item("keys", outcome.keys)?;
    dict.set_item("merged", outcome.merged)?;
    dict.set_item("one_hit", outcome.one_hit)?;
    dict.set_item("residuals", outcome.residuals)?;
    let ages: Vec<_> = outcome
        .ages
        .iter()
        .filter(|age| age.count > 0)
        .map(|age| (age.sum_us as f64 / age.count as f64 / 1e6, age.count))
        .collect();
    dict.set_item("ages", ages)?;
    Ok(dict)
}

fn answered<'py>(py: Python<'py>, answered: &Answered) -> Dict<'py> {
    let requests = answered.by.map(|answers| answers.requests);
    let bytes = answered.by.map(|answers| answers.bytes);
    let logged = PyDict::new(py);
    for (name, row) in STATUS_NAMES.iter().zip(&answered.logged) {
        if row.iter().any(|count| *count > 0) {
            logged.set_item(name, named(py, row)?)?;
        }
    }
    let dict = PyDict::new(py);
    dict.set_item("requests", named(py, &requests)?)?;
    dict.set_item("bytes", named(py, &bytes)?)?;
    dict.set_item("logged", logged)?;
    dict.set_item("logged_bytes", named(py, &answered.logged_bytes)?)?;
    Ok(dict)
}

/// Those that occur.
fn named<'py>(py: Python<'py>, counts: &[u64]) -> Dict<'py> {
    let dict = PyDict::new(py);
    for (name, count) in STATUS_NAMES.iter().zip(counts).filter(|(_, count)| **count > 0) {
        dict.set_item(name, count)?;
    }
    Ok(dict)
}
