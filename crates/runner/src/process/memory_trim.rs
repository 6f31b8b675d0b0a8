//! Gives freed memory back to the system. glibc keeps it in its heap: a server that had ten thousand clients for an
//! hour would hold their memory for ever.

use std::time::Duration;

/// How often to look.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// Less than this is kept for the next use.
const FREE_BYTES_KEPT: usize = 8 << 20;

/// Gives free memory back whenever there is much of it. Never ends.
pub async fn give_back_memory() {
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        if let Some(free) = system::free_bytes()
            && free > FREE_BYTES_KEPT
        {
            system::trim();
            tracing::debug!(free, "free memory was given back");
        }
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, reason = "the allocator can be asked in C only")]
mod system {
    use std::ffi::c_int;

    /// `struct mallinfo2` of `<malloc.h>`: ten counts.
    #[repr(C)]
    #[derive(Default)]
    struct AllocatorCounts([usize; 10]);

    /// The index of `fordblks`, the free bytes.
    const FREE_BYTES: usize = 8;

    unsafe extern "C" {
        fn mallinfo2() -> AllocatorCounts;
        fn malloc_trim(pad: usize) -> c_int;
    }

    pub(super) fn free_bytes() -> Option<usize> {
        // SAFETY: the function takes nothing, only reads the allocator's own counts, and may be called from any thread.
        let counts = unsafe { mallinfo2() };
        Some(counts.0[FREE_BYTES])
    }

    pub(super) fn trim() {
        // SAFETY: the function touches only memory that is free, under the allocator's own locks.
        unsafe { malloc_trim(0) };
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod system {
    pub(super) fn free_bytes() -> Option<usize> {
        None
    }

    pub(super) fn trim() {}
}
