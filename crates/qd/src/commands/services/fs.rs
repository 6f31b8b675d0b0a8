//! `qd fs`.
//!
//! Listing, `cat`, `get` and `put` go page by page or piece by piece, so files may be larger than one answer. A
//! download appears under its name only when it is whole.

use std::io::{IsTerminal, Read, Write};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use qd_wire::service::{
    Encoding, FsDoneData, FsListData, FsReadData, FsSearchData, FsStatData, FsTreeData, FsTreeNode,
    FsUploadData, FsWriteData,
};
use serde_json::json;
use tokio::signal::ctrl_c;

use super::client::ServiceClient;
use crate::arguments::{FsArguments, FsCommand};
use crate::clock;
use crate::error::{CliError, Result};
use crate::output::{Output, harmless};
use crate::settings::Settings;

/// One write takes no more; `qd fs put` takes any size.
const WRITE_BYTES_MAX: u64 = 32 << 20;
/// Bytes of one piece of an upload.
const PIECE_BYTES: usize = 512 << 10;

/// Does what the arguments say.
pub(crate) async fn run(settings: &Settings, output: &Output, arguments: FsArguments) -> Result<()> {
    let client = ServiceClient::open(settings, output, &arguments.target).await?;
    match arguments.command {
        FsCommand::Ls { path, all } => list(&client, output, &path, all).await,
        FsCommand::Tree { path, depth, all } => {
            let tree: FsTreeData =
                client.call("fs.tree", json!({"path": path, "depth": depth, "include_hidden": all})).await?;
            output.show(&tree, tree_text)
        }
        FsCommand::Cat { path } => cat(&client, output, &path).await,
        FsCommand::Write { path, parents, expect } => write(&client, output, &path, parents, expect).await,
        FsCommand::Stat { path } => {
            let stat: FsStatData = client.call("fs.stat", json!({"path": path, "hash": true})).await?;
            output.show(&stat, stat_text)
        }
        FsCommand::Search { query, path, regex, glob, limit } => {
            let parameters =
                json!({"query": query, "path": path, "regex": regex, "globs": glob, "limit": limit});
            let found: FsSearchData = client.call("fs.search", parameters).await?;
            output.show(&found, search_text)
        }
        FsCommand::Mkdir { path, parents } => {
            let parameters = json!({"path": path, "create_parents": parents});
            done(&client, output, "fs.create_directory", parameters, "made").await
        }
        FsCommand::Mv { from, to, force } => {
            let parameters = json!({"from": from, "to": to, "overwrite": force});
            done(&client, output, "fs.move", parameters, "moved").await
        }
        FsCommand::Cp { from, to, force } => {
            let parameters = json!({"from": from, "to": to, "overwrite": force});
            done(&client, output, "fs.copy", parameters, "copied").await
        }
        FsCommand::Rm { path, recursive } => {
            done(&client, output, "fs.delete", json!({"path": path, "recursive": recursive}), "deleted").await
        }
        FsCommand::Get { path, to } => get(&client, output, &path, to.as_deref()).await,
        FsCommand::Put { from, to } => put(&client, output, &from, to).await,
        FsCommand::Watch { path } => watch(client, output, &path).await,
    }
}

async fn list(client: &ServiceClient, output: &Output, path: &str, all: bool) -> Result<()> {
    // Printed page by page, because a directory can be larger than one answer.
    let mut offset = Some(0);
    while let Some(from) = offset {
        let parameters = json!({"path": path, "include_hidden": all, "offset": from, "limit": 5000});
        let page: FsListData = client.call("fs.list", parameters).await?;
        offset = page.next_offset;
        output.show(&page, |page| {
            let line = |entry: &qd_wire::service::FsEntry| {
                let size = entry.size_bytes.map_or_else(String::new, |size| size.to_string());
                let slash = if entry.is_dir { "/" } else { "" };
                format!("{size:>12}  {}{slash}\n", harmless(&entry.name))
            };
            page.entries.iter().map(line).collect()
        })?;
    }
    Ok(())
}

fn tree_text(tree: &FsTreeData) -> String {
    fn push(text: &mut String, nodes: &[FsTreeNode], depth: usize) {
        for node in nodes {
            let slash = if node.kind == "directory" { "/" } else { "" };
            text.push_str(&format!("{}{}{slash}\n", "  ".repeat(depth), harmless(&node.name)));
            push(text, node.children.as_deref().unwrap_or_default(), depth + 1);
        }
    }
    let mut text = String::new();
    push(&mut text, &tree.entries, 0);
    if tree.truncated {
        let why = tree.stop_reason.as_deref().unwrap_or("there is more");
        text.push_str(&format!("… not all of it ({why})\n"));
    }
    text
}

