//! Sessions followed by the library: its updates must be whole and each come once, whatever happens below.

use std::rc::Rc;
use std::time::Duration;

use qd_link::client::{AttachError, AttachStart, Attachment, AttachmentUpdate, CallError};
use tokio::time::{Instant, sleep, timeout_at};

use super::{ClientState, connect_options};
use crate::state::World;
use crate::trace;
use crate::view::SessionView;
use qd_testkit::seeded_random::SeededRandom;

pub(super) async fn run(world: Rc<World>, state: Rc<ClientState>) {
    loop {
        sleep(state.millis(200, 2_000)).await;
        let sessions: Vec<String> = world.oracle.borrow().created.iter().cloned().collect();
        if sessions.is_empty() {
            continue;
        }
        let session = state.random.borrow_mut().pick(&sessions).clone();
        // One that is followed when the load ends is followed to the end.
        let until = Instant::now() + state.millis(500, 15_000);
        follow(&world, &state, &session, until).await;
        state.library.borrow_mut().remove(&session);
    }
}

async fn follow(world: &World, state: &ClientState, session: &str, until: Instant) {
    let name = format!("{}l", state.name);
    let mut random = SeededRandom::new(state.random.borrow_mut().next(), "backoff");
    let start = AttachStart::Attach { session_id: session.to_owned(), after: None };
    let opened = Attachment::open(connect_options(world), start, Box::new(move || random.next())).await;
    let mut attachment = match opened {
        Ok(attachment) => attachment,
        Err(error) => return trace::note(&name, &format!("{session} not followed: {error}")),
    };
    trace::note(&name, &format!("{session} followed"));
    state.library.borrow_mut().insert(session.to_owned(), SessionView::new(&name, session, true));
    loop {
        let limit = if world.is_settling() { Instant::now() + Duration::from_secs(1) } else { until };
        match timeout_at(limit, attachment.next()).await {
            Ok(Ok(update)) => take(world, state, &name, session, &update),
            Ok(Err(error)) => return ended(&name, session, &error),
            Err(_) if world.is_settling() => {}
            Err(_) => return trace::note(&name, &format!("{session} no longer followed")),
        }
    }
}

/// The library gives up after long trouble; what it cannot read is another matter.
fn ended(name: &str, session: &str, error: &AttachError) {
    trace::note(name, &format!("{session} given up: {error}"));
    trace::count("library gave up");
    if let AttachError::Call(CallError::Decode(error)) = error {
        trace::violate(name, "frames", &error.to_string());
    }
}

fn take(world: &World, state: &ClientState, name: &str, session: &str, update: &AttachmentUpdate) {
    let mut views = state.library.borrow_mut();
    let Some(view) = views.get_mut(session) else { return };
    match update {
        AttachmentUpdate::Attached(attach) => {
            trace::note(name, &format!("{session} attached: {:?} at {}", attach.resume, attach.seq));
            view.reattached(attach);
        }
        AttachmentUpdate::Event { event, frame } => {
            if let (Some(seq), Some(frame)) = (event.seq, frame) {
                let hash = world.bodies.hash(frame.text());
                world.oracle.borrow_mut().shown(name, session, seq, hash);
            }
            view.event(event);
        }
        AttachmentUpdate::Disconnected { reason, .. } => {
            trace::note(name, &format!("{session} disconnected: {reason}"));
        }
        AttachmentUpdate::System(_) => {}
    }
}
