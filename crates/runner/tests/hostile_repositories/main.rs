//! Repositories made by somebody hostile are looked at through a runner, as a viewer does. No program may start, and
//! nothing from outside may show. Each case is a few lines in one of the tables.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

/// Makes a test of each case: a name, and what makes a plain repository hostile.
macro_rules! cases {
    ($($(#[$about:meta])* $name:ident($hostile:ident) $make:block)*) => {$(
        $(#[$about])*
        #[tokio::test]
        async fn $name() {
            #[allow(unused_variables, reason = "not every case needs it")]
            crate::hostile::look_at(stringify!($name), |$hostile: &mut crate::hostile::Hostile| $make).await;
        }
    )*};
}

mod attributes_and_names;
mod configuration;
mod files_of_git;
mod hostile;
mod nested;
mod other_repositories;

#[path = "../runner"]
mod of_runner {
    #[allow(dead_code, reason = "shared with the tests of the runner")]
    pub(crate) mod support;
}
pub(crate) use of_runner::support;
