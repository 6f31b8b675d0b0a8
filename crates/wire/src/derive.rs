//! How types describe themselves for what is generated of them: for real only where something is generated, because
//! the code for it takes a minute to compile.

#[cfg(not(feature = "codegen"))]
pub(crate) use qd_wire_derive::{JsonSchema, TS};
#[cfg(feature = "codegen")]
pub(crate) use schemars::JsonSchema;
#[cfg(feature = "codegen")]
pub(crate) use ts_rs::TS;
