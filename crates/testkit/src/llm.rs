//! A scripted model server on loopback. It speaks OpenAI chat completions (`POST /v1/chat/completions`) and Anthropic
//! messages (`POST /v1/messages`), both streaming, and plays the scenario named by the last user message.
//!
//! A message that starts with `@@` is a script: one directive per line, `@@name key=value …`. A value is a bare word
//! or JSON (`"a string"`, `[…]`, `{…}`); words without `=` are ignored. Any other message (a pi compaction request,
//! say) gets a short text.
//!
//! Content, in the order written:
//!
//! | directive | the model answers with |
//! |---|---|
//! | `@@text [text="…"]` | text |
//! | `@@thinking [thinking="…"] [text="…"]` | thinking, then text |
//! | `@@tool name=bash command="ls"` | a call of that tool; all other fields are its arguments |
//! | `@@bash …`, `@@read …`, `@@write …`, `@@edit …` | the same, named by the directive |
//! | `@@parallel [n=3] [command="echo {i}"]` | n bash calls in one message, `{i}` counting from 1 |
//! | `@@loop [n=3] [command="echo {i}"]` | n rounds of one bash call each |
//! | `@@deltas [n=2000] [delay_ms=0]` | a text in exactly n deltas |
//! | `@@slow [n=20] [delay_ms=50]` | the same, at a walking pace |
//! | `@@endless [delay_ms=5]` | a text that ends when the client disconnects |
//! | `@@hold [name=gate]` | text, then nothing until [`LlmServer::release`], then more text |
//! | `@@final text="…"` | the text given once the tools have run, instead of "Done." |
//!
//! What goes wrong, or is different (alone or with content; the content comes once the failures are used up):
//!
//! | directive | effect |
//! |---|---|
//! | `@@error [status=529] [times=1] [retry_after=1] [message="…"]` | that HTTP status |
//! | `@@overflow [times=1]` | the error by which a provider says that the context is too long |
//! | `@@drop [after=3] [times=1]` | the connection breaks after that many deltas |
//! | `@@hang` | no answer at all, not even headers |
//! | `@@length` | the answer stops for length |
//! | `@@usage [input=…] [output=…]` | these token counts instead of estimates |
//!
//! `times` counts per message text and starts over after a success, so a script may have one failure per round. `round=1` on a failure moves it to the request
//! that carries the first tool results.

mod answer_stream;
mod anthropic;
mod conversation;
mod directive;
mod openai;
mod plan;
mod record;
mod server;

pub use record::{Api, Ending, Image, RecordedRequest};
pub use server::{LlmServer, WaitError};
