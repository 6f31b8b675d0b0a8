//! What the fuzz targets share: the hub's private readers of frames and lines, and careful statements about JSON.
//!
//! The readers are included as files, so that the targets need neither the hub nor its libraries, which take minutes to
//! build. They keep their paths (`crate::runners::line_head`), which is why these modules have their names.
#![forbid(unsafe_code)]

pub mod command;
pub mod json;
pub mod runners;
