//! The command line of the chaos test.

use std::path::PathBuf;
use std::time::Duration;

pub(crate) const HELP: &str = "\
qd-chaos --qd PATH [--kills N] [--seed S] | --outage SECONDS

  --qd PATH   the binary under test
  --kills N   how many processes to kill (default 100)
  --seed S    what to kill when; the moments still depend on the machine (default: a new one)
  --outage S  kill nothing but the hub, keep it down for S seconds while an agent speaks, and measure";

pub(crate) struct Arguments {
    pub(crate) binary: PathBuf,
    pub(crate) kills: u64,
    pub(crate) seed: u64,
    pub(crate) outage: Option<Duration>,
}

impl Arguments {
    pub(crate) fn read(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
        let (mut binary, mut kills, mut seed, mut outage) = (None, 100, u64::from(std::process::id()), None);
        while let Some(word) = words.next() {
            let value = words.next().ok_or(format!("{word} needs a value"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("{word}: '{value}' is no number"));
            match word.as_str() {
                "--qd" => binary = Some(PathBuf::from(&value)),
                "--kills" => kills = number()?,
                "--seed" => seed = number()?,
                "--outage" => outage = Some(Duration::from_secs(number()?)),
                _ => return Err(format!("{word} is not known")),
            }
        }
        let binary = binary.ok_or("--qd is missing")?;
        Ok(Arguments {
            binary: binary.canonicalize().map_err(|error| error.to_string())?,
            kills,
            seed,
            outage,
        })
    }
}
