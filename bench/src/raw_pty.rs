//! What runs are compared with: one program in a terminal, what it writes sent as it is read, what comes written to
//! it. No record, no screen, no second client; when the program is over the connection is closed.

use std::os::fd::OwnedFd;
use std::process::Stdio;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::unix::AsyncFd;
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::Message;

use crate::error::{Outcome, failed};
use crate::process::announce;

const READ_BYTES: usize = 64 << 10;

/// `raw-pty PROGRAM ARGUMENTS…`: one client, then one program.
pub(crate) async fn run(arguments: &[String]) -> Outcome<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    announce(listener.local_addr()?)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let arguments = arguments.to_vec();
        tokio::spawn(async move {
            let socket = tokio_tungstenite::accept_async(stream).await?;
            relay(socket, &arguments).await
        });
    }
}

async fn relay(
    socket: tokio_tungstenite::WebSocketStream<tokio::net::TcpStream>,
    arguments: &[String],
) -> Outcome<()> {
    let (master, mut child) = start(arguments)?;
    #[allow(deprecated, reason = "the new name is unsafe to call; this descriptor is owned and stays open")]
    let master = AsyncFd::new(master)?;
    let (mut sink, mut source) = socket.split();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        tokio::select! {
            ready = master.readable() => {
                let mut ready = ready?;
                match ready.try_io(|master| Ok(rustix::io::read(master, buffer.as_mut_slice())?)) {
                    Ok(Ok(0)) => break,
                    Ok(Ok(length)) => sink.send(Message::Binary(Bytes::copy_from_slice(&buffer[..length]))).await?,
                    // The other end is closed: the program and all it started are gone.
                    Ok(Err(_)) => break,
                    Err(_) => {}
                }
            }
            message = source.next() => {
                match message {
                    Some(Ok(Message::Text(text))) => {
                        rustix::io::write(&master, text.as_bytes())?;
                    }
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => break,
                }
            }
        }
    }
    drop(master);
    child.wait().await?;
    sink.send(Message::Text("exited".into())).await?;
    Ok(())
}

fn start(arguments: &[String]) -> Outcome<(OwnedFd, tokio::process::Child)> {
    let Some((program, rest)) = arguments.split_first() else { return failed("name a program") };
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    let slave = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    tcsetwinsize(&slave, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 })?;
    rustix::fs::fcntl_setfl(&master, rustix::fs::fcntl_getfl(&master)? | OFlags::NONBLOCK)?;
    let child = tokio::process::Command::new(program)
        .args(rest)
        .stdin(Stdio::from(slave.try_clone()?))
        .stdout(Stdio::from(slave.try_clone()?))
        .stderr(Stdio::from(slave))
        .kill_on_drop(true)
        .spawn()?;
    Ok((master, child))
}
