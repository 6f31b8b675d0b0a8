//! The table of REST routes, and the OpenAPI document made of it.

use std::collections::BTreeSet;

use qd_wire::rest::openapi::{document, path_parameters};
use qd_wire::rest::table::{PATH_PARAMETERS, ROUTES};
use serde_json::Value;

#[test]
fn every_route_and_name_is_there_once() {
    let places: BTreeSet<_> = ROUTES.iter().map(|route| (route.method, route.path)).collect();
    assert_eq!(places.len(), ROUTES.len());
    let names: BTreeSet<_> = ROUTES.iter().map(|route| route.name).collect();
    assert_eq!(names.len(), ROUTES.len());
    for route in ROUTES {
        for name in path_parameters(route.path) {
            assert!(PATH_PARAMETERS.iter().any(|(known, _)| *known == name), "{name} is not described");
        }
        assert!(!route.summary.is_empty() && !route.summary.ends_with('.'), "{}", route.path);
    }
}

/// All values of `$ref`.
fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(object) => {
            found.extend(object.get("$ref").and_then(Value::as_str));
            object.values().for_each(|value| references(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn the_document_is_whole() {
    let document = document();
    assert_eq!(document["openapi"], "3.1.0");
    let operations =
        document["paths"].as_object().unwrap().values().map(|path| path.as_object().unwrap().len());
    assert_eq!(operations.sum::<usize>(), ROUTES.len());
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.len() > 20, "{found:?}");
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
    for route in ROUTES {
        let operation = &document["paths"][route.path][route.method];
        assert!(operation["responses"][route.status.to_string()].is_object(), "{}", route.path);
        for parameter in operation["parameters"].as_array().unwrap() {
            assert!(parameter["description"].is_string(), "{parameter}");
        }
    }
}
