//! The REST calls, and the browser app.

mod codes;
mod routes;
mod usage;
mod web;
