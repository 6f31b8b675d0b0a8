//! Derives with the names of `schemars::JsonSchema` and `ts_rs::TS` that derive nothing.
//!
//! The types of `qd-wire` describe themselves for the generated schemas and the TypeScript client. Only `cargo xtask
//! codegen` and tests ask for that (feature `codegen`); compiling it into every build of `qd` cost a minute for code
//! that the linker threw away.
#![forbid(unsafe_code)]

use proc_macro::TokenStream;

/// In place of `schemars::JsonSchema`.
#[proc_macro_derive(JsonSchema, attributes(schemars))]
pub fn json_schema(_item: TokenStream) -> TokenStream {
    TokenStream::new()
}

/// In place of `ts_rs::TS`.
#[proc_macro_derive(TS, attributes(ts))]
pub fn ts(_item: TokenStream) -> TokenStream {
    TokenStream::new()
}
