//! Memory back to the system. glibc keeps what was freed between things that live on; a server that had ten thousand
//! clients for an hour would hold their memory for ever. And the kernel maps much more of our code than is run: each page
//! that is needed once brings its neighbours, and none ever goes.

use std::time::Duration;

/// How often to look.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Less than this is kept for the next use.
const FREE_BYTES_KEPT: usize = 8 << 20;
/// Whoever worked for less than this since the last look is quiet.
const QUIET: Duration = Duration::from_millis(20);
/// And whoever worked for less than this since its code was unmapped has hardly mapped any again.
const WORK_MIN: Duration = Duration::from_millis(5);

/// Looks now and then: gives free memory back when there is much of it, and unmaps our code while nothing happens. The
/// kernel has it in its cache, and maps what is needed next in some microseconds. Never ends.
pub async fn give_back_memory() {
    let mut looked_at = worked();
    let mut unmapped_at = Duration::ZERO;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let now = worked();
        if now - looked_at < QUIET && now - unmapped_at > WORK_MIN {
            system::unmap_code();
            unmapped_at = now;
        }
        looked_at = now;
        if let Some(free) = system::free_bytes()
            && free > FREE_BYTES_KEPT
        {
            system::trim();
            tracing::debug!(free, "free memory was given back");
        }
    }
}

/// How long our threads have run.
fn worked() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, reason = "the C library and the kernel can be asked in C only")]
mod system {
    use std::ffi::{c_int, c_void};

    /// `struct mallinfo2` of `<malloc.h>`: ten counts.
    #[repr(C)]
    #[derive(Default)]
    struct Counts([usize; 10]);

    /// Where `fordblks`, the free bytes, stands.
    const FREE: usize = 8;
    /// `MADV_DONTNEED`.
    const NOT_NEEDED: c_int = 4;

    unsafe extern "C" {
        fn mallinfo2() -> Counts;
        fn malloc_trim(pad: usize) -> c_int;
        fn madvise(address: *mut c_void, length: usize, advice: c_int) -> c_int;
    }

    pub(super) fn free_bytes() -> Option<usize> {
        // SAFETY: the function takes nothing, only reads the allocator's own counts, and may be called from any thread.
        let counts = unsafe { mallinfo2() };
        Some(counts.0[FREE])
    }

    pub(super) fn trim() {
        // SAFETY: the function touches only memory that is free, under the allocator's own locks.
        unsafe { malloc_trim(0) };
    }

    /// Unmaps the code of this program.
    pub(super) fn unmap_code() {
        let Some((start, length)) = super::code() else { return };
        // SAFETY: the range is a mapping of our own file that may be read and run but not written, so nothing in it
        // differs from the file: whatever is needed again is mapped again from there, also while this runs.
        if unsafe { madvise(start as *mut c_void, length, NOT_NEEDED) } != 0 {
            tracing::debug!(error = %std::io::Error::last_os_error(), "the code stays mapped");
        }
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod system {
    pub(super) fn free_bytes() -> Option<usize> {
        None
    }

    pub(super) fn trim() {}

    pub(super) fn unmap_code() {}
}

/// Where this function's own mapping lies, if it is one that only this file's code is in.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn code() -> Option<(usize, usize)> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    code_in(&maps, code as *const () as usize)
}

/// The mapping that holds this address: readable, to be run, private, never writable.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn code_in(maps: &str, address: usize) -> Option<(usize, usize)> {
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
        let is_code = rest.starts_with("r-xp ") && rest.contains(" /");
        (is_code && (start..end).contains(&address)).then_some((start, end - start))
    })
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_run_and_never_written_is_unmapped() {
        let maps = "1000-2000 r--p 00000000 08:01 1   /bin/qd\n2000-5000 r-xp 00001000 08:01 1   /bin/qd\n\
                    5000-6000 rw-p 00004000 08:01 1   /bin/qd\n6000-7000 r-xp 00000000 00:00 0   [vdso]\n\
                    7000-8000 rwxp 00000000 08:01 1   /bin/qd\nnonsense\n";
        assert_eq!(code_in(maps, 0x2000), Some((0x2000, 0x3000)));
        assert_eq!(code_in(maps, 0x4fff), Some((0x2000, 0x3000)));
        for address in [0x1000, 0x5000, 0x6000, 0x7000, 0x9000] {
            assert_eq!(code_in(maps, address), None, "{address:#x}");
        }
    }

    /// The code that unmaps itself is run on.
    #[test]
    fn what_was_unmapped_is_run_again() {
        let (start, length) = code().expect("a test is a program with code");
        assert!(length > 4096 && start % 4096 == 0);
        system::unmap_code();
        assert_eq!(code(), Some((start, length)));
    }
}
