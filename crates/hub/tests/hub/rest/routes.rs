//! The table of REST routes against the running hub.

use qd_hub::Limits;
use qd_wire::command_table::Permission;
use qd_wire::people::Role;
use qd_wire::rest::ROUTES;
use qd_wire::rest::table::{Route, RouteAccess, RouteBody};
use serde_json::{Value, json};

use crate::access::people::{add_person, call, log_in};
use crate::support::{TOKEN, World, world_with_session};

const NOTHING: &str = "There is nothing at this address";

/// The path with something in place of what is in braces.
fn filled(route: &Route) -> String {
    let parts = route.path.split('/').map(|part| if part.starts_with('{') { "nobody" } else { part });
    let required: Vec<String> =
        route.query.iter().filter(|one| one.required).map(|one| format!("{}=x", one.name)).collect();
    format!("{}?{}", parts.collect::<Vec<_>>().join("/"), required.join("&"))
}

fn body(route: &Route) -> &'static str {
    if matches!(route.body, RouteBody::None) { "" } else { "{}" }
}

async fn ask(world: &World, token: Option<&str>, route: &Route) -> (u16, Value) {
    let method = route.method.to_uppercase();
    let (status, _, answer) = call(world, token, &method, &filled(route), body(route)).await;
    (status, answer)
}

fn is_nothing(answer: &Value) -> bool {
    answer["error"].as_str().is_some_and(|error| error.starts_with(NOTHING))
}

#[tokio::test]
async fn every_described_route_answers_and_others_do_not() {
    let (world, _runner) = World::start().await;
    for route in ROUTES {
        let (status, answer) = ask(&world, Some(TOKEN), route).await;
        assert!(status != 405 && !is_nothing(&answer), "{} {}: {status} {answer}", route.method, route.path);
        let below = filled(route).replace('?', "/nothing/at/all?");
        let (status, _, answer) = call(&world, Some(TOKEN), "GET", &below, "").await;
        assert!(status == 404 && is_nothing(&answer), "{below}: {status} {answer}");
    }
    for path in ["/api", "/api/", "/api/nothing", "/api/session", "/auth", "/ws"] {
        let (status, _, answer) = call(&world, Some(TOKEN), "GET", path, "").await;
        assert!(status == 404 && is_nothing(&answer), "{path}: {status} {answer}");
    }
    world.stop().await;
}

/// What the table says of who may is so.
#[tokio::test]
async fn every_route_asks_for_what_the_table_says() {
    let (world, _runner) = world_with_session(Limits::default()).await;
    let mut people = Vec::new();
    for (name, role) in [("vera", Role::Viewer), ("otto", Role::Operator), ("olga", Role::Owner)] {
        add_person(&world, name, role.as_str()).await;
        people.push((role, log_in(&world, name).await));
    }
    let blind = world.new_token(TOKEN, json!({"name":"blind","scopes":["approve"]})).await;
    for route in ROUTES {
        let (status, answer) = ask(&world, None, route).await;
        let is_open = route.access == RouteAccess::Open;
        assert_eq!(
            status == 401 && answer["code"] == "not_logged_in",
            !is_open,
            "{} {}: {status} {answer}",
            route.method,
            route.path
        );
        let RouteAccess::Needs(permission) = route.access else { continue };
        for (role, token) in &people {
            let (status, answer) = ask(&world, Some(token), route).await;
            let may = role.permissions().contains(permission);
            assert_eq!(status == 403, !may, "{role:?} {} {}: {status} {answer}", route.method, route.path);
        }
        if permission == Permission::View {
            assert_eq!(ask(&world, Some(&blind), route).await.0, 403, "{}", route.path);
        }
    }
    world.stop().await;
}

#[tokio::test]
async fn the_description_is_served_to_everybody() {
    let (world, _runner) = World::start().await;
    let (status, _, served) = call(&world, None, "GET", "/api/openapi.json", "").await;
    assert_eq!(status, 200);
    assert_eq!(served, qd_wire::rest::openapi::document(), "run `cargo xtask codegen`, and build again");
    world.stop().await;
}
