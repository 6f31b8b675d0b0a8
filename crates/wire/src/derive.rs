//! How types are declared (`wire`), and how they describe themselves for what is generated of them: for real only where
//! something is generated, because the code for it takes a minute to compile.

pub(crate) use qd_wire_derive::wire;
#[cfg(not(feature = "codegen"))]
pub(crate) use qd_wire_derive::{JsonSchema, TS};
#[cfg(feature = "codegen")]
pub(crate) use schemars::JsonSchema;
#[cfg(feature = "codegen")]
pub(crate) use ts_rs::TS;
