//! The corpus of frames.

use std::path::PathBuf;

/// Where the corpus is kept.
pub(crate) fn corpus_directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/pi_server/corpus")
}

/// Every frame of the corpus with its name, in order.
pub(crate) fn corpus() -> Vec<(String, String)> {
    let entries = std::fs::read_dir(corpus_directory()).expect("the corpus");
    let mut frames: Vec<(String, String)> = entries
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            (name, std::fs::read_to_string(&path).expect("a frame"))
        })
        .collect();
    frames.sort();
    frames
}

/// The frame of the corpus that has this name.
pub(crate) fn frame(name: &str) -> String {
    let path = corpus_directory().join(format!("{name}.json"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
