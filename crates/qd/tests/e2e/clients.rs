//! Clients: they leave and come back, share a session, repeat what they sent, and send rubbish.

mod garbage;
mod identity;
mod reconnect;
mod several_clients;
