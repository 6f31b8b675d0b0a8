//! What the types of `qd-wire` are declared with: the attribute `wire`, and derives with the names of
//! `schemars::JsonSchema` and `ts_rs::TS` that derive nothing.
//!
//! The types of `qd-wire` describe themselves for the generated schemas and the TypeScript client. Only `cargo xtask
//! codegen` and tests ask for that (feature `codegen`); compiling it into every build of `qd` cost a minute for code
//! that the linker threw away.
#![forbid(unsafe_code)]

use proc_macro::{Delimiter, TokenStream, TokenTree};

/// In place of `schemars::JsonSchema`.
#[proc_macro_derive(JsonSchema, attributes(schemars))]
pub fn json_schema(_item: TokenStream) -> TokenStream {
    TokenStream::new()
}

/// In place of `ts_rs::TS`.
#[proc_macro_derive(TS, attributes(ts))]
pub fn ts(_item: TokenStream) -> TokenStream {
    TokenStream::new()
}

/// What every type of the protocols has: it can be copied, compared, written, read and described, and an option that
/// is `None` is not written. The arguments are
///
/// - `nulls`: options that are `None` are written as `null`;
/// - `camelCase`: so are the names of its fields on the wire;
/// - `words`: for an enum whose values are single words, in `snake_case`. It gets `ALL`, `as_str` and `parse`;
/// - any other trait to derive.
#[proc_macro_attribute]
pub fn wire(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let mut derives = String::from(
        "Debug, Clone, PartialEq, ::serde::Serialize, ::serde::Deserialize, crate::derive::TS, crate::derive::JsonSchema",
    );
    // The attribute of serde_with has to stand before the derives, whose input it changes.
    let mut before = "#[::serde_with::skip_serializing_none]";
    let mut after = "#[ts(optional_fields)]";
    let mut case = "";
    let mut words = TokenStream::new();
    for argument in arguments.into_iter().filter(|token| matches!(token, TokenTree::Ident(_))) {
        match argument.to_string().as_str() {
            "nulls" => (before, after) = ("", ""),
            "camelCase" => case = r#"#[serde(rename_all = "camelCase")]"#,
            "words" => {
                (before, after, case) = ("", "", r#"#[serde(rename_all = "snake_case")]"#);
                derives.push_str(", Copy, Eq");
                words = words_of(item.clone());
            }
            name => derives.push_str(&format!(", {name}")),
        }
    }
    // Text of our own always parses; if it did not, the type would lack its derives and not compile.
    let mut output: TokenStream =
        format!("{before} #[derive({derives})] {after} {case}").parse().unwrap_or_default();
    output.extend([item, words]);
    output
}

/// The methods of an enum whose values are single words.
fn words_of(item: TokenStream) -> TokenStream {
    let mut tokens = item.into_iter().skip_while(|token| token.to_string() != "enum").skip(1);
    let name = tokens.next().map(|name| name.to_string()).unwrap_or_default();
    let variants: Vec<String> = tokens.filter_map(variants_in).flatten().collect();
    let list: String = variants.iter().map(|variant| format!("{name}::{variant},")).collect();
    let arms: String =
        variants.iter().map(|variant| format!("{name}::{variant} => {:?},", snake_case(variant))).collect();
    let count = variants.len();
    format!(
        "impl {name} {{
            /// Every value, in the order of the declaration.
            pub const ALL: [{name}; {count}] = [{list}];

            /// The word on the wire.
            pub const fn as_str(self) -> &'static str {{ match self {{ {arms} }} }}

            /// The value of a word.
            pub fn parse(word: &str) -> Option<{name}> {{
                {name}::ALL.into_iter().find(|value| value.as_str() == word)
            }}
        }}"
    )
    .parse()
    .unwrap_or_default()
}

/// The names in the braces of an enum; attributes of variants are groups and no names.
fn variants_in(token: TokenTree) -> Option<Vec<String>> {
    let TokenTree::Group(group) = token else { return None };
    let is_name = |token: &TokenTree| matches!(token, TokenTree::Ident(_));
    (group.delimiter() == Delimiter::Brace)
        .then(|| group.stream().into_iter().filter(is_name).map(|name| name.to_string()).collect())
}

/// As serde does it.
fn snake_case(variant: &str) -> String {
    let mut word = String::new();
    for (index, letter) in variant.char_indices() {
        if letter.is_ascii_uppercase() && index > 0 {
            word.push('_');
        }
        word.push(letter.to_ascii_lowercase());
    }
    word
}
