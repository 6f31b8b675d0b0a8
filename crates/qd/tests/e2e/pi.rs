//! Real pi with its scripted model.

mod bridge;
mod dialogs;
mod environment;
mod failures;
mod files;
mod races;
mod settings;
mod turns;
