use proptest::prelude::*;

use super::Utf8Joiner;

fn join(bytes: &[u8], cuts: &[usize]) -> String {
    let (mut joiner, mut out) = (Utf8Joiner::default(), String::new());
    let mut from = 0;
    for cut in cuts {
        let to = (from + cut).min(bytes.len());
        joiner.push(&bytes[from..to], &mut out);
        from = to;
    }
    joiner.push(&bytes[from..], &mut out);
    joiner.finish(&mut out);
    assert!(!joiner.has_rest());
    out
}

#[test]
fn hole_20_a_character_is_not_cut_at_the_edge_of_a_read() {
    let text = "漢字かな交じり文 😀👩‍👩‍👧 שלום مرحبا é ".repeat(200);
    for size in 1..9 {
        let cuts = vec![size; text.len() / size + 1];
        assert_eq!(join(text.as_bytes(), &cuts), text, "pieces of {size}");
    }
}

#[test]
fn an_unfinished_character_waits_and_ends_as_one_replacement() {
    let (mut joiner, mut out) = (Utf8Joiner::default(), String::new());
    joiner.push(b"a\xf0\x9f\x98", &mut out);
    assert_eq!(out, "a");
    assert!(joiner.has_rest());
    joiner.finish(&mut out);
    assert_eq!(out, "a\u{fffd}");
}

/// Bytes that are often parts of characters.
fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![
        any::<u8>(),
        Just(b'a'),
        prop::sample::select(&[0xe6u8, 0xbc, 0xa2, 0xf0, 0x9f, 0x98, 0x80, 0xed, 0xa0, 0xf4, 0x90, 0xc2][..]),
    ]
}

proptest! {
    #[test]
    fn any_cutting_of_any_bytes_gives_what_the_whole_gives(
        bytes in prop::collection::vec(byte(), 0..200),
        cuts in prop::collection::vec(0..7usize, 0..100),
    ) {
        prop_assert_eq!(join(&bytes, &cuts), String::from_utf8_lossy(&bytes).into_owned());
    }
}
