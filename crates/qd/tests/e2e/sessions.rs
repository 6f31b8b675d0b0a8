//! One session and its life: the events of a turn, the queue, and what creating, closing and deleting do.

mod demo;
mod lifecycle;
mod queue;
