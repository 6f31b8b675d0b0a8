//! Reads session files: once each, as long as they stay as they are.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use qd_core::harness::pi::{PiFileSummary, PiHeader, session_header};
use qd_link::mutex::Mutex;
use qd_wire::data::StoredSession;
use rustix::fs::OFlags;

use super::find::FoundSessionFile;

/// Bytes of a line that are kept; the beginning of a longer one says enough.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Bytes in which a header must be found; pi's is one of a few hundred.
pub(super) const HEADER_BYTES_MAX: u64 = 64 << 10;

/// Bytes read of one file. Nobody has such a file on purpose; what comes after is not counted.
const FILE_BYTES_MAX: u64 = 2 << 30;

/// Files remembered; when there are more, all are read again.
const CACHE_MAX: usize = 40_000;

static CACHE: Mutex<Option<HashMap<PathBuf, CachedSummary>>> = Mutex::new(None);

/// What a file said when it was this long and this old; nothing if it was no session.
struct CachedSummary {
    bytes: u64,
    modified: i128,
    session: Option<StoredSession>,
}

/// What the file says, if it is a session's.
pub(super) fn summary(found: &FoundSessionFile) -> Option<StoredSession> {
    if let Some(cached) = CACHE.lock().get_or_insert_with(HashMap::new).get(&found.path)
        && cached.bytes == found.bytes
        && cached.modified == found.modified
    {
        return cached.session.clone();
    }
    let session = match open(&found.path).and_then(read) {
        Ok(read) => read.map(|(header, summary)| stored(found, header, summary)),
        Err(error) => {
            // Not remembered: it may be readable next time.
            tracing::debug!(path = %found.path.display(), %error, "a session file cannot be read");
            return None;
        }
    };
    let mut cache = CACHE.lock();
    let files = cache.get_or_insert_with(HashMap::new);
    if files.len() >= CACHE_MAX {
        files.clear();
    }
    let entry = CachedSummary { bytes: found.bytes, modified: found.modified, session: session.clone() };
    files.insert(found.path.clone(), entry);
    session
}

/// The first line, without its end; none if it is too long or there is none.
pub(super) fn first_line(file: impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    BufReader::new(file).take(HEADER_BYTES_MAX).read_until(b'\n', &mut line)?;
    let is_whole = line.pop_if(|byte| *byte == b'\n').is_some() || (line.len() as u64) < HEADER_BYTES_MAX;
    Ok((is_whole && !line.is_empty()).then_some(line))
}

fn stored(found: &FoundSessionFile, header: PiHeader, summary: PiFileSummary) -> StoredSession {
    let message_count = summary.message_count();
    StoredSession {
        session_id: header.id,
        path: found.path.to_string_lossy().into_owned(),
        cwd: header.cwd,
        title: summary.title,
        created_at: header.created_at,
        modified_at: found.modified_ms(),
        message_count,
        provider: summary.provider,
        model: summary.model,
        thinking_level: summary.thinking_level,
        exists: true,
        loaded: false,
    }
}

/// Neither follows a link nor waits for the other end of a pipe.
fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path)
}

fn read(file: File) -> io::Result<Option<(PiHeader, PiFileSummary)>> {
    let mut lines = BoundedLines {
        reader: BufReader::with_capacity(256 << 10, file.take(FILE_BYTES_MAX)),
        line: Vec::new(),
    };
    if !lines.next()?.is_some_and(|is_whole| is_whole) {
        return Ok(None);
    }
    let Some(header) = session_header(&lines.line) else { return Ok(None) };
    let mut summary = PiFileSummary::default();
    while let Some(is_whole) = lines.next()? {
        summary.line(&lines.line, is_whole);
    }
    Ok(Some((header, summary)))
}

/// Lines of any length in bounded memory.
struct BoundedLines<R> {
    reader: BufReader<R>,
    /// The last line, or its beginning.
    line: Vec<u8>,
}

impl<R: Read> BoundedLines<R> {
    /// Whether the line is there as a whole; none at the end.
    fn next(&mut self) -> io::Result<Option<bool>> {
        self.line.clear();
        let (mut is_whole, mut is_any) = (true, false);
        loop {
            let buffer = match self.reader.fill_buf() {
                Ok(buffer) => buffer,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if buffer.is_empty() {
                return Ok(is_any.then_some(is_whole));
            }
            is_any = true;
            let end = memchr::memchr(b'\n', buffer);
            let part = buffer.get(..end.unwrap_or(buffer.len())).unwrap_or_default();
            let room = LINE_BYTES_MAX.saturating_sub(self.line.len());
            is_whole &= part.len() <= room;
            self.line.extend_from_slice(part.get(..room.min(part.len())).unwrap_or_default());
            let taken = end.map_or(buffer.len(), |end| end + 1);
            self.reader.consume(taken);
            if end.is_some() {
                return Ok(Some(is_whole));
            }
        }
    }
}
