//! Writes, or checks, the files generated from the wire types.

use qd_wire::codegen::{Artefact, artefacts};

use crate::failure::Failure;
use crate::tree::root;

pub(crate) fn write() -> Result<(), Failure> {
    for artefact in all()? {
        let path = root().join(artefact.path);
        let result = match path.parent() {
            Some(folder) => {
                std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, &artefact.text))
            }
            None => std::fs::write(&path, &artefact.text),
        };
        result.map_err(|error| {
            Failure::new(
                format!("cannot write {}: {error}", path.display()),
                "check the permissions and the disk",
            )
        })?;
        println!("wrote {}", artefact.path);
    }
    Ok(())
}

pub(crate) fn check() -> Result<(), Failure> {
    let stale: Vec<String> = all()?
        .into_iter()
        .filter(|artefact| {
            std::fs::read_to_string(root().join(artefact.path)).ok().as_ref() != Some(&artefact.text)
        })
        .map(|artefact| artefact.path.to_owned())
        .collect();
    Failure::unless_empty(
        "generated files are stale",
        &stale,
        "run `cargo xtask codegen` and commit the result",
    )
}

fn all() -> Result<Vec<Artefact>, Failure> {
    artefacts().map_err(|error| {
        Failure::new(error, "the wire types cannot be described; see crates/wire/src/codegen.rs")
    })
}
