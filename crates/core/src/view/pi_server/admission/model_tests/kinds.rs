//! The kinds of outcomes, to see that the sequences are about all of them.

use super::super::PiServerOutcome;

/// The kinds of errors, by a part of their text; the first that fits counts.
pub(super) const KINDS: &[(&str, &str)] = &[
    ("in doubt", "it was cut off and its outcome"),
    ("failed dependency", "' failed: "),
    ("conflicting id", "Conflicting id "),
    ("conflicting key", "Conflicting idempotencyKey "),
    ("rate", "Rate limit"),
    ("global rate", "Global rate limit"),
    ("dialog rate", "Extension UI response rate limit"),
    ("busy", "Server busy"),
    ("itself", "cannot depend on itself"),
    ("unknown dependency", "is unknown"),
    ("waited too long", "Command 'dependsOn:"),
    ("dependency behind", "is queued in the same lane"),
    ("version", "Session version mismatch"),
    ("session", "Session "),
    ("failed", "No API key"),
    ("store", "The store is full"),
    ("revoked", "The access token was revoked"),
    ("link", "The link was lost"),
    ("too old", "Nobody can know any more"),
    ("not known to the runner", "The runner does not know"),
];

pub(super) fn kind(outcome: &PiServerOutcome) -> &'static str {
    match &outcome.error {
        None => "success",
        Some(_) if outcome.timed_out => "timed out",
        Some(error) => {
            KINDS.iter().find(|(_, text)| error.contains(text)).map_or("another error", |(kind, _)| kind)
        }
    }
}
