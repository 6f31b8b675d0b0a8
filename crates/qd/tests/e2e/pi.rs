//! Real pi with its scripted model.

mod bridge;
mod dialogs;
mod failures;
mod files;
mod races;
mod settings;
mod turns;
