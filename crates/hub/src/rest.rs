//! The routes that `qd_wire::rest` describes. A test compares this list with that table, row by row.

pub(crate) mod audit;
pub(crate) mod commands;
pub(crate) mod export;
pub(crate) mod files;
pub(crate) mod logins;
pub(crate) mod messages;
pub(crate) mod people;
pub(crate) mod request;
pub(crate) mod runners;
pub(crate) mod tokens;
pub(crate) mod usage;

use axum::Router;
use axum::routing::{delete, get, patch, post, put};

use crate::access::login;
use crate::access::login::with_code;
use crate::server::{Server, assets, router};

/// Makes a module's `routes`, and the list of them that the test compares. Faces have such lists too.
macro_rules! rest {
    ($($method:ident $path:literal => $handler:expr;)*) => {
        /// Those that come under one of the hub's own names only, which is all but joining.
        pub(crate) fn routes() -> Router<Server> {
            let routes = Router::new()$(.route($path, $method($handler)))*;
            routes.layer(axum::middleware::from_fn(crate::server::router::code_rejections))
        }

        /// Method and path of each.
        #[cfg(test)]
        pub(crate) const REST: &[(&str, &str)] = &[$((stringify!($method), $path)),*];
    };
}

pub(crate) use rest;

rest! {
    get "/api/openapi.json" => assets::openapi;
    get "/healthz" => router::healthz;
    get "/login" => with_code::login;
    post "/auth/login" => login::login;
    post "/logout" => with_code::logout;
    get "/api/me" => people::me;
    get "/api/logins" => logins::list;
    post "/api/logins/links" => logins::link;
    delete "/api/logins/{login_id}" => logins::end;
    get "/api/sessions" => messages::sessions;
    get "/api/sessions/{session_id}" => messages::session;
    get "/api/sessions/{session_id}/messages" => messages::messages;
    get "/api/sessions/{session_id}/export" => export::export;
    get "/api/sessions/{session_id}/file" => files::download;
    put "/api/sessions/{session_id}/file" => files::upload;
    get "/api/search" => messages::search;
    get "/api/usage" => usage::usage;
    post "/api/commands" => commands::run;
    get "/api/runners" => runners::list;
    post "/api/runners/invites" => runners::invite;
    post "/api/runners/{runner_id}/rotate" => runners::rotate;
    delete "/api/runners/{runner_id}" => runners::revoke;
    get "/api/people" => people::list;
    post "/api/people" => people::add;
    patch "/api/people/{username}" => people::change;
    delete "/api/people/{username}" => people::remove;
    get "/api/tokens" => tokens::list;
    post "/api/tokens" => tokens::add;
    delete "/api/tokens/{name}" => tokens::revoke;
    get "/api/audit" => audit::list;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use qd_wire::rest::ROUTES;

    use super::REST;
    use crate::config::HubConfig;
    use crate::faces::Faces;
    use crate::{LoginCodes, OwnerToken};

    /// The one that runners use, which has another place in the router.
    const JOIN: (&str, &str) = ("post", "/api/runners/join");

    #[test]
    fn every_route_is_described_and_every_description_has_a_route() {
        let described: BTreeSet<_> = ROUTES.iter().map(|route| (route.method, route.path)).collect();
        let faces = Faces::new(&HubConfig::new(OwnerToken::new("t"), LoginCodes::default()));
        let served = REST.iter().copied().chain(faces.described_routes()).chain([JOIN]);
        let served: BTreeSet<_> = served.collect();
        assert_eq!(served.difference(&described).collect::<Vec<_>>(), Vec::<&(&str, &str)>::new());
        assert_eq!(described.difference(&served).collect::<Vec<_>>(), Vec::<&(&str, &str)>::new());
    }
}
