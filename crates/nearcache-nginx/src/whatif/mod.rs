//! What would nginx's cache have done under other rules? A log replayed through a model.
//!
//! ```text
//!  Record ──> Trace ──────────────────> replay(rules) ──> Outcome
//!            (trace.rs: 32 bytes       (model.rs: what a request meets, by rules.rs
//!             a request, keys once)     store.rs: nodes, LRU, the manager)
//!               └── Rekeyed (rekey.rs, key_rules.rs: keys that rules make one)
//! ```
//!
//! Not here: comparing a forecast with the log, and whether to believe it (Python's
//! `nearcache.nginx.whatif.forecast`).

mod asked;
mod fact;
mod hosts;
mod key_rules;
mod lifetime;
mod model;
mod outcome;
mod rekey;
mod rules;
mod store;
mod trace;

pub use fact::Refetches;
pub use hosts::Sharing;
pub use key_rules::{KeyRules, RuleError};
pub use lifetime::Lifetime;
pub use model::replay;
pub use outcome::{Age, Answered, Answers, Outcome};
pub use rekey::Rekeyed;
pub use rules::{PlaceRules, Rules};
pub use store::ZoneRules;
pub use trace::{Trace, TraceOptions};