/// Pages until the end, as bytes.
async fn pages(
    client: &ServiceClient,
    path: &str,
    mut take: impl FnMut(&[u8], &FsReadData) -> Result<()>,
) -> Result<()> {
    let mut offset = Some(0);
    while let Some(from) = offset {
        let parameters = json!({"path": path, "offset": from, "encoding": Encoding::Base64});
        let page: FsReadData = client.call("fs.read", parameters).await?;
        let bytes = STANDARD.decode(&page.content);
        let bytes = bytes.map_err(|error| CliError::failed(format!("the answer cannot be read: {error}")))?;
        take(&bytes, &page)?;
        offset = page.next_offset;
    }
    Ok(())
}

async fn cat(client: &ServiceClient, output: &Output, path: &str) -> Result<()> {
    if output.json {
        let page: FsReadData = client.call("fs.read", json!({"path": path})).await?;
        return output.json_line(&page);
    }
    let is_terminal = std::io::stdout().is_terminal();
    pages(client, path, |bytes, _| {
        let mut out = std::io::stdout().lock();
        if is_terminal {
            // What a file holds must not play with a person's terminal.
            out.write_all(harmless(&String::from_utf8_lossy(bytes)).as_bytes())?;
        } else {
            out.write_all(bytes)?;
        }
        Ok(out.flush()?)
    })
    .await
}

async fn write(
    client: &ServiceClient,
    output: &Output,
    path: &str,
    parents: bool,
    expect: Option<String>,
) -> Result<()> {
    let mut content = Vec::new();
    std::io::stdin().lock().take(WRITE_BYTES_MAX + 1).read_to_end(&mut content)?;
    if content.len() as u64 > WRITE_BYTES_MAX {
        return Err(CliError::usage(format!("stdin is longer than {WRITE_BYTES_MAX} bytes"))
            .hint("`qd fs put` sends files of any size"));
    }
    // Text stays text: somebody may have to read it before they say yes.
    let (content, encoding) = match String::from_utf8(content) {
        Ok(text) => (text, Encoding::Text),
        Err(error) => (STANDARD.encode(error.as_bytes()), Encoding::Base64),
    };
    let parameters = json!({
        "path": path, "content": content, "encoding": encoding,
        "create_parents": parents, "expected_hash": expect,
    });
    let written: FsWriteData = client.call("fs.write", parameters).await?;
    output.show(&written, |FsWriteData { path, bytes_written, hash, .. }| {
        format!("wrote {} ({bytes_written} bytes, sha256 {hash})\n", harmless(path))
    })
}

fn stat_text(stat: &FsStatData) -> String {
    if !stat.exists {
        return format!("{}: not there\n", harmless(&stat.path));
    }
    let kind = match (stat.is_dir, stat.is_symlink) {
        (_, true) => "link",
        (true, _) => "directory",
        _ => "file",
    };
    let hash = stat.hash.as_deref().map_or_else(String::new, |hash| format!("\nsha256  {hash}"));
    let (path, size, mode) = (harmless(&stat.path), stat.size, stat.mode & 0o7777);
    format!("{path}\nkind    {kind}\nsize    {size}\nmode    {mode:o}{hash}\n")
}

fn search_text(found: &FsSearchData) -> String {
    let line = |hit: &qd_wire::service::FsMatch| {
        format!("{}:{}:{}: {}\n", harmless(&hit.path), hit.line, hit.column, harmless(&hit.text))
    };
    let mut text: String = found.matches.iter().map(line).collect();
    if found.truncated {
        text.push_str("… there is more; raise the limit with -n\n");
    }
    if text.is_empty() {
        text.push_str("nothing found\n");
    }
    text
}

async fn done(
    client: &ServiceClient,
    output: &Output,
    cmd: &str,
    parameters: serde_json::Value,
    word: &str,
) -> Result<()> {
    let done: FsDoneData = client.call(cmd, parameters).await?;
    output.show(&done, |done| {
        let name = done.path.as_deref().or(done.to.as_deref()).unwrap_or_default();
        format!("{word} {}\n", harmless(name))
    })
}

async fn get(client: &ServiceClient, output: &Output, path: &str, to: Option<&Path>) -> Result<()> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let to = to.map_or_else(|| Path::new(name).to_owned(), Path::to_owned);
    // The file appears when it is whole.
    let part = PartialFile::create(&to)?;
    let mut file = part.file()?;
    let mut progress = TransferProgress::new(output);
    pages(client, path, |bytes, page| {
        file.write_all(bytes)?;
        // The size comes with each page, so the percentage stays right while the file grows.
        progress.at(page.offset + bytes.len() as u64, page.size);
        Ok(())
    })
    .await?;
    progress.end();
    part.finish(&to)?;
    output.out(&format!("wrote {}\n", harmless(&to.display().to_string())))
}

