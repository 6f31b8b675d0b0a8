//! Writes, or checks, what is generated from the wire types: files, and tables within pages of the documentation.

use std::collections::BTreeMap;
use std::path::Path;

use qd_wire::codegen::{artefacts, page_tables};

use crate::failure::{Failure, read};
use crate::tree::root;

pub(crate) fn write() -> Result<(), Failure> {
    for (name, text) in generated()? {
        let path = root().join(name);
        let folder = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, &text)).map_err(|error| {
            Failure::new(
                format!("cannot write {}: {error}", path.display()),
                "check the permissions and the disk",
            )
        })?;
        println!("wrote {name}");
    }
    Ok(())
}

pub(crate) fn check() -> Result<(), Failure> {
    let is_stale = |(name, text): &(&str, String)| {
        std::fs::read_to_string(root().join(name)).ok().as_ref() != Some(text)
    };
    let stale: Vec<String> =
        generated()?.into_iter().filter(is_stale).map(|(name, _)| name.to_owned()).collect();
    Failure::unless_empty(
        "generated files are stale",
        &stale,
        "run `cargo xtask codegen` and commit the result",
    )
}

/// Every file with all of its text, by its path.
fn generated() -> Result<BTreeMap<&'static str, String>, Failure> {
    let failed =
        |error| Failure::new(error, "see crates/wire/src/codegen.rs; tables stand between two markers");
    let mut files: BTreeMap<&str, String> =
        artefacts().map_err(failed)?.into_iter().map(|artefact| (artefact.path, artefact.text)).collect();
    for table in page_tables().map_err(failed)? {
        let page = match files.remove(table.page) {
            Some(page) => page,
            None => read(&root().join(table.page))?,
        };
        files.insert(table.page, table.insert_into(&page).map_err(failed)?);
    }
    Ok(files)
}
