//! What the model keeps: a list that is counted and weighed from the start each time.

use super::super::AdmissionLimits;
use super::command::ModelRow;

/// How long a runner surely remembers what it has done.
pub(super) const REMEMBERED_MS: i64 = 82_800_000;

/// A row that there is no room for. A quarter is for reads and aborts: large ones go first, then the oldest. Of the
/// others those go first whose time is over, then the oldest of the principal that has most.
pub(super) fn excess(rows: &[ModelRow], limits: &AdmissionLimits, now: i64) -> Option<usize> {
    let (count_max, bytes_max) = (limits.outcomes_max / 4, limits.outcome_bytes_max / 4);
    let all = || rows.iter().enumerate();
    let mut reads = all().filter(|(_, row)| row.may_be_lost);
    if reads.clone().count() > count_max || weight(reads.clone()) > bytes_max {
        let large = reads.clone().find(|(_, row)| row.bytes() > bytes_max / 16);
        return large.or(reads.next()).map(|(at, _)| at);
    }
    let (count_max, bytes_max) = (limits.outcomes_max - count_max, limits.outcome_bytes_max - bytes_max);
    let others = all().filter(|(_, row)| !row.may_be_lost);
    let too_heavy = weight(others.clone()) > bytes_max;
    if others.clone().count() <= count_max && !too_heavy {
        return None;
    }
    if let Some((at, row)) = others.clone().find(|(_, row)| row.done.is_none())
        && now - row.accepted_at >= REMEMBERED_MS
    {
        return Some(at);
    }
    if let Some((at, row)) = others.clone().find(|(_, row)| row.done.is_some())
        && now - row.done.as_ref().unwrap().0 >= limits.key_ttl_ms
    {
        return Some(at);
    }
    let of = |name: &str| {
        let own = others.clone().filter(|(_, row)| *row.principal == *name);
        if too_heavy { weight(own) } else { own.count() }
    };
    let most = if of("q") > of("p") { "q" } else { "p" };
    let mut own = others.filter(|(_, row)| *row.principal == *most);
    own.clone().find(|(_, row)| row.done.is_some()).or(own.next()).map(|(at, _)| at)
}

fn weight<'a>(rows: impl Iterator<Item = (usize, &'a ModelRow)>) -> usize {
    rows.map(|(_, row)| row.bytes()).sum()
}
