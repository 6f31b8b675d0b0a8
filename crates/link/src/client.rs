//! The typed client of `/ws/mux`.
