use std::fs;

use super::bounds::UNAPPROVED_BYTES_MAX;
use super::*;
use crate::services::fs::fixture::{Fixture, assert_refused, refused_as, words};
use crate::services::fs::to_base64;

const NOW: i64 = 1_700_000_000_000;

const ANN: UploadSender<'static> = UploadSender { principal: "ann", approved: None };

fn piece(id: &str, offset: u64, data: &[u8], last: bool) -> FsUploadParams {
    FsUploadParams {
        upload_id: id.into(),
        path: "dir/file.bin".into(),
        offset,
        data: to_base64(data),
        last: Some(last),
        create_parents: Some(true),
        ..FsUploadParams::default()
    }
}

struct UploadFixture {
    fixture: Fixture,
    uploads: UploadTable,
}

impl UploadFixture {
    fn new() -> UploadFixture {
        UploadFixture { fixture: Fixture::new(), uploads: UploadTable::default() }
    }

    fn send(&self, params: &FsUploadParams) -> ServiceResult<FsUploadData> {
        self.send_at(params, NOW)
    }

    fn send_at(&self, params: &FsUploadParams, now: i64) -> ServiceResult<FsUploadData> {
        upload_at(&self.uploads, &self.fixture.root, params, ANN, &Cancellation::default(), now)
    }

    fn temps(&self) -> usize {
        self.fixture.names().iter().filter(|name| name.ends_with(".tmp")).count()
    }
}

#[test]
fn pieces_become_a_file_that_appears_whole() {
    let world = UploadFixture::new();
    let first = vec![7; 300_000];
    assert_eq!(world.send(&piece("u", 0, &first, false)).unwrap().received, 300_000);
    assert!(!world.fixture.at("dir").exists(), "nothing but a temporary file before the last piece");
    assert_eq!(world.temps(), 1);
    assert_eq!(world.send(&piece("u", 300_000, b"middle", false)).unwrap().received, 300_006);
    let done = world.send(&piece("u", 300_006, b"end", true)).unwrap();
    let written = done.written.unwrap();
    let content = [&first[..], b"middleend"].concat();
    assert_eq!((written.bytes_written, &written.hash), (300_009, &hex(&Sha256::digest(&content))));
    assert!(fs::read(world.fixture.at("dir/file.bin")).unwrap() == content);
    assert_eq!(world.temps(), 0);
    // The answer was not heard, and the last piece is sent again.
    let again = world.send(&piece("u", 300_006, b"end", true)).unwrap();
    assert_eq!(again.written.unwrap(), written);
}

#[test]
fn pieces_are_resumed_and_repeated() {
    let world = UploadFixture::new();
    world.send(&piece("u", 0, b"0123456789", false)).unwrap();
    assert_eq!(world.send(&piece("u", 0, b"0123456789", false)).unwrap().received, 10);
    assert_eq!(world.send(&piece("u", 3, b"345", false)).unwrap().received, 10);
    assert_refused(ErrorCode::Conflict, "offset 10", world.send(&piece("u", 5, b"56789abc", false)));
    assert_refused(ErrorCode::Conflict, "offset 10", world.send(&piece("u", 99, b"x", true)));
    assert_refused(
        ErrorCode::Conflict,
        "start it again at offset 0",
        world.send(&piece("other", 10, b"x", false)),
    );
    let elsewhere = FsUploadParams { path: "elsewhere".into(), ..piece("u", 10, b"", true) };
    assert_refused(ErrorCode::Conflict, "dir/file.bin", world.send(&elsewhere));
    // A last piece that failed can be sent again.
    let guarded = FsUploadParams { expected_hash: Some("00".into()), ..piece("u", 10, b"ab", true) };
    assert!(words(world.send(&guarded)).contains("there is none now"));
    world.send(&piece("u", 10, b"ab", true)).unwrap();
    assert_eq!(world.fixture.text("dir/file.bin"), "0123456789ab");
}

#[test]
fn what_is_aborted_or_given_up_is_removed() {
    let world = UploadFixture::new();
    world.send(&piece("aborted", 0, b"x", false)).unwrap();
    world.send(&FsUploadParams { abort: Some(true), ..piece("aborted", 0, b"", false) }).unwrap();
    assert_eq!(world.temps(), 0);
    world.send(&piece("old", 0, b"x", false)).unwrap();
    world.send_at(&piece("old", 1, b"y", false), NOW + UPLOAD_IDLE_MS_MAX - 1).unwrap();
    world.uploads.expire(NOW + UPLOAD_IDLE_MS_MAX);
    assert_eq!(world.temps(), 1, "its last piece is not old");
    world.uploads.expire(NOW + 2 * UPLOAD_IDLE_MS_MAX);
    assert_eq!(world.temps(), 0);
    world.send(&piece("runner-ends", 0, b"x", false)).unwrap();
    let UploadFixture { fixture, uploads } = world;
    drop(uploads);
    assert!(fixture.names().is_empty());
}

