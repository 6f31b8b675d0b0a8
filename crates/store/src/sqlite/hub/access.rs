//! Who may use the hub: people, their logins and tokens, and hosts of others.

mod hosts;
mod logins;
mod people;
mod tokens;
