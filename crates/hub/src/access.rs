//! Who may talk to the hub and what they may do: tokens, logins, runner keys, principals with their permissions, invites
//! for runners, and the audit of what was done.

pub(crate) mod audit;
pub(crate) mod authenticate;
pub(crate) mod check_request;
pub(crate) mod invites;
pub(crate) mod login;
pub(crate) mod principals;