#[test]
fn their_number_has_a_bound_that_ended_ones_do_not_count_for() {
    let world = UploadFixture::new();
    let named = |id: usize, last: bool| FsUploadParams {
        path: format!("f{id}"),
        ..piece(&format!("u{id}"), 0, b"x", last)
    };
    let send = |principal: usize, params: &FsUploadParams| {
        let principal = format!("p{principal}");
        let sender = UploadSender { principal: &principal, approved: None };
        upload_at(&world.uploads, &world.fixture.root, params, sender, &Cancellation::default(), NOW)
    };
    for id in 0..UPLOADS_MAX {
        send(id / UPLOADS_PER_PRINCIPAL_MAX, &named(id, false)).unwrap();
    }
    assert_refused(ErrorCode::Busy, "16 of your uploads", send(0, &named(UPLOADS_MAX, false)));
    assert_refused(ErrorCode::Busy, "64 uploads", send(9, &named(UPLOADS_MAX, false)));
    let last = FsUploadParams { path: "f3".into(), ..piece("u3", 1, b"", true) };
    send(0, &last).unwrap();
    send(0, &named(UPLOADS_MAX, false)).unwrap();
    assert_refused(ErrorCode::Busy, "16 of your uploads", send(0, &named(UPLOADS_MAX + 1, false)));
    assert_eq!(world.temps(), UPLOADS_MAX);
}

#[test]
fn what_waits_for_approval_is_bounded_in_all_uploads_of_a_principal() {
    let world = UploadFixture::new();
    let check = |principal: &str, bytes: usize| {
        let params = FsUploadParams { data: "A".repeat(bytes / 3 * 4), ..piece("next", 0, b"", false) };
        world.uploads.check_unapproved(&params, principal)
    };
    let half = (UNAPPROVED_BYTES_MAX / 2) as usize;
    check("ann", half).unwrap();
    for id in ["u", "v"] {
        let mut offset = 0;
        while offset < half as u64 - 3 {
            let size = (half as u64 - 3 - offset).min(8 << 20);
            world.send(&piece(id, offset, &vec![7; size as usize], false)).unwrap();
            offset += size;
        }
    }
    check("ann", 6).unwrap();
    assert_refused(ErrorCode::TooLarge, "64 MiB together", check("ann", 9));
    check("bob", half).unwrap();
    world.send(&FsUploadParams { abort: Some(true), ..piece("v", 0, b"", false) }).unwrap();
    check("ann", half).unwrap();
    world.send(&piece("u", half as u64 - 3, b"", true)).unwrap();
    check("ann", 2 * half - 2).unwrap();
}

#[test]
fn hole_03_an_upload_does_not_leave_the_root() {
    let world = UploadFixture::new();
    world.fixture.link("../outside/created.txt", "dangling");
    world.fixture.link("../outside", "dir-out");
    let before = world.fixture.outside_state();
    for path in ["dangling", "dir-out/created.txt", "dir-out/new/created.txt"] {
        let params = FsUploadParams { path: path.into(), ..piece("u", 0, b"x", true) };
        assert_eq!(words(world.send(&params)), "path escapes run cwd", "{path}");
    }
    // The directory becomes a link while the upload is under way.
    fs::create_dir(world.fixture.at("swapped")).unwrap();
    let begin = FsUploadParams { path: "swapped/file".into(), ..piece("s", 0, b"x", false) };
    world.send(&begin).unwrap();
    fs::rename(world.fixture.at("swapped"), world.fixture.at("away")).unwrap();
    world.fixture.link("../outside", "swapped");
    let end = FsUploadParams { offset: 1, last: Some(true), ..begin };
    assert_eq!(words(world.send(&end)), "path escapes run cwd");
    assert_eq!(world.fixture.outside_state(), before);
}

#[test]
fn bad_pieces_are_refused() {
    let world = UploadFixture::new();
    let without_parents = FsUploadParams { create_parents: None, ..piece("u", 0, b"x", false) };
    assert!(refused_as(ErrorCode::NotFound, world.send(&without_parents)).starts_with("bad path: "));
    assert!(
        words(world.send(&FsUploadParams { data: "%".into(), ..piece("u", 0, b"", false) }))
            .contains("base64")
    );
    assert!(words(world.send(&piece("", 0, b"x", false))).contains("upload_id"));
    let long = FsUploadParams { data: "A".repeat(45 << 20), ..piece("u", 0, b"", false) };
    assert!(words(world.send(&long)).contains("32 MiB"));
    assert!(world.fixture.names().is_empty());
}

