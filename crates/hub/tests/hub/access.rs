//! Who is let in, what they may do, and what is noted of it.

mod audit;
mod authentication;
mod login_links;
pub(crate) mod people;
mod permissions;
mod secrets;
mod tokens;
