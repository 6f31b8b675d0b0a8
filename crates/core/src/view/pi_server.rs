//! The pure parts of the pi-server face: reading and validating its frames, the rules of admission (sections 7 to
//! 11 of its document), answers and events in its shapes.

pub mod admission;
pub mod answer;
pub mod event;
pub mod rate;
pub mod request;
pub mod watch;
