//! Locks with names, for users: one table a file, apart from the values, so that
//! no amount of values evicts a lock.
//!
//! ```text
//! slot  owner | name low | name high | deadline_ms | token      owner 0 = free
//! ```
//!
//! A lock is free when its owner's process is gone, or its time is over, or it
//! was released. The table is changed under one mutex. The owner's word is stored last
//! when a lock is taken and first when it is let go, so a crash in between
//! leaves the lock free.
//!
//! Only slots below a mark in the header are ever used. The mark is raised before a slot beyond it
//! is taken, and lowered after the last slot is let go. So a crash in between leaves the mark too
//! high, which costs a look at a free slot.
//!
//! Deadlines count on a clock that nobody can set (`clock::boot_ms`), and a holder counts its own
//! time on the same clock. A token is the microseconds of the wall clock, or the last token and one
//! if that is more, so that tokens grow also when the file is made anew.
//!
//! A waiter has a place in the lock's queue (`lock_queue.rs`), and nobody takes a
//! lock past a waiter who was there before.
//!
//! *Claims* of single flight have slots of the same table: names of their own, no queue, and
//! the claimer's number in place of a token.

use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Duration;

use crate::base::clock::epoch_us;
use crate::format::layout::{NAMED_LOCK_TABLE, NAMED_LOCK_WORDS, NAMED_LOCKS, header};
use crate::locks::lock_queue::{LockQueue, Waiting};
use crate::locks::name::Name;
use crate::memory::Mem;
use crate::sync::process::Liveness;

const OWNER: usize = 0;
const NAME: usize = 1; // and 2
const DEADLINE: usize = 3;
const TOKEN: usize = 4;

/// A waiter looks at least this often whether the holder, or a waiter before it, is gone:
/// nobody sends a wake-up for that.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often a waiter without a place asks: nobody sends it a wake-up at all.
const POLL_EVERY: Duration = Duration::from_millis(10);

/// Tokens are whole numbers also in languages that have floats alone (until the year 2255).
const TOKENS_END: u64 = 1 << 53;

/// In the token of a claim, and of no lock.
const CLAIM: u64 = 1 << 63;
/// No more claims than that: room is left for locks.
const MAX_CLAIMS: usize = NAMED_LOCKS * 3 / 4;

/// All 1,024 locks are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableFull;

/// What came of asking for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// The lock is taken, under this fencing token.
    Taken(u64),
    /// Somebody else has it, or is to have it first.
    Wait(Waiting),
}

/// The table of named locks; every method wants its mutex held.
pub(crate) struct NamedLocks<'a, M: Mem> {
    pub mem: &'a M,
    /// Who asks.
    pub me: u64,
    /// Since the boot.
    pub now_ms: u64,
    pub liveness: Liveness,
}

