//! The browser app: its files, which whoever starts the hub gives it, and its first page for every address that is a
//! page. Whoever reaches the hub gets them, signed in or not: there is nothing secret in them, and the app shows how to
//! sign in.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY,
};
use http::{HeaderMap, Method, StatusCode};
use qd_wire::ErrorCode;

use crate::hub::Hub;
use crate::server::router::failed;

/// A file of the app, as the program that starts the hub has it.
#[derive(Debug, Clone, Copy)]
pub struct AppFile {
    /// From the root, with the first slash.
    pub path: &'static str,
    pub mime: &'static str,
    /// For the header `ETag`; another for another content.
    pub tag: &'static str,
    /// Unpacked.
    pub length: usize,
    /// Whether `bytes` is a gzip file.
    pub is_packed: bool,
    pub bytes: &'static [u8],
}

const INDEX: &str = "/index.html";
/// Their names change with their content.
const LASTING: &str = "/assets/";
/// The first parts of the app's pages; the app itself says what is below them.
const PAGES: [&str; 8] = ["", "new", "s", "approvals", "history", "usage", "settings", "welcome"];
/// The first parts of the hub's own addresses: what is not found there is no page. Faces have more of them.
const OWN: [&str; 6] = ["api", "ws", "auth", "healthz", "login", "logout"];
/// Of a gzip file: its head, and the two words at its end.
const GZIP_HEAD_BYTES: usize = 10;
const GZIP_END_BYTES: usize = 8;
/// Shown in place of the app when it was not built.
static PLACEHOLDER: AppFile = AppFile {
    path: INDEX,
    mime: "text/html; charset=utf-8",
    tag: "W/\"no-app\"",
    length: include_bytes!("page.html").len(),
    is_packed: false,
    bytes: include_bytes!("page.html"),
};

/// Made by `cargo xtask codegen` of the table of REST routes.
const DOCUMENT: &str = include_str!("../../../../docs/generated/openapi.json");

/// Everything that no route takes: files and pages of the app.
pub(crate) async fn app(State(hub): State<Arc<Hub>>, request: Request) -> Response {
    let (method, path) = (request.method(), request.uri().path());
    let is_read = method == Method::GET || method == Method::HEAD;
    let is_of_face = |first_part: &str| hub.faces.has_path_prefix(first_part);
    let found = if is_read { find(hub.config.app, path, request.headers(), is_of_face) } else { None };
    match found {
        Some((status, asset)) => answer(asset, request.headers(), status),
        None => not_found(),
    }
}

/// `GET /api/openapi.json`
pub(crate) async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-cache")], DOCUMENT).into_response()
}

fn not_found() -> Response {
    let error = "There is nothing at this address; the app is at /, what scripts can ask is in /api/openapi.json, and the app's WebSocket is at /ws/mux";
    failed(ErrorCode::NotFound, error)
}

fn find(
    files: &'static [AppFile],
    path: &str,
    headers: &HeaderMap,
    is_of_face: impl Fn(&str) -> bool,
) -> Option<(StatusCode, &'static AppFile)> {
    if let Some(asset) = files.iter().find(|asset| asset.path == path) {
        return Some((StatusCode::OK, asset));
    }
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    if PAGES.contains(&first) && !path.starts_with("//") {
        return Some((StatusCode::OK, index(files)));
    }
    // A person who has mistyped an address gets the app, which says so in its own way; a program is told plainly.
    let is_own = OWN.contains(&first) || path.starts_with(LASTING) || is_of_face(first);
    (!is_own && wants_page(headers)).then(|| (StatusCode::NOT_FOUND, index(files)))
}

