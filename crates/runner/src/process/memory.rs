//! Memory back to the system. glibc keeps what was freed between things that live on; a server that had ten thousand
//! clients for an hour would hold their memory for ever.

use std::time::Duration;

/// How often to look.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Less than this is kept for the next use.
const FREE_BYTES_KEPT: usize = 8 << 20;

/// Looks now and then, and gives free memory back when there is much of it. Never ends.
pub async fn give_back_memory() {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if let Some(free) = glibc::free_bytes()
            && free > FREE_BYTES_KEPT
        {
            glibc::trim();
            tracing::debug!(free, "free memory was given back");
        }
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, reason = "the allocator of the C library can be asked in C only")]
mod glibc {
    /// `struct mallinfo2` of `<malloc.h>`: ten counts.
    #[repr(C)]
    #[derive(Default)]
    struct Counts([usize; 10]);

    /// Where `fordblks`, the free bytes, stands.
    const FREE: usize = 8;

    unsafe extern "C" {
        fn mallinfo2() -> Counts;
        fn malloc_trim(pad: usize) -> std::ffi::c_int;
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
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod glibc {
    pub(super) fn free_bytes() -> Option<usize> {
        None
    }

    pub(super) fn trim() {}
}
