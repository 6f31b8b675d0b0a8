//! Scripted LLM server, process fixtures, clients; tests only.
#![forbid(unsafe_code)]
