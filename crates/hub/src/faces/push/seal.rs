//! A message that only one browser can read: RFC 8291, with the encoding `aes128gcm` of RFC 8188.

use ring::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use ring::rand::{SecureRandom, SystemRandom};

/// An uncompressed point of P-256.
pub(super) const POINT_BYTES: usize = 65;
pub(super) const AUTH_BYTES: usize = 16;
const SALT_BYTES: usize = 16;
const SECRET_BYTES: usize = 32;
/// Push services take messages of this size, all of it included; a message is one record.
const RECORD_BYTES: u32 = 4096;
const HEAD_BYTES: usize = SALT_BYTES + 4 + 1 + POINT_BYTES;
const TAG_BYTES: usize = 16;
/// Ends the text of the last record; zeros follow.
const LAST: u8 = 2;
/// Messages are filled up to a multiple of this: from its length nobody learns what one says.
const PADDED_BYTES: usize = 512;
/// The longest text.
pub(super) const TEXT_BYTES_MAX: usize = RECORD_BYTES as usize - HEAD_BYTES - TAG_BYTES - 1;

/// Whose eyes it is for.
#[derive(Clone, Copy)]
pub(super) struct MessageRecipient<'a> {
    pub(super) p256dh: &'a [u8],
    pub(super) auth: &'a [u8],
}

/// The body of a push; `None` when the browser's keys are none, the text is too long, or there is no randomness.
pub(super) fn seal(reader: MessageRecipient<'_>, text: &[u8]) -> Option<Vec<u8>> {
    if reader.p256dh.len() != POINT_BYTES || reader.auth.len() != AUTH_BYTES || text.len() > TEXT_BYTES_MAX {
        return None;
    }
    let random = SystemRandom::new();
    let mut salt = [0; SALT_BYTES];
    random.fill(&mut salt).ok()?;
    // A new key pair and salt for each message: key and nonce are derived from them, and a nonce must not repeat.
    let own = EphemeralPrivateKey::generate(&ECDH_P256, &random).ok()?;
    let own_public = own.compute_public_key().ok()?;
    let theirs = UnparsedPublicKey::new(&ECDH_P256, reader.p256dh);
    // The mark of the end counts too, and no message may exceed one record.
    let padded = (text.len() + 1).next_multiple_of(PADDED_BYTES).min(TEXT_BYTES_MAX + 1);
    let mut padding = vec![0; padded - text.len()];
    padding[0] = LAST;
    agree_ephemeral(own, &theirs, |secret| {
        let padded = [text, &padding].concat();
        sealed(secret, reader, own_public.as_ref(), salt, padded)
    })
    .ok()?
}

/// The same once both sides share a secret. `padded` has its mark of the end.
fn sealed(
    secret: &[u8],
    reader: MessageRecipient<'_>,
    own_public: &[u8],
    salt: [u8; SALT_BYTES],
    mut padded: Vec<u8>,
) -> Option<Vec<u8>> {
    let (key, nonce) = keys(secret, reader, own_public, salt)?;
    key.seal_in_place_append_tag(nonce, Aad::empty(), &mut padded).ok()?;
    let mut body = Vec::with_capacity(HEAD_BYTES + padded.len());
    body.extend_from_slice(&salt);
    body.extend_from_slice(&RECORD_BYTES.to_be_bytes());
    body.push(u8::try_from(own_public.len()).ok()?);
    body.extend_from_slice(own_public);
    body.extend_from_slice(&padded);
    Some(body)
}

fn keys(
    secret: &[u8],
    reader: MessageRecipient<'_>,
    own_public: &[u8],
    salt: [u8; SALT_BYTES],
) -> Option<(LessSafeKey, Nonce)> {
    let both = Salt::new(HKDF_SHA256, reader.auth).extract(secret);
    let mut material = [0; SECRET_BYTES];
    expand(&both, &[b"WebPush: info\0", reader.p256dh, own_public], &mut material)?;
    let of_message = Salt::new(HKDF_SHA256, &salt).extract(&material);
    let (mut key, mut nonce) = ([0; 16], [0; NONCE_LEN]);
    expand(&of_message, &[b"Content-Encoding: aes128gcm\0"], &mut key)?;
    expand(&of_message, &[b"Content-Encoding: nonce\0"], &mut nonce)?;
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).ok()?);
    Some((key, Nonce::assume_unique_for_key(nonce)))
}

