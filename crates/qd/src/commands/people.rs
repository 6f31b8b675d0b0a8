//! People, tokens and machines that may use a server, and what was done by whom.

pub(crate) mod audit;
pub(crate) mod hosts;
pub(crate) mod login_link;
pub(crate) mod token;
pub(crate) mod user;
