//! The command line of the chaos test.

use std::path::PathBuf;

pub(crate) const HELP: &str = "\
qd-chaos --qd PATH [--kills N] [--seed S]

  --qd PATH   the binary under test
  --kills N   how many processes to kill (default 100)
  --seed S    what to kill when; the moments still depend on the machine (default: a new one)";

pub(crate) struct Arguments {
    pub(crate) binary: PathBuf,
    pub(crate) kills: u64,
    pub(crate) seed: u64,
}

impl Arguments {
    pub(crate) fn read(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
        let (mut binary, mut kills, mut seed) = (None, 100, u64::from(std::process::id()));
        while let Some(word) = words.next() {
            let value = words.next().ok_or(format!("{word} needs a value"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("{word}: '{value}' is no number"));
            match word.as_str() {
                "--qd" => binary = Some(PathBuf::from(&value)),
                "--kills" => kills = number()?,
                "--seed" => seed = number()?,
                _ => return Err(format!("{word} is not known")),
            }
        }
        let binary = binary.ok_or("--qd is missing")?;
        Ok(Arguments { binary: binary.canonicalize().map_err(|error| error.to_string())?, kills, seed })
    }
}
