//! Tests of the wire types: examples, extensions, commands, properties, generated files.

#![allow(clippy::expect_used, reason = "a test stops at its first surprise")]

mod commands;
mod extensions;
mod generated;
mod properties;
mod rest;
mod spec_examples;
mod support;
