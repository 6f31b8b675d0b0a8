//! File systems of the kernel, which hold no files: processes with their memory and environment, devices, settings of
//! the machine. No service opens anything on them, however it is reached: as the root, below it, or mounted into it.

use std::os::fd::AsFd;
use std::path::Path;

use qd_wire::{CodedError, ErrorCode};
use rustix::fs::{Mode, OFlags};

use super::own_data::identity;
use super::{ServiceError, ServiceResult, failure};

/// Why nothing there is opened.
const REFUSED: &str = "path is in proc, sys, dev or another file system of the kernel, which services do not open; \
                       use a directory of ordinary files";

/// What `statfs` says of the file systems that are refused; from `linux/magic.h` and the kernel's own sources.
#[cfg(target_os = "linux")]
const REFUSED_TYPES: [u64; 31] = [
    0x9fa0,      // proc
    0x9fa2,      // usbdevfs
    0x6265_6572, // sysfs
    0x1cd1,      // devpts
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0xcafe_4a11, // bpf
    0x6265_6570, // configfs
    0xde5e_81e4, // efivarfs
    0x4249_4e4d, // binfmt_misc
    0x6e73_6673, // nsfs
    0x5049_4446, // pidfs
    0x1980_0202, // mqueue
    0xf97c_ff8c, // selinuxfs
    0x4341_5d53, // smackfs
    0x5a3c_69f0, // apparmorfs
    0x6165_676c, // pstore
    0x0765_5821, // resctrl
    0x6573_5543, // fusectl
    0x6759_6969, // rpc_pipefs
    0x6e66_7364, // nfsd
    0xabba_1974, // xenfs
    0x6c6f_6f70, // binderfs
    0x0904_1934, // anonymous inodes
    0x534f_434b, // sockets
    0x5049_5045, // pipes
    0x6462_6466, // bdev
    0x454d_444d, // devmem
];

/// An error if an open file or directory is not on an ordinary file system.
pub(crate) fn check(opened: impl AsFd) -> ServiceResult<()> {
    if is_refused(opened)? { Err(ServiceError::coded(ErrorCode::PermissionDenied, REFUSED)) } else { Ok(()) }
}

/// The same for what was opened in a directory that passed. Another file system begins only where the device changes,
/// so most things cost no look at their file system, which may be far away.
pub(super) fn check_in(opened: impl AsFd, device_above: u64) -> ServiceResult<()> {
    if device(&opened)? == device_above { Ok(()) } else { check(opened) }
}

/// The device that something open is on.
pub(super) fn device(opened: impl AsFd) -> ServiceResult<u64> {
    Ok(identity(&rustix::fs::fstat(opened).map_err(failure)?).0)
}

/// The same for a directory by its path, in which a session is to work.
pub(crate) fn check_directory(path: &Path) -> Result<(), CodedError> {
    // For its name only, so that also one we may not read is looked at.
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | NAME_ONLY;
    let opened = rustix::fs::openat(rustix::fs::CWD, path, flags, Mode::empty());
    Ok(check(opened.map_err(failure)?)?)
}

#[cfg(target_os = "linux")]
const NAME_ONLY: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const NAME_ONLY: OFlags = OFlags::RDONLY;

#[cfg(target_os = "linux")]
fn is_refused(opened: impl AsFd) -> ServiceResult<bool> {
    /// Of ordinary files in memory, and of /dev.
    const TMPFS: u64 = 0x0102_1994;
    #[allow(clippy::cast_sign_loss, clippy::unnecessary_cast, reason = "the types differ between systems")]
    let kind = rustix::fs::fstatfs(&opened).map_err(failure)?.f_type as u64 & 0xffff_ffff;
    if REFUSED_TYPES.contains(&kind) {
        return Ok(true);
    }
    Ok(kind == TMPFS && Some(device(opened)?) == device_of_dev())
}

/// The device of `/dev`; none where it is a directory of the machine's root.
#[cfg(target_os = "linux")]
fn device_of_dev() -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    use std::sync::OnceLock;
    static DEVICE: OnceLock<Option<u64>> = OnceLock::new();
    *DEVICE.get_or_init(|| {
        let device_of = |path: &str| std::fs::metadata(path).ok().map(|found| found.dev());
        device_of("/dev").filter(|device| device_of("/") != Some(*device))
    })
}

/// Elsewhere there is no proc, and what is no regular file is not opened anyway.
#[cfg(not(target_os = "linux"))]
fn is_refused(_opened: impl AsFd) -> ServiceResult<bool> {
    Ok(false)
}

#[cfg(all(test, target_os = "linux"))]
#[path = "kernel_files_tests.rs"]
mod tests;
