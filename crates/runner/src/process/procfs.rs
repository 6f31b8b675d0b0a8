//! Reads /proc: one process, or everything below one.

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;

/// What is used of `/proc/{pid}/stat`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessStat {
    pub(crate) pid: i32,
    pub(crate) state: u8,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    /// Of processes, as `setsid` makes one.
    pub(crate) session: i32,
    /// User and system time together.
    pub(crate) cpu_ticks: u64,
    pub(crate) start_ticks: u64,
}

impl ProcessStat {
    /// A zombie still has an entry, but nothing of it runs.
    pub(crate) fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }
}

/// Reads the state of one process; none if it does not exist.
pub(crate) fn read_stat(pid: i32) -> Option<ProcessStat> {
    parse_stat(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The same with the reason why nothing is known.
pub(crate) fn look_at(pid: i32) -> Result<ProcessStat, ErrorKind> {
    let bytes = fs::read(format!("/proc/{pid}/stat")).map_err(|error| match error.raw_os_error() {
        // What a process that ends in the middle of it says.
        Some(number) if number == rustix::io::Errno::SRCH.raw_os_error() => ErrorKind::NotFound,
        _ => error.kind(),
    })?;
    parse_stat(&bytes).ok_or(ErrorKind::InvalidData)
}

/// Resident pages from `/proc/{pid}/statm`.
pub(crate) fn read_resident_pages(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// All process ids of this namespace.
pub(crate) fn all_pids() -> impl Iterator<Item = i32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
}

/// Everything whose chain of parents reaches `ancestor`, as seen in one pass over /proc.
///
/// `/proc/{pid}/task/{tid}/children` would be cheaper, but not every kernel has it.
pub(crate) fn descendants(ancestor: i32) -> Vec<ProcessStat> {
    let mut by_parent: HashMap<i32, Vec<ProcessStat>> = HashMap::new();
    for stat in all_pids().filter_map(read_stat) {
        by_parent.entry(stat.parent).or_default().push(stat);
    }
    let mut found = by_parent.remove(&ancestor).unwrap_or_default();
    let mut next = 0;
    while let Some(process) = found.get(next) {
        if let Some(children) = by_parent.remove(&process.pid) {
            found.extend(children);
        }
        next += 1;
    }
    found
}

/// The name in the second field may hold anything, even `)` and blanks, so the last `)` counts.
fn parse_stat(bytes: &[u8]) -> Option<ProcessStat> {
    let name_end = memchr::memrchr(b')', bytes)?;
    // The name need not be UTF-8; what stands around it is.
    let pid = std::str::from_utf8(bytes.split(|byte| *byte == b' ').next()?).ok()?;
    let rest = std::str::from_utf8(&bytes[name_end + 1..]).ok()?;
    // Field 3 of proc(5) is the first after the name.
    let fields: Vec<&str> = rest.split_ascii_whitespace().take(20).collect();
    let field = |number: usize| fields.get(number - 3).copied();
    Some(ProcessStat {
        pid: pid.parse().ok()?,
        state: *field(3)?.as_bytes().first()?,
        parent: field(4)?.parse().ok()?,
        group: field(5)?.parse().ok()?,
        session: field(6)?.parse().ok()?,
        cpu_ticks: field(14)?.parse::<u64>().ok()? + field(15)?.parse::<u64>().ok()?,
        start_ticks: field(22)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAIL: &str = " S 7 42 42 0 -1 4194304 9 0 0 0 30 12 0 0 20 0 1 0 987654 3 4 5\n";

    #[test]
    fn names_cannot_confuse_the_parser() {
        for name in ["sh", "a b", "x) S 1 1 (y", "(((", ")"] {
            let stat = parse_stat(format!("42 ({name}){TAIL}").as_bytes());
            let expected = ProcessStat {
                pid: 42,
                state: b'S',
                parent: 7,
                group: 42,
                session: 42,
                cpu_ticks: 42,
                start_ticks: 987_654,
            };
            assert_eq!(stat, Some(expected), "{name}");
        }
        let mut not_utf8 = b"42 (\xff\xfe)".to_vec();
        not_utf8.extend_from_slice(TAIL.as_bytes());
        assert_eq!(parse_stat(&not_utf8).map(|stat| stat.parent), Some(7));
        for broken in ["", "42", "42 (sh", "42 (sh) S", "x (sh) S 1 2 3"] {
            assert_eq!(parse_stat(broken.as_bytes()), None, "{broken}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_is_below_its_parent() {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let parent = read_stat(own).unwrap().parent;
        assert!(descendants(parent).iter().any(|process| process.pid == own));
        assert_eq!(look_at(own).unwrap().parent, parent);
        assert_eq!(look_at(i32::MAX), Err(ErrorKind::NotFound));
    }
}
