//! Names and contents that look like something else.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

cases! {
    references_that_look_like_options(hostile) {
        let head = hostile.git(&["rev-parse", "HEAD"]);
        hostile.write(".git/refs/heads/--output=x", format!("{head}\n"));
        hostile.write(".git/refs/heads/-c", format!("{head}\n"));
        hostile.write(".git/HEAD", "ref: refs/heads/--output=x\n");
        let packed = format!("# pack-refs with: sorted\n{head} refs/heads/--exec=x\n");
        hostile.write(".git/packed-refs", packed);
        hostile.is_shown = true;
    }

    base_that_looks_like_an_option(hostile) {
        hostile.base = format!("--output={}", hostile.outside().join("written").display());
    }

    paths_that_look_like_options(hostile) {
        for name in ["--output=x", "-x", ":(top,exclude)*", ":!*", "*", "a\nb", "a\tb", "\u{202e}txt.exe", "\"quoted\"", " "] {
            hostile.write(name, "odd\n");
        }
        hostile.git(&["add", "--all", "--", "."]);
        hostile.is_shown = true;
    }

    names_that_are_not_utf8(hostile) {
        let name = hostile.top.join(OsStr::from_bytes(b"\xff\xfe.txt"));
        std::fs::write(&name, b"\xff\xfe\n").unwrap();
        hostile.git(&["add", "--all"]);
        std::fs::write(&name, b"\xff\xfd\n").unwrap();
        let head = hostile.git(&["rev-parse", "HEAD"]);
        let branch = hostile.of_git("refs/heads").join(OsStr::from_bytes(b"\xff"));
        std::fs::write(branch, format!("{head}\n")).unwrap();
        std::fs::write(hostile.of_git("HEAD"), b"ref: refs/heads/\xff\n").unwrap();
        hostile.is_shown = true;
    }

    encodings_that_name_files(hostile) {
        let secret = hostile.secret();
        hostile.attributes(format!("*.txt working-tree-encoding={}\nb.txt text eol=crlf ident\n", secret.display()));
    }

    replaced_and_grafted_history(hostile) {
        let head = hostile.git(&["rev-parse", "HEAD"]);
        let tree = hostile.git(&["rev-parse", "HEAD^{tree}"]);
        let other = hostile.git(&["commit-tree", "-m", "other", &tree]);
        hostile.write(&format!(".git/refs/replace/{head}"), format!("{other}\n"));
        hostile.write(".git/info/grafts", format!("{head} {other}\n"));
        hostile.is_shown = true;
    }

    references_that_name_one_another(hostile) {
        hostile.write(".git/refs/heads/main", "ref: refs/heads/other\n");
        hostile.write(".git/refs/heads/other", "ref: refs/heads/main\n");
        hostile.write(".git/refs/heads/out", "ref: ../../../../outside/secret.id\n");
        hostile.base = "out".to_owned();
    }

    git_file_that_names_nothing(hostile) {
        hostile.remove(".git");
        hostile.write(".git", b"gitdir: \0\n\n");
    }

    git_file_that_is_long(hostile) {
        hostile.remove(".git");
        hostile.write(".git", format!("gitdir: {}\n", "x/".repeat(100_000)));
    }
}