fn index(files: &'static [AppFile]) -> &'static AppFile {
    files.iter().find(|asset| asset.path == INDEX).unwrap_or(&PLACEHOLDER)
}

/// Whether a browser asks for something to show as a page.
pub(crate) fn wants_page(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

fn answer(asset: &'static AppFile, headers: &HeaderMap, status: StatusCode) -> Response {
    let keep = if asset.path.starts_with(LASTING) && status == StatusCode::OK {
        "public, max-age=31536000, immutable"
    } else {
        "no-cache"
    };
    let mut response = if is_known(asset.tag, headers) && status == StatusCode::OK {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        content(asset, headers, status)
    };
    let head = response.headers_mut();
    head.insert(ETAG, http::HeaderValue::from_static(asset.tag));
    head.insert(CACHE_CONTROL, http::HeaderValue::from_static(keep));
    head.insert(VARY, http::HeaderValue::from_static("accept-encoding"));
    response
}

/// Whether the client has this already.
fn is_known(tag: &str, headers: &HeaderMap) -> bool {
    let bare = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let all = headers.get_all(IF_NONE_MATCH).into_iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(',')).any(|known| known.trim() == "*" || bare(known) == bare(tag))
}

fn content(asset: &'static AppFile, headers: &HeaderMap, status: StatusCode) -> Response {
    let kind = (CONTENT_TYPE, asset.mime);
    if !asset.is_packed {
        return (status, [kind], Body::from(Bytes::from_static(asset.bytes))).into_response();
    }
    if takes_gzip(headers) {
        let body = Body::from(Bytes::from_static(asset.bytes));
        return (status, [kind, (CONTENT_ENCODING, "gzip")], body).into_response();
    }
    match unpack(asset) {
        Some(bytes) => (status, [kind], Body::from(bytes)).into_response(),
        None => failed(ErrorCode::Internal, "A file of the app is broken; build it again"),
    }
}

fn unpack(asset: &AppFile) -> Option<Vec<u8>> {
    let end = asset.bytes.len().checked_sub(GZIP_END_BYTES)?;
    let packed = asset.bytes.get(GZIP_HEAD_BYTES..end)?;
    miniz_oxide::inflate::decompress_to_vec_with_limit(packed, asset.length).ok()
}

/// Whether the client can unpack: it says so, and does not rule it out with `q=0`.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let all = headers.get_all(ACCEPT_ENCODING).into_iter().filter_map(|value| value.to_str().ok());
    let codings = all.flat_map(|value| value.split(',')).map(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let is_wanted = weight.trim().strip_prefix("q=").is_none_or(|q| q.trim().parse() != Ok(0.0_f32));
        (name.trim().to_ascii_lowercase(), is_wanted)
    });
    // What is named goes before `*`, wherever it stands.
    let mut named = None;
    let mut others = false;
    for (name, is_wanted) in codings {
        match &*name {
            "gzip" | "x-gzip" => named = Some(is_wanted),
            "*" => others = is_wanted,
            _ => {}
        }
    }
    named.unwrap_or(others)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: http::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    #[test]
    fn gzip_is_for_those_who_take_it() {
        for takes in ["gzip", "gzip, deflate, br", "br;q=1.0, gzip;q=0.5", "*", "GZIP", "identity;q=0, *"] {
            assert!(takes_gzip(&with(ACCEPT_ENCODING, takes)), "{takes}");
        }
        for not in ["", "br", "gzip;q=0", "gzip; q=0.000, br", "*, gzip;q=0", "*;q=0", "gzipped"] {
            assert!(!takes_gzip(&with(ACCEPT_ENCODING, not)), "{not}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }

    #[test]
    fn pages_are_pages_and_the_rest_is_not() {
        let find =
            |path: &str, headers: &HeaderMap| find(&[], path, headers, |first_part| first_part == "face");
        let script = HeaderMap::new();
        let browser = with(ACCEPT, "text/html,application/xhtml+xml");
        for page in ["/", "/new", "/s/abc", "/s/abc/files/src/main.rs", "/settings/people", "/history"] {
            assert!(
                matches!(find(page, &script), Some((StatusCode::OK, asset)) if asset.path == INDEX),
                "{page}"
            );
        }
        assert!(find("/nowhere", &script).is_none());
        assert!(matches!(find("/nowhere", &browser), Some((StatusCode::NOT_FOUND, _))));
        for own in ["/api/nothing", "/ws/nothing", "/auth/x", "/face", "/face/a/b", "/assets/gone.js"] {
            assert!(find(own, &browser).is_none(), "{own}");
        }
    }

    #[test]
    fn a_client_is_asked_only_for_what_it_does_not_have() {
        for known in ["W/\"a\"", "\"a\"", "\"b\", W/\"a\"", "*"] {
            assert!(is_known("W/\"a\"", &with(IF_NONE_MATCH, known)), "{known}");
        }
        assert!(!is_known("W/\"a\"", &with(IF_NONE_MATCH, "\"b\"")));
        assert!(!is_known("W/\"a\"", &HeaderMap::new()));
    }
}