/// A file on its way; removed unless it is finished.
struct PartialFile(std::path::PathBuf);

impl PartialFile {
    fn create(to: &Path) -> Result<PartialFile> {
        let mut name = to.as_os_str().to_owned();
        name.push(".qd-part");
        let part = PartialFile(name.into());
        part.file()?;
        Ok(part)
    }

    fn file(&self) -> Result<std::fs::File> {
        std::fs::File::create(&self.0).map_err(|error| CliError::cannot("write", &self.0, &error))
    }

    fn finish(self, to: &Path) -> Result<()> {
        std::fs::rename(&self.0, to).map_err(|error| CliError::cannot("write", to, &error))
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        // After a finish it is not there any more, which is as it should be.
        let _ = std::fs::remove_file(&self.0);
    }
}

async fn put(client: &ServiceClient, output: &Output, from: &Path, to: Option<String>) -> Result<()> {
    let mut file = std::fs::File::open(from).map_err(|error| CliError::cannot("read", from, &error))?;
    let size = file.metadata()?.len();
    let name = from.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    let to = to.or(name).ok_or_else(|| CliError::usage("give the path on the other machine"))?;
    let upload_id = clock::random_hex(16)?;
    let mut progress = TransferProgress::new(output);
    let mut sent = 0;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let count = fill(&mut file, &mut piece)?;
        // A file that shrinks while it is sent ends early; without the second condition the loop would never end.
        let last = sent + count as u64 >= size || count < PIECE_BYTES;
        let parameters = json!({
            "upload_id": upload_id, "path": to, "offset": sent, "data": STANDARD.encode(&piece[..count]), "last": last,
        });
        let answer: FsUploadData = client.call("fs.upload", parameters).await?;
        sent += count as u64;
        progress.at(sent, size);
        if let Some(written) = answer.written {
            progress.end();
            return output.show(&written, |written| {
                format!("wrote {} ({} bytes)\n", harmless(&written.path), written.bytes_written)
            });
        }
    }
}

/// Reads until the piece is full or the file ends.
fn fill(file: &mut std::fs::File, piece: &mut [u8]) -> std::io::Result<usize> {
    let mut count = 0;
    while count < piece.len() {
        match file.read(&mut piece[count..])? {
            0 => break,
            read => count += read,
        }
    }
    Ok(count)
}

/// How far a transfer is, on one line of a terminal.
struct TransferProgress<'a> {
    output: &'a Output,
    is_shown: bool,
    last_percent: u64,
}

impl<'a> TransferProgress<'a> {
    fn new(output: &'a Output) -> Self {
        let is_shown = std::io::stderr().is_terminal() && !output.json;
        TransferProgress { output, is_shown, last_percent: u64::MAX }
    }

    fn at(&mut self, done: u64, size: u64) {
        let percent = (done.min(size) * 100).checked_div(size).unwrap_or(100);
        if self.is_shown && percent != self.last_percent {
            self.last_percent = percent;
            self.output.note(&format!("\r{percent:>3} % of {size} bytes"));
        }
    }

    /// A percentage that was shown left the cursor on its line.
    fn end(&self) {
        if self.is_shown && self.last_percent != u64::MAX {
            self.output.note("\n");
        }
    }
}

async fn watch(mut client: ServiceClient, output: &Output, path: &str) -> Result<()> {
    client.send("watch", "fs.watch", json!({"path": path})).await?;
    loop {
        let value = tokio::select! {
            value = client.next_frame() => value?,
            interrupted = ctrl_c() => return Ok(interrupted?),
        };
        match value["event"].as_str() {
            Some("progress") if output.json => output.json_line(&value["data"])?,
            Some("progress") => {
                let changes = value["data"]["changes"].as_array();
                for change in changes.into_iter().flatten() {
                    let word = |name: &str| harmless(change[name].as_str().unwrap_or_default());
                    output.out(&format!("{:<9} {}\n", word("change"), word("path")))?;
                }
                if value["data"]["overflow"] == true {
                    output.note("too many changes to list; look again\n");
                }
            }
            Some("response") if value["id"] == "watch" => {
                let error = value["error"].as_str().unwrap_or("the watch ended");
                return Err(CliError::failed(error));
            }
            _ => {}
        }
    }
}