#[test]
fn an_upload_can_be_copied_to_another_device() {
    let fixture = Fixture::new();
    let path = RelativePath::parse("file").unwrap();
    let mut temp = TempFile::create(&fixture.root.open_dir(&path.parent().unwrap()).unwrap(), None).unwrap();
    temp.file.write_all_at(&[3; 600_000], 0).unwrap();
    let place = fixture.root.parent_of_file(&path).unwrap();
    let mut near = copy_near(&mut temp, &place, &Cancellation::default()).unwrap();
    commit(&mut near, &place, None, &Cancellation::default()).unwrap();
    drop(temp);
    assert!(fs::read(fixture.at("file")).unwrap() == [3; 600_000]);
    assert_eq!(fixture.names(), ["file"]);
}

/// What a person is asked about is what becomes the file, and nobody changes it meanwhile.
#[test]
fn an_upload_that_a_person_is_asked_about_stays_as_it_is() {
    let world = UploadFixture::new();
    let never = &Cancellation::default();
    let long = "é".repeat(3000);
    world.send_at(&piece("u", 0, long.as_bytes(), false), now_ms()).unwrap();
    let last = piece("u", 6000, b"end", true);
    let staged = stage(&world.uploads, &world.fixture.root, &last, "ann", never).unwrap();
    let StageResult::Ask(key, staged) = staged else { panic!("{staged:?}") };
    let whole = format!("{long}end");
    assert_eq!((staged.bytes, &staged.sha256), (6003, &hex(&Sha256::digest(&whole))));
    assert_eq!(staged.preview, "é".repeat(2000));
    for refused in [piece("u", 6003, b"more", false), last.clone(), piece("u", 6003, b"", true)] {
        assert_refused(ErrorCode::Conflict, "a person is asked", world.send(&refused));
    }
    let abort = FsUploadParams { abort: Some(true), ..piece("u", 0, b"", false) };
    assert_refused(ErrorCode::Conflict, "a person is asked", world.send(&abort));
    world.uploads.expire(now_ms() + 9 * UPLOAD_IDLE_MS_MAX);
    assert_eq!(world.temps(), 1);
    // Somebody else's of the same name is another one.
    let bob = UploadSender { principal: "bob", approved: None };
    upload_at(&world.uploads, &world.fixture.root, &abort, bob, never, NOW).unwrap();
    assert_eq!(world.temps(), 1);
    // What was changed on the disk is not what was approved.
    let temp = world.fixture.names().into_iter().find(|name| name.ends_with(".tmp")).unwrap();
    let approved = ApprovedUpload { ticket: Some(staged.ticket), sha256: staged.sha256.clone() };
    let ann = UploadSender { principal: "ann", approved: Some(&approved) };
    let finish = || upload_at(&world.uploads, &world.fixture.root, &last, ann, never, now_ms());
    fs::write(world.fixture.at(&temp), whole.replace("end", "bad")).unwrap();
    assert_refused(ErrorCode::Conflict, "not what was approved", finish());
    assert!(!world.fixture.at("dir").exists());
    fs::write(world.fixture.at(&temp), &whole).unwrap();
    assert_eq!(finish().unwrap().written.unwrap().hash, staged.sha256);
    assert_eq!(world.fixture.text("dir/file.bin"), whole);
    world.uploads.unfreeze(&key, staged.ticket);
    // Sent again, nobody needs to be asked again.
    let again = stage(&world.uploads, &world.fixture.root, &last, "ann", never).unwrap();
    assert!(matches!(again, StageResult::Answer(FsUploadData { written: Some(_), .. })), "{again:?}");
}

/// After a denial the upload is the sender's again; after a restart its name may mean something else.
#[test]
fn what_was_not_approved_does_not_become_a_file() {
    let world = UploadFixture::new();
    let never = &Cancellation::default();
    let last = piece("u", 0, b"one", true);
    let staged = stage(&world.uploads, &world.fixture.root, &last, "ann", never).unwrap();
    let StageResult::Ask(key, staged) = staged else { panic!("{staged:?}") };
    world.uploads.unfreeze(&key, staged.ticket + 1);
    let abort = FsUploadParams { abort: Some(true), ..last };
    assert!(world.send(&abort).is_err());
    world.uploads.unfreeze(&key, staged.ticket);
    world.send(&abort).unwrap();
    assert!(world.fixture.names().is_empty());
    world.send(&piece("u", 0, b"two", false)).unwrap();
    let approved = ApprovedUpload { ticket: None, sha256: staged.sha256 };
    let ann = UploadSender { principal: "ann", approved: Some(&approved) };
    let params = piece("u", 3, b"", true);
    let refused = upload_at(&world.uploads, &world.fixture.root, &params, ann, never, NOW);
    assert_refused(ErrorCode::Conflict, "not what was approved", refused);
    assert!(!world.fixture.at("dir").exists());
}
