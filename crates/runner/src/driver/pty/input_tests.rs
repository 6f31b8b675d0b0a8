use super::*;

/// Takes three bytes at a time, and fails in this way when so many have been taken.
fn write_until(taken_max: usize, kind: io::ErrorKind) -> AgentResult<usize> {
    let mut taken = 0;
    let rest = write_now(b"0123456789", |rest| {
        if taken >= taken_max {
            return Err(kind.into());
        }
        let count = rest.len().min(3);
        taken += count;
        Ok(count)
    });
    rest.map(<[u8]>::len)
}

#[test]
fn what_was_written_in_part_is_lost_and_not_refused() {
    let failure = write_until(0, io::ErrorKind::BrokenPipe).unwrap_err();
    assert!(!failure.lost, "nothing was written: it may be sent again");
    let failure = write_until(6, io::ErrorKind::BrokenPipe).unwrap_err();
    assert!(failure.lost && failure.error.contains("6 of 10 bytes"), "{failure:?}");
    assert_eq!(write_until(6, io::ErrorKind::WouldBlock).unwrap(), 4);
    assert_eq!(write_until(10, io::ErrorKind::BrokenPipe).unwrap(), 0);
}