impl<M: Mem> NamedLocks<'_, M> {
    /// Takes a lock: its fencing token, `Ok(None)` if somebody else has it or waits for it.
    pub fn acquire(&self, name: &[u8], ttl_ms: u64) -> Result<Option<u64>, TableFull> {
        let name = Name::of(name);
        if self.queue().first(name).is_some() {
            return Ok(None);
        }
        Ok(self.take(name, ttl_ms)?.ok())
    }

    /// Takes a lock whose turn it is for the waiter with this ticket (0: a new one); else
    /// keeps its place in the queue for `keep_ms`.
    pub fn ask(
        &self,
        name: &[u8],
        ticket: u64,
        ttl_ms: u64,
        keep_ms: u64,
    ) -> Result<Turn, TableFull> {
        let (name, queue) = (Name::of(name), self.queue());
        let mine = queue.find(name, ticket);
        // First: whoever asks again is at its old place, however late it is.
        if let Some(place) = mine {
            queue.keep(place, keep_ms);
        }
        let mut pause = LOOK_EVERY;
        if queue.first(name) == mine {
            match self.take(name, ttl_ms) {
                Ok(Err(left_ms)) => pause = pause.min(Duration::from_millis(left_ms.max(1))),
                taken => {
                    // The lock first: in between, a crash leaves both to a dead process.
                    if let Some(place) = mine {
                        queue.free(place);
                    }
                    return taken.map(|token| Turn::Taken(token.unwrap_or_default()));
                }
            }
        }
        let place = mine.or_else(|| queue.join(name, keep_ms));
        Ok(Turn::Wait(match place {
            Some(place) => queue.waiting(place, pause),
            None => Waiting::without_place(POLL_EVERY),
        }))
    }

    /// Gives a place up; whom to wake, as the next may be first now.
    pub fn leave(&self, name: &[u8], ticket: u64) -> Option<usize> {
        let (name, queue) = (Name::of(name), self.queue());
        queue.free(queue.find(name, ticket)?);
        queue.call_first(name)
    }

    /// Moves the deadline of a lock that is still held with this token.
    pub fn renew(&self, name: &[u8], token: u64, ttl_ms: u64) -> bool {
        self.prolong(Name::of(name), token, ttl_ms)
    }

    /// Lets go of a lock that is still held with this token: `None` if it was not; else
    /// whom to wake.
    pub fn release(&self, name: &[u8], token: u64) -> Option<Option<usize>> {
        self.free(self.find(Name::of(name), token)?);
        Some(self.queue().call_first(Name::of(name)))
    }

    /// Claims a name for this owner, or prolongs its claim; false if another one has it.
    pub fn claim(&self, name: &[u8], owner: u64, ttl_ms: u64) -> Result<bool, TableFull> {
        let (name, token) = (Name::of_claim(name), owner | CLAIM);
        if self.prolong(name, token, ttl_ms) {
            return Ok(true);
        }
        if self.used() >= MAX_CLAIMS && self.claims() >= MAX_CLAIMS {
            return Err(TableFull);
        }
        let at = match self.room_for(name)? {
            Ok(at) => at,
            Err(_left_ms) => return Ok(false),
        };
        self.fill(at, name, token, ttl_ms);
        Ok(true)
    }

    /// Gives a claim up, if this owner still has it.
    pub fn unclaim(&self, name: &[u8], owner: u64) {
        if let Some(at) = self.find(Name::of_claim(name), owner | CLAIM) {
            self.free(at);
        }
    }

    /// How many locks are held, claims aside.
    pub fn held(&self) -> u64 {
        self.slots().filter(|at| self.is_held(*at) && !self.is_claim(*at)).count() as u64
    }

    /// Adds a line for every broken invariant.
    pub fn check(&self, faults: &mut Vec<String>) {
        let held: Vec<_> = self.slots().filter(|at| self.is_held(*at)).collect();
        for (number, at) in held.iter().enumerate() {
            if held[..number].iter().any(|other| self.name_of(*other) == self.name_of(*at)) {
                faults.push(format!("named locks: the lock at word {at} is held twice"));
            }
        }
        if all_slots().skip(self.used()).any(|at| self.load(at + OWNER) != 0) {
            faults.push("named locks: one is held beyond the mark".to_owned());
        }
        self.queue().check(faults);
    }

    pub fn queue(&self) -> LockQueue<'_, M> {
        LockQueue { mem: self.mem, me: self.me, now_ms: self.now_ms, liveness: &self.liveness }
    }

    /// Takes a lock that nobody else has: its token; or the milliseconds that are left to
    /// whoever has it.
    fn take(&self, name: Name, ttl_ms: u64) -> Result<Result<u64, u64>, TableFull> {
        let at = match self.room_for(name)? {
            Ok(at) => at,
            Err(left_ms) => return Ok(Err(left_ms)),
        };
        let token = next_token(self.load(header::TOKEN), epoch_us());
        self.store(header::TOKEN, token);
        self.fill(at, name, token, ttl_ms);
        Ok(Ok(token))
    }

    /// A free slot for a name that nobody else has; or the milliseconds that are left to
    /// whoever has it.
    fn room_for(&self, name: Name) -> Result<Result<usize, u64>, TableFull> {
        for at in self.slots() {
            if self.load(at + OWNER) == 0 {
                continue;
            }
            let left_ms = self.load(at + DEADLINE).saturating_sub(self.now_ms);
            if left_ms != 0 && self.name_of(at) != name {
                continue;
            }
            if left_ms != 0 && self.is_held(at) {
                return Ok(Err(left_ms));
            }
            // Over, or of a dead holder, whose process id may be given to another one later.
            self.store(at + OWNER, 0);
        }
        self.free_slot().ok_or(TableFull).map(Ok)
    }

    fn fill(&self, at: usize, name: Name, token: u64, ttl_ms: u64) {
        self.store(at + OWNER, 0);
        self.store(at + NAME, name.0[0]);
        self.store(at + NAME + 1, name.0[1]);
        self.store(at + DEADLINE, self.now_ms.saturating_add(ttl_ms));
        self.store(at + TOKEN, token);
        self.store(at + OWNER, self.me);
    }

    fn prolong(&self, name: Name, token: u64, ttl_ms: u64) -> bool {
        let found = self.find(name, token);
        if let Some(at) = found {
            self.store(at + DEADLINE, self.now_ms.saturating_add(ttl_ms));
        }
        found.is_some()
    }

    /// A slot that nobody has, below the mark if there is one.
    fn free_slot(&self) -> Option<usize> {
        if let Some(at) = self.slots().find(|at| self.load(at + OWNER) == 0) {
            return Some(at);
        }
        let used = self.used();
        if used < NAMED_LOCKS {
            self.store(header::LOCKS_USED, used as u64 + 1);
            return Some(slot(used));
        }
        self.slots().find(|at| !self.is_held(*at))
    }

    fn free(&self, at: usize) {
        self.store(at + OWNER, 0);
        let used = self.used();
        let last = (0..used).rev().find(|number| self.load(slot(*number) + OWNER) != 0);
        let needed = last.map_or(0, |last| last + 1);
        if needed < used {
            self.store(header::LOCKS_USED, needed as u64);
        }
    }

    fn find(&self, name: Name, token: u64) -> Option<usize> {
        self.slots().find(|at| {
            self.load(at + TOKEN) == token
                && self.name_of(*at) == name
                && self.load(at + OWNER) != 0
                && self.load(at + DEADLINE) > self.now_ms
        })
    }

    fn is_held(&self, at: usize) -> bool {
        let owner = self.load(at + OWNER);
        owner != 0 && self.load(at + DEADLINE) > self.now_ms && self.liveness.is_alive(owner)
    }

    fn is_claim(&self, at: usize) -> bool {
        self.load(at + TOKEN) & CLAIM != 0
    }

    fn claims(&self) -> usize {
        self.slots().filter(|at| self.is_claim(*at) && self.is_held(*at)).count()
    }

    fn name_of(&self, at: usize) -> Name {
        Name([self.load(at + NAME), self.load(at + NAME + 1)])
    }

    /// How many slots are below the mark.
    fn used(&self) -> usize {
        self.load(header::LOCKS_USED).min(NAMED_LOCKS as u64) as usize
    }

    fn slots(&self) -> impl Iterator<Item = usize> {
        all_slots().take(self.used())
    }

    fn load(&self, at: usize) -> u64 {
        self.mem.load(at, Relaxed)
    }

    fn store(&self, at: usize, value: u64) {
        self.mem.store(at, value, Release);
    }
}

/// A token above the last one, and above all tokens of a file that was there before: those are of
/// earlier microseconds. A last token that no clock can have given is of a damaged file.
fn next_token(last: u64, epoch_us: u64) -> u64 {
    match last {
        0..TOKENS_END => epoch_us.max(last + 1),
        _ => epoch_us,
    }
}

fn slot(number: usize) -> usize {
    NAMED_LOCK_TABLE + number * NAMED_LOCK_WORDS
}

fn all_slots() -> impl Iterator<Item = usize> {
    (0..NAMED_LOCKS).map(slot)
}

#[cfg(test)]
mod tests {
    use super::{TOKENS_END, next_token};

    #[test]
    fn a_token_is_above_the_last_one_and_not_below_the_clock() {
        let now = 1_700_000_000_000_000;
        assert_eq!(next_token(0, now), now);
        assert_eq!(next_token(now, now), now + 1);
        assert_eq!(next_token(now + 3_600_000_000, now), now + 3_600_000_001, "set back");
        assert_eq!(next_token(u64::MAX, now), now, "damaged");
        assert_eq!(next_token(TOKENS_END - 1, now), TOKENS_END);
    }
}