/// How many bytes are wanted.
struct OutputLength(usize);

impl KeyType for OutputLength {
    fn len(&self) -> usize {
        self.0
    }
}

fn expand(from: &Prk, info: &[&[u8]], out: &mut [u8]) -> Option<()> {
    from.expand(info, OutputLength(out.len())).and_then(|okm| okm.fill(out)).ok()
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;

    fn bytes(text: &str) -> Vec<u8> {
        URL_SAFE_NO_PAD.decode(text).unwrap()
    }

    /// Section 5 and appendix A of RFC 8291, letter by letter.
    #[test]
    fn the_example_of_the_standard() {
        let p256dh =
            bytes("BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4");
        let auth = bytes("BTBZMqHH6r4Tts7J_aSIgg");
        let own_public =
            bytes("BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8");
        let secret = bytes("kyrL1jIIOHEzg3sM2ZWRHDRB62YACZhhSlknJ672kSs");
        let salt: [u8; SALT_BYTES] = bytes("DGv6ra1nlYgDCS1FRnbzlw").try_into().unwrap();
        let text = [b"When I grow up, I want to be a watermelon".as_slice(), &[LAST]].concat();
        let reader = MessageRecipient { p256dh: &p256dh, auth: &auth };
        let body = sealed(&secret, reader, &own_public, salt, text).unwrap();
        let expected = "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLoc\
            InmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulc\
            y4a-fN";
        assert_eq!(URL_SAFE_NO_PAD.encode(&body), expected);
    }

    /// The browser's side, with ring's own half of the agreement.
    #[test]
    fn the_browser_reads_what_was_sealed_and_learns_nothing_from_its_length() {
        let random = SystemRandom::new();
        let auth = [7; AUTH_BYTES];
        for (text, length) in [("", 512), ("short", 512), (&*"x".repeat(511), 512), (&*"x".repeat(512), 1024)]
        {
            let theirs = EphemeralPrivateKey::generate(&ECDH_P256, &random).unwrap();
            let p256dh = theirs.compute_public_key().unwrap();
            let reader = MessageRecipient { p256dh: p256dh.as_ref(), auth: &auth };
            let body = seal(reader, text.as_bytes()).unwrap();
            assert_eq!(body.len(), HEAD_BYTES + length + TAG_BYTES);
            let (head, sealed) = body.split_at(HEAD_BYTES);
            let salt: [u8; SALT_BYTES] = head[..SALT_BYTES].try_into().unwrap();
            let sender = UnparsedPublicKey::new(&ECDH_P256, &head[SALT_BYTES + 5..]);
            let (key, nonce) =
                agree_ephemeral(theirs, &sender, |secret| keys(secret, reader, sender.bytes(), salt))
                    .unwrap()
                    .unwrap();
            let mut sealed = sealed.to_vec();
            let opened = key.open_in_place(nonce, Aad::empty(), &mut sealed).unwrap();
            let end = opened.iter().rposition(|byte| *byte != 0).unwrap();
            assert_eq!((opened[end], &opened[..end]), (LAST, text.as_bytes()));
        }
    }

    #[test]
    fn what_cannot_be_sealed_is_not() {
        let random = SystemRandom::new();
        let key = EphemeralPrivateKey::generate(&ECDH_P256, &random).unwrap();
        let key = key.compute_public_key().unwrap();
        let good = MessageRecipient { p256dh: key.as_ref(), auth: &[1; AUTH_BYTES] };
        assert_eq!(seal(good, &vec![b'x'; TEXT_BYTES_MAX]).unwrap().len(), RECORD_BYTES as usize);
        assert!(seal(good, &vec![b'x'; TEXT_BYTES_MAX + 1]).is_none());
        assert!(seal(MessageRecipient { auth: &[1; 15], ..good }, b"").is_none());
        assert!(
            seal(MessageRecipient { p256dh: &[4; POINT_BYTES], ..good }, b"").is_none(),
            "not on the curve"
        );
    }
}
