//! Rate limits: exact sliding windows of one minute, each of one principal.
//!
//! A window keeps one pair per millisecond in which something happened, so it is bounded by the minute and not by
//! the limit; windows in which a minute long nothing happened are forgotten.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use qd_wire::pi_server::Bucket;

/// The length of every window.
const WINDOW_MS: i64 = 60_000;

/// Commands per minute; 0 is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimits {
    /// One principal's commands of one bucket and session.
    pub per_minute: u32,
    /// All commands of one principal.
    pub global_per_minute: u32,
    /// One principal's answers to the dialogs of one session.
    pub ui_per_minute: u32,
}

impl Default for RateLimits {
    fn default() -> Self {
        RateLimits { per_minute: 100, global_per_minute: 1000, ui_per_minute: 60 }
    }
}

/// The limit that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExceededRate {
    Bucket { limit: u32 },
    Global { limit: u32 },
    UiResponse { limit: u32 },
}

impl std::fmt::Display for ExceededRate {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ExceededRate::Bucket { limit } => write!(out, "Rate limit exceeded ({limit} commands/minute)"),
            ExceededRate::Global { limit } => {
                write!(out, "Global rate limit exceeded ({limit} commands/minute)")
            }
            ExceededRate::UiResponse { limit } => {
                write!(out, "Extension UI response rate limit exceeded ({limit} responses/minute)")
            }
        }
    }
}

/// The windows of all principals.
#[derive(Debug)]
pub struct RateWindows {
    limits: RateLimits,
    principals: HashMap<Arc<str>, PrincipalWindows>,
    /// The highest time seen: a clock set back must not make windows longer.
    now: i64,
    sweep_at: i64,
}

impl RateWindows {
    pub fn new(limits: RateLimits) -> Self {
        RateWindows { limits, principals: HashMap::new(), now: i64::MIN, sweep_at: i64::MIN }
    }

    /// Whether one more command is within the limits. With `charge` it then counts; without, nothing changes
    /// (for a command that is refused for another reason).
    pub fn admit(
        &mut self,
        now: i64,
        principal: &Arc<str>,
        bucket: Bucket,
        session: Option<&str>,
        charge: bool,
    ) -> Result<(), ExceededRate> {
        self.now = self.now.max(now);
        let now = self.now;
        if now >= self.sweep_at {
            self.sweep();
        }
        let limit = self.limit(bucket);
        let global_limit = self.limits.global_per_minute;
        if limit == 0 && global_limit == 0 {
            return Ok(());
        }
        if !self.principals.contains_key(principal) {
            self.principals.insert(principal.clone(), PrincipalWindows::default());
        }
        let Some(windows) = self.principals.get_mut(principal) else { return Ok(()) };
        if limit != 0 && windows.bucket(bucket, session).is_some_and(|window| window.count(now) >= limit) {
            return Err(match bucket {
                Bucket::UiResponse => ExceededRate::UiResponse { limit },
                Bucket::Server | Bucket::Control | Bucket::Session => ExceededRate::Bucket { limit },
            });
        }
        if global_limit != 0 && windows.all.count(now) >= global_limit {
            return Err(ExceededRate::Global { limit: global_limit });
        }
        if charge {
            if limit != 0 {
                // The lookup that needs no memory of its own comes first: sessions are seldom new.
                match windows.bucket(bucket, session) {
                    Some(window) => window.add(now),
                    None => windows.bucket_or_new(bucket, session).add(now),
                }
            }
            if global_limit != 0 {
                windows.all.add(now);
            }
        }
        Ok(())
    }

    /// A principal's commands of the last minute; 0 where there is no limit to count for.
    pub fn global_count(&self, principal: &str, now: i64) -> u64 {
        let now = self.now.max(now);
        self.principals.get(principal).map_or(0, |windows| windows.all.count_at(now))
    }

    fn limit(&self, bucket: Bucket) -> u32 {
        match bucket {
            Bucket::UiResponse => self.limits.ui_per_minute,
            Bucket::Server | Bucket::Control | Bucket::Session => self.limits.per_minute,
        }
    }

    /// Once a minute: what is left was used within the last one, so this costs each command a constant.
    fn sweep(&mut self) {
        let now = self.now;
        self.sweep_at = now.saturating_add(WINDOW_MS);
        self.principals.retain(|_, windows| {
            windows.sessions.retain(|_, buckets| buckets.iter_mut().any(|window| window.count(now) > 0));
            windows.all.count(now) > 0 || !windows.sessions.is_empty()
        });
    }
}

#[derive(Debug, Default)]
struct PrincipalWindows {
    all: RateWindow,
    /// By session; the empty name is for commands that name none.
    sessions: HashMap<Box<str>, [RateWindow; 4]>,
}

impl PrincipalWindows {
    fn bucket(&mut self, bucket: Bucket, session: Option<&str>) -> Option<&mut RateWindow> {
        self.sessions.get_mut(session.unwrap_or_default()).map(|windows| &mut windows[index(bucket)])
    }

    fn bucket_or_new(&mut self, bucket: Bucket, session: Option<&str>) -> &mut RateWindow {
        &mut self.sessions.entry(session.unwrap_or_default().into()).or_default()[index(bucket)]
    }
}

const fn index(bucket: Bucket) -> usize {
    match bucket {
        Bucket::Server => 0,
        Bucket::Control => 1,
        Bucket::Session => 2,
        Bucket::UiResponse => 3,
    }
}

/// What happened within the last minute: times in order, with how often.
#[derive(Debug, Default)]
struct RateWindow {
    times: VecDeque<(i64, u32)>,
    count: u32,
}

impl RateWindow {
    fn count(&mut self, now: i64) -> u32 {
        while let Some(&(time, times)) = self.times.front() {
            if time > now - WINDOW_MS {
                break;
            }
            self.count -= times;
            self.times.pop_front();
        }
        self.count
    }

    fn count_at(&self, now: i64) -> u64 {
        let gone = self.times.iter().take_while(|(time, _)| *time <= now - WINDOW_MS);
        u64::from(self.count) - gone.map(|(_, times)| u64::from(*times)).sum::<u64>()
    }

    fn add(&mut self, now: i64) {
        self.count += 1;
        match self.times.back_mut() {
            Some((time, times)) if *time == now => *times += 1,
            _ => self.times.push_back((now, 1)),
        }
    }
}

#[cfg(test)]
#[path = "rate_tests.rs"]
mod tests;
