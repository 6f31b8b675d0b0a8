//! The routes that `qd_wire::rest` describes. A test compares this list with that table, row by row.

use axum::Router;
use axum::routing::{delete, get, patch, post, put};

use crate::login::with_code;
use crate::serve::Server;
use crate::{
    assets, audit_api, commands_api, export_api, files_api, http, login, logins_api, messages_api,
    people_api, runners_api, tokens_api, usage_api,
};

/// Makes a module's `routes`, and the list of them that the test compares. Faces have such lists too.
macro_rules! rest {
    ($($method:ident $path:literal => $handler:expr;)*) => {
        /// Those that come under one of the hub's own names only, which is all but joining.
        pub(crate) fn routes() -> Router<Server> {
            let routes = Router::new()$(.route($path, $method($handler)))*;
            routes.layer(axum::middleware::from_fn(crate::http::code_rejections))
        }

        /// Method and path of each.
        #[cfg(test)]
        pub(crate) const REST: &[(&str, &str)] = &[$((stringify!($method), $path)),*];
    };
}

pub(crate) use rest;

rest! {
    get "/api/openapi.json" => assets::openapi;
    get "/healthz" => http::healthz;
    get "/login" => with_code::login;
    post "/auth/login" => login::login;
    post "/logout" => with_code::logout;
    get "/api/me" => people_api::me;
    get "/api/logins" => logins_api::list;
    post "/api/logins/links" => logins_api::link;
    delete "/api/logins/{login_id}" => logins_api::end;
    get "/api/sessions" => http::sessions;
    get "/api/sessions/{session_id}" => messages_api::session;
    get "/api/sessions/{session_id}/messages" => messages_api::messages;
    get "/api/sessions/{session_id}/export" => export_api::export;
    get "/api/sessions/{session_id}/file" => files_api::download;
    put "/api/sessions/{session_id}/file" => files_api::upload;
    get "/api/search" => messages_api::search;
    get "/api/usage" => usage_api::usage;
    post "/api/commands" => commands_api::run;
    get "/api/runners" => runners_api::list;
    post "/api/runners/invites" => runners_api::invite;
    post "/api/runners/{runner_id}/rotate" => runners_api::rotate;
    delete "/api/runners/{runner_id}" => runners_api::revoke;
    get "/api/people" => people_api::list;
    post "/api/people" => people_api::add;
    patch "/api/people/{username}" => people_api::change;
    delete "/api/people/{username}" => people_api::remove;
    get "/api/tokens" => tokens_api::list;
    post "/api/tokens" => tokens_api::add;
    delete "/api/tokens/{name}" => tokens_api::revoke;
    get "/api/audit" => audit_api::list;
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
