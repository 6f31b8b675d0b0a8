//! Tells the linker to keep one copy of functions that are the same: much of the program is in memory while it runs.
//! Puts the browser app (web/dist, made by `make web`) into the program, packed.
#![allow(clippy::print_stdout, reason = "cargo reads what it prints")]

use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use miniz_oxide::deflate::compress_to_vec;

/// The best there is; it is done once.
const LEVEL: u8 = 9;
/// Packing has to save at least this part of a file, or it is kept as it is: images are packed already.
const SAVING: usize = 16;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let is_linux = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux");
    // Only LLVM's linker can; it is the one Rust brings along on this platform.
    let is_lld = std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|machine| machine == "x86_64");
    if is_release && is_linux && is_lld {
        println!("cargo:rustc-link-arg-bins=-Wl,--icf=all");
    }
    embed_app()
}

/// Writes the table of the app's files, which `src/app.rs` has.
fn embed_app() -> Result<(), Box<dyn Error>> {
    let app = Path::new(&std::env::var("CARGO_MANIFEST_DIR")?).join("../../web/dist");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    // What is not there counts as changed each time. So it is made, empty as long as the app is not built.
    fs::create_dir_all(&app)?;
    println!("cargo:rerun-if-changed={}", app.display());
    let mut table = String::from("&[\n");
    // A directory without its first page is an app that is just being built, or none.
    if app.join("index.html").is_file() {
        let mut files = Vec::new();
        list(&app, &mut files)?;
        files.sort();
        for (number, file) in files.iter().enumerate() {
            let name = file.strip_prefix(&app)?.to_str().ok_or("a name in web/dist is not UTF-8")?;
            let kept = out.join(format!("app-{number}"));
            add(&mut table, &format!("/{}", name.replace('\\', "/")), file, &kept)?;
        }
    }
    table.push_str("]\n");
    fs::write(out.join("app.rs"), table)?;
    Ok(())
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

fn add(table: &mut String, name: &str, file: &Path, kept: &Path) -> Result<(), Box<dyn Error>> {
    let bytes = fs::read(file).map_err(|error| {
        format!("{} cannot be read: {error}; if the app is just being built, build again", file.display())
    })?;
    let packed = gzip(&bytes);
    let is_packed = packed.len() + bytes.len() / SAVING < bytes.len();
    fs::write(kept, if is_packed { &packed } else { &bytes })?;
    writeln!(
        table,
        "    AppFile {{ path: {name:?}, mime: {:?}, tag: {:?}, length: {}, is_packed: {is_packed}, bytes: \
         include_bytes!({:?}) }},",
        mime(name),
        format!("W/\"{:016x}\"", fnv(&bytes)),
        bytes.len(),
        kept.to_str().ok_or("the name of the build directory is not UTF-8")?,
    )?;
    Ok(())
}

/// A gzip file: ten bytes of head, the packed bytes, and two words that prove them whole.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255];
    packed.extend(compress_to_vec(bytes, LEVEL));
    packed.extend(crc32(bytes).to_le_bytes());
    packed.extend((bytes.len() as u32).to_le_bytes());
    packed
}

fn crc32(bytes: &[u8]) -> u32 {
    let next = |crc: u32| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
    let table: Vec<u32> = (0..256_u32).map(|byte| (0..8).fold(byte, |crc, _| next(crc))).collect();
    !bytes.iter().fold(!0, |crc, byte| (crc >> 8) ^ table[((crc ^ u32::from(*byte)) & 0xff) as usize])
}

/// FNV-1a: the same everywhere, and nobody is trying to fool it.
fn fnv(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

fn mime(name: &str) -> &'static str {
    match name.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" => "application/json",
        "webmanifest" => "application/manifest+json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/vnd.microsoft.icon",
        "jpg" | "jpeg" => "image/jpeg",
        "webp" => "image/webp",
        "woff2" => "font/woff2",
        "wasm" => "application/wasm",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}
